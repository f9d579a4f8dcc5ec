// Random numbers that are the same on every machine: the standard's distributions are not.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace heddle::plan {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  size_t below(size_t n) { return static_cast<size_t>(uniform() * static_cast<double>(n)); }
  double exponential(double mean) { return -mean * std::log(1 - uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace heddle::plan
