// GPU time by client. The time from a launch's start to its end contains other clients' slices, or
// under MPS is spent beside their work on other SMs. Added up over clients that is more time than
// has passed. So the passing time is divided among all resident clients, and a client's launches
// count up to its part of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "daemon/core/event.h"
#include "daemon/core/policy.h"

namespace heddle::core {

// How long recent pauses lasted, and how long a pause must have lasted before using the rest of it
// is worth its cost. Pauses are of at least two kinds: a request that was already waiting comes at
// once, others come at any time. A mean describes neither kind.
class PauseLengths {
 public:
  // A pause that lasted `us` ended at `now`.
  void add(double us, TimeNs now);
  // How long a pause must have lasted, if using the rest costs `cost_us`. kUnlimitedUs: no pause is
  // worth that, or too few are known.
  double wait_us(double cost_us) const;

 private:
  static constexpr size_t kSizes = 20;  // 50 µs, and each half as long again as the one before
  static constexpr double kLeastUs = 50, kStep = 1.5;

  struct Size {
    double count = 0, us = 0;  // recent pauses of that size, decaying, and their sum
  };
  std::array<Size, kSizes> sizes_{};
  TimeNs at_ = 0;
};

// A client's account of GPU time.
struct TimeShare {
  bool resident = false;            // it has work on the device, or is in a row
  float weight = 1;                 // its time slice relative to the default
  double worked_us = 0;             // sum over launches from start to end, predicted or measured
  double had_us = 0;                // of that, the GPU time that counts for it
  double part_us = 0, part_at = 0;  // its part of the resident time that it has not used yet
};

// The part of the GPU's time that a client had recently.
class Got {
 public:
  // `seconds` are over since the clock began, and the client has had `had_us` so far.
  void pass(int64_t seconds, double had_us) {
    if (seconds - last_ > kKept) last_ = seconds - kKept;
    for (; last_ < seconds; ++last_) at_[static_cast<size_t>(last_ % kKept)] = had_us;
  }
  // By whole seconds: the part of a second that is not over would be noise.
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
  // Work of the client that took `us` is done. `left_us`: predicted time of its other work on the
  // GPU. The rest of its part is kept for that work; what that does not need goes to others.
  void charge(TimeShare& share, double us, double left_us);

 private:
  void collect_part(TimeShare& share) const;

  double part_us_ = 0;      // the part of a client of weight 1 so far: 1/n of the time for n equals
  double weights_ = 0;      // sum over resident clients
  double unused_us_ = 0;    // parts that their clients did not need
  uint32_t residents_ = 0;  // number of resident clients
};

// How long each priority was the highest with work on the device.
class BusyTime {
 public:
  void pass(TimeNs ns) {
    ns_[static_cast<size_t>(highest_)] += ns;
    last_[static_cast<size_t>(highest_)] = passed_ += ns;
  }
  void note(int highest);              // the highest from now on; kPriorityCount: none has work
  double idle_us(int priority) const;  // Gpu::idle_us
  // For how long no client above `priority` has had work; unlimited: none ever had.
  double pause_us(int priority) const;
  // The lengths of those pauses that ended.
  const PauseLengths& pauses(int priority) const {
    return pauses_[static_cast<size_t>(std::clamp(priority, 0, kPriorityCount - 1))];
  }

 private:
  std::array<TimeNs, kPriorityCount + 1> ns_{};    // [kPriorityCount]: no client had work
  std::array<TimeNs, kPriorityCount + 1> last_{};  // in terms of passed_; 0: never
  TimeNs passed_ = 0;
  int highest_ = kPriorityCount;
  std::array<PauseLengths, kPriorityCount> pauses_;
};

}  // namespace heddle::core
