#include "daemon/server/stepper.h"

#include "ipc/slot.h"

namespace heddle::server {

void Stepper::apply(std::span<const core::Decision> decisions, Client* likely) {
  for (const core::Decision& decision : decisions) {
    if (recorder_ != nullptr) recorder_->decision(decision);
    const bool found = likely != nullptr && likely->identity().id == decision.client;
    Client* client = found ? likely : roster_.find(decision.client);
    const bool there = client != nullptr && client->on_gpu(decision.device);
    HEDDLE_CHECK_OF(mistakes_, client != nullptr ? decision.client : 0,
                    there);  // a core decides of those only whom it was told of
    if (!there) [[unlikely]]
      continue;
    if (client->apply(decision)) granted_.push_back(client);
  }
  if (likely == nullptr) wake_granted();
}

// A fence costs as much as a grant, and a system call more: those who are awake do not wait for it.
void Stepper::wake_granted() {
  if (granted_.empty()) return;
  ipc::slot_fence();
  for (Client* client : granted_) client->wake();
  granted_.clear();
}

}  // namespace heddle::server
