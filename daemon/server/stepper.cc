#include "daemon/server/stepper.h"

#include <algorithm>

#include "ipc/slot.h"

namespace heddle::server {

void Stepper::apply(std::span<const core::Decision> decisions, Client* likely) {
  for (const core::Decision& decision : decisions) {
    if (recorder_ != nullptr) recorder_->decision(decision);
    const bool found = likely != nullptr && likely->identity().id == decision.client;
    Client* client = found ? likely : roster_.find(decision.client);
    const bool there = client != nullptr && client->on_gpu(decision.device);
    HEDDLE_CHECK_OF(mistakes_, client != nullptr ? decision.client : 0,
                    there);  // a core decides only about clients that it was told of
    if (!there) [[unlikely]]
      continue;
    if (client->apply(decision)) granted_.push_back(client);
  }
  if (likely == nullptr) wake_granted();
}

// A fence costs as much as a grant, and a system call costs more. So threads that sleep are woken
// after all grants are written, and threads that are awake need not wait for that.
void Stepper::wake_granted() {
  if (granted_.empty()) return;
  ipc::slot_fence();
  for (Client* client : granted_) client->wake();
  granted_.clear();
}

void Mistakes::on_broken(const core::Broken& broken) {
  ++count_;
  if (!news_) news_.emplace();
  if (broken.client == 0) {
    news_->of_all = true;
  } else {
    news_->clients.push_back(broken.client);
  }
  const bool known = std::any_of(places_.begin(), places_.end(), [&](const core::Broken& b) {
    return b.file == broken.file && b.line == broken.line;
  });
  if (!known) places_.push_back(broken);
}

void Mistakes::tell() {
  for (; told_ < places_.size(); ++told_) {
    const core::Broken& b = places_[told_];
    log_.error("invariant_broken",
               {{"invariant", b.invariant},
                {"file", b.file},
                {"line", b.line},
                {"client", b.client},
                {"hint", b.client != 0 ? "a mistake in heddled: that client runs ungated; report it"
                                       : "a mistake in heddled: the bypass is open; report it, and "
                                         "restart heddled"}});
  }
}

}  // namespace heddle::server
