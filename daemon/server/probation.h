// Whether a policy generation has proved itself: where the next one falls back to that does not.
// Told the time; no clock of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/core/event.h"

namespace heddle::server {

class Probation {
 public:
  // A generation is good once it has decided for `good` without a fault.
  explicit Probation(core::TimeNs good) : good_(good) {}

  void begin(core::TimeNs now) { *this = Probation(good_, now); }
  // To be told now and then what the generation has decided and got wrong so far. True once: when
  // it becomes good.
  bool update(core::TimeNs now, uint64_t decisions, uint64_t faults) {
    const core::TimeNs passed = std::min(now - updated_, kPauseNs);
    updated_ = now;
    if (decisions != decisions_) decided_ = now;
    if (faults != faults_) proved_ = 0;
    if (now - decided_ <= kPauseNs && faults == faults_ && decisions > 0) proved_ += passed;
    decisions_ = decisions;
    faults_ = faults;
    if (is_good_ || proved_ < good_) return false;
    return is_good_ = true;
  }
  bool is_good() const { return is_good_; }

 private:
  // Of time in which nothing was decided no more counts in a row: an idle GPU proves nothing.
  static constexpr core::TimeNs kPauseNs = 1'000'000'000;

  Probation(core::TimeNs good, core::TimeNs now) : good_(good), updated_(now), decided_(now) {}

  core::TimeNs good_;
  core::TimeNs updated_ = 0, decided_ = 0;
  core::TimeNs proved_ = 0;
  uint64_t decisions_ = 0, faults_ = 0;
  bool is_good_ = false;
};

}  // namespace heddle::server
