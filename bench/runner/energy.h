// Energy of the GPU by NVML's counter. For run.cc.
#pragma once

#include <optional>
#include <string>

namespace heddle::bench {

// The GPU that CUDA_VISIBLE_DEVICES names first, or else the first one. Loads libnvidia-ml.so.1
// (HEDDLE_NVML names another), once.
class EnergyMeter {
 public:
  EnergyMeter();

  // Why there are no figures, or empty.
  const std::string& problem() const { return problem_; }
  // Joules that the whole GPU has taken since its driver was loaded; nothing if it cannot be read.
  // The driver brings the counter up to date every so often: take spans of a second or more.
  std::optional<double> joules() const;

 private:
  void load();

  void* device_ = nullptr;
  int (*total_mj_)(void*, unsigned long long*) = nullptr;
  std::string problem_;
};

}  // namespace heddle::bench
