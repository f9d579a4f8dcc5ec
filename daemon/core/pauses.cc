#include "daemon/core/pauses.h"

#include <algorithm>

#include "ipc/gate_sizes.h"

namespace heddle::core {
namespace {

// A request that waited for the one before it begins 75 to 200 µs after that one's end (PyTorch on
// an H200). A long launch in between would delay each such request. So the pause must have lasted
// for a part of the launch's length. A unit that can be stopped within kGateUnitUs need not wait.
constexpr double kPausePart = 1.0 / 8, kPauseUsMin = 100, kPauseUsMax = 500;

// How much work that cannot be held may be on the GPU, beside one launch more; or one launch in
// each of so many streams, which run side by side.
constexpr double kAheadUs = 1000;
constexpr uint32_t kAheadStreams = 8;

}  // namespace

double Pauses::keep_back() {
  double soon_us = kUnlimitedUs;
  kept_back_ = 0;
  for (Head& w : heads_.all()) {
    if (w.client == nullptr) continue;
    const double us = early_us(w);
    w.early = us > 0;
    if (!w.early) continue;
    w.was_early = true;
    soon_us = std::min(soon_us, us);
    kept_back_ += w.withheld ? 0 : 1;
  }
  return soon_us;
}

// Whether a launch whose thread waits would go too far ahead of its client's work on the GPU.
bool Pauses::is_far_ahead(const Head& w) const {
  const Client& c = *w.client;
  const Outstanding& there = c.work.outstanding;
  if (there.empty() || roster_.highest_active() < c.rule.priority) return false;
  if (c.standing.choice.any(now_.clock)) return false;
  if (!there.is_busy(w.stream) && there.busy_streams() < kAheadStreams) return false;
  return c.remaining_us(now_.clock) > kAheadUs;
}

double Pauses::early_us(const Head& w) const {
  // A client that is stopped launches nothing until it goes on.
  if (w.client->work.stands) return kUnlimitedUs;
  if (!w.at_gate()) return is_far_ahead(w) ? kUnlimitedUs : 0;
  const int priority = w.client->rule.priority;
  if (w.predicted_us() <= ipc::kGateUnitUs || roster_.busy(priority, now_.clock)) return 0;
  const double pause_us = std::clamp(w.predicted_us() * kPausePart, kPauseUsMin, kPauseUsMax);
  return std::max(0.0, pause_us - busy_time_.pause_us(priority));
}

}  // namespace heddle::core
