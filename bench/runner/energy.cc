#include "bench/runner/watch.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

namespace heddle::bench {
namespace {

template <class F>
F* symbol(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

EnergyMeter::EnergyMeter() {
  load();
  if (problem_.empty() && !joules()) problem_ = "NVML has no energy counter for this GPU";
}

void EnergyMeter::load() {
  const char* named = getenv("HEDDLE_NVML");
  void* nvml = dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) {
    problem_ = dlerror();
    return;
  }
  const auto init = symbol<int()>(nvml, "nvmlInit_v2");
  const auto by_index = symbol<int(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  const auto by_uuid = symbol<int(const char*, void**)>(nvml, "nvmlDeviceGetHandleByUUID");
  total_mj_ = symbol<int(void*, unsigned long long*)>(nvml, "nvmlDeviceGetTotalEnergyConsumption");
  if (init == nullptr || by_index == nullptr || total_mj_ == nullptr) {
    problem_ = "NVML lacks functions; it is too old";
    return;
  }
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  std::string first = visible != nullptr ? visible : "";
  first.resize(std::min(first.size(), first.find(',')));
  const bool uuid = first.rfind("GPU-", 0) == 0 && by_uuid != nullptr;
  int error = init();
  if (error == 0) {
    error = uuid ? by_uuid(first.c_str(), &device_)
                 : by_index(static_cast<unsigned>(strtoul(first.c_str(), nullptr, 10)), &device_);
  }
  if (error != 0) problem_ = "NVML does not answer: error " + std::to_string(error);
}

std::optional<double> EnergyMeter::joules() const {
  unsigned long long mj = 0;
  if (!problem_.empty() || total_mj_(device_, &mj) != 0) return std::nullopt;
  return static_cast<double>(mj) / 1e3;
}

}  // namespace heddle::bench
