// How long pauses lasted of late, and how long one must have lasted so that it is worth it to use
// the rest. Pauses are of two kinds at least: a request that had waited comes at once, the others
// come whenever they come; a mean says neither.
#pragma once

#include <array>

#include "daemon/core/event.h"
#include "daemon/core/policy.h"

namespace heddle::core {

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

}  // namespace heddle::core
