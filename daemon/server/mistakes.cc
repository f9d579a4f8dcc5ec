#include "daemon/server/mistakes.h"

#include <algorithm>

namespace heddle::server {

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
