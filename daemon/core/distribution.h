// What the measurement stage learns of a duration or a gap: a distribution in constant memory.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/core/event.h"

namespace heddle::core {

// A quantile of a stream of numbers without keeping them: the P-square algorithm (Jain and
// Chlamtac, "The P2 algorithm for dynamic calculation of quantiles and histograms without storing
// observations", CACM 28(10), 1985). Five markers; exact up to five numbers.
class Quantile {
 public:
  explicit Quantile(double share) : share_(static_cast<float>(share)) {}

  void add(double x);
  double value() const;

 private:
  double parabolic(int i, int step) const;

  float share_;
  uint32_t count_ = 0;
  std::array<float, 5> height_{};
  std::array<uint32_t, 5> position_{};  // from 1
};

class Distribution {
 public:
  void add(double us);
  // Instead of what was added; nothing is to be added any more.
  void restore(const Summary& summary) { restored_ = summary; }
  uint32_t count() const { return restored_.count != 0 ? restored_.count : count_; }
  Summary summary() const;

 private:
  double mean_us_ = 0;
  uint32_t count_ = 0;
  Quantile p50_{0.5}, p90_{0.9};
  Summary restored_{};
};

}  // namespace heddle::core
