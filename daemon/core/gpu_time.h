// GPU time by client. A launch takes from its start to its end, whoever else is on the GPU in
// between: time-sliced in slices of its own, under MPS on other SMs. Added up over clients that is
// more time than there was. So time is divided first, among all clients that are resident, and what
// a client's launches took is counted as far as its part goes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "daemon/core/event.h"
#include "daemon/core/policy.h"

namespace heddle::core {

// How long pauses lasted of late, and how long one must have lasted so that it is worth it to use
// the rest. Pauses are of two kinds at least: a request that had waited comes at once, the others
// come whenever they come; a mean says neither.
class PauseLengths {
 public:
  // A pause ended at `now` that had lasted so long.
  void add(double us, TimeNs now);
  // To use a pause costs so much of it; kUnlimitedUs: no pause is worth that, or too few are known.
  double wait_us(double cost_us) const;

 private:
  static constexpr size_t kSizes = 20;  // 50 µs, and each half as long again as the one before
  static constexpr double kLeastUs = 50, kStep = 1.5;

  struct Size {
    double count = 0, us = 0;  // of late, and their sum
  };
  std::array<Size, kSizes> sizes_{};
  TimeNs at_ = 0;
};

// A client's.
struct TimeShare {
  bool resident = false;            // it has work on the device, or is in a row
  float weight = 1;                 // its time slice over others'
  double worked_us = 0;             // of each launch from start to end, predicted or measured
  double had_us = 0;                // of that, what the GPU had for it
  double part_us = 0, part_at = 0;  // its part of the time that it was resident, not used yet
};

// What a client had of the GPU's time of late.
class Got {
 public:
  // So many seconds are over since the clock began, and it has had so much.
  void pass(int64_t seconds, double had_us) {
    if (seconds - last_ > kKept) last_ = seconds - kKept;
    for (; last_ < seconds; ++last_) at_[static_cast<size_t>(last_ % kKept)] = had_us;
  }
  // Of whole seconds: the part of one that is not over would be noise.
  GotParts parts(int64_t seconds, double had_us) const;

 private:
  static constexpr int64_t kKept = 61;

  std::array<double, kKept> at_{};
  int64_t last_ = 0;
};

class GpuTime {
 public:
  void pass(double us) {
    if (weights_ > 0) part_us_ += us / weights_;
  }
  uint32_t residents() const { return residents_; }
  void set_resident(TimeShare& share, bool resident, float weight = 1);
  // Work of the client is done, and took so long; `left_us` is predicted of what it has on the GPU
  // still. What is left of its part is for that, and what that will not need, for others.
  void charge(TimeShare& share, double us, double left_us);

 private:
  void collect_part(TimeShare& share) const;

  double part_us_ = 0;      // a clock: of n clients that are resident, each has a part of 1/n,
  double weights_ = 0;      // if their slices are alike; the sum of theirs
  double unused_us_ = 0;    // what was left of the parts of others
  uint32_t residents_ = 0;  // so many are
};

// How long each priority was the highest with work on the device.
class BusyTime {
 public:
  void pass(TimeNs ns) {
    ns_[static_cast<size_t>(highest_)] += ns;
    last_[static_cast<size_t>(highest_)] = passed_ += ns;
  }
  void note(int highest);              // from now on; kPriorityCount: nobody has any
  double idle_us(int priority) const;  // Gpu's
  // For how long nobody above has had work; unlimited: nobody ever had.
  double pause_us(int priority) const;
  // How long that was, whenever somebody above had work again.
  const PauseLengths& pauses(int priority) const {
    return pauses_[static_cast<size_t>(std::clamp(priority, 0, kPriorityCount - 1))];
  }

 private:
  std::array<TimeNs, kPriorityCount + 1> ns_{};    // last: nobody had any
  std::array<TimeNs, kPriorityCount + 1> last_{};  // of passed_, 0: never
  TimeNs passed_ = 0;
  int highest_ = kPriorityCount;
  std::array<PauseLengths, kPriorityCount> pauses_;
};

}  // namespace heddle::core
