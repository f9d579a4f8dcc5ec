// What heddled does about a mistake of its own (core/check.h): nobody shall wait for who does not
// know any more what it does.
#include <algorithm>

#include "daemon/server/engine.h"

namespace heddle::server {

void Engine::note_broken(const core::Broken& broken) {
  ++counters_.broken_invariants;
  broke_ = true;
  const bool known = std::any_of(broken_.begin(), broken_.end(), [&](const core::Broken& b) {
    return b.file == broken.file && b.line == broken.line;
  });
  if (!known) broken_.push_back(broken);
}

// Not from within the scheduler, whose caller may not call it.
void Engine::open_if_broken(core::TimeNs now) {
  if (!broke_) [[likely]]
    return;
  broke_ = false;
  for (; told_broken_ < broken_.size(); ++told_broken_) {
    const core::Broken& b = broken_[told_broken_];
    log_.error(
        "invariant_broken",
        {{"invariant", b.invariant},
         {"file", b.file},
         {"line", b.line},
         {"hint", "a mistake in heddled: the bypass is open; report it, and restart heddled"}});
  }
  set_bypass(true, now);
}

}  // namespace heddle::server
