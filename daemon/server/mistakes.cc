#include "daemon/server/mistakes.h"

#include <algorithm>

namespace heddle::server {

void Mistakes::on_broken(const core::Broken& broken) {
  ++count_;
  broke_ = true;
  const bool known = std::any_of(places_.begin(), places_.end(), [&](const core::Broken& b) {
    return b.file == broken.file && b.line == broken.line;
  });
  if (!known) places_.push_back(broken);
}

void Mistakes::tell() {
  broke_ = false;
  for (; told_ < places_.size(); ++told_) {
    const core::Broken& b = places_[told_];
    log_.error(
        "invariant_broken",
        {{"invariant", b.invariant},
         {"file", b.file},
         {"line", b.line},
         {"hint", "a mistake in heddled: the bypass is open; report it, and restart heddled"}});
  }
}

}  // namespace heddle::server
