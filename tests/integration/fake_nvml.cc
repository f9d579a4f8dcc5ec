// Stands in for libnvidia-ml.so.1 under `heddle doctor` and `heddle-bench run`: one GPU, whose
// compute mode, processes and power the environment says: FAKE_NVML_MODE=3, FAKE_NVML_PIDS=12,34,
// FAKE_NVML_WATTS=250.
#include <time.h>

#include <cstdlib>
#include <cstring>

#define FAKE extern "C" __attribute__((visibility("default")))

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

FAKE int nvmlInit_v2() { return 0; }
FAKE int nvmlSystemGetDriverVersion(char* out, unsigned) { return strcpy(out, "580.1"), 0; }
FAKE int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) { return *device = device, 0; }
FAKE int nvmlDeviceGetHandleByUUID(const char*, void** device) { return *device = device, 0; }
FAKE int nvmlDeviceGetName(void*, char* out, unsigned) { return strcpy(out, "Fake GPU"), 0; }
FAKE int nvmlDeviceGetMemoryInfo(void*, unsigned long long* out) {
  return out[0] = 80ull << 30, out[1] = 60ull << 30, out[2] = 20ull << 30, 0;
}
FAKE int nvmlDeviceGetComputeMode(void*, int* mode) {
  const char* text = getenv("FAKE_NVML_MODE");
  return *mode = text != nullptr ? atoi(text) : 0, 0;
}
FAKE int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* out) {
  const char* text = getenv("FAKE_NVML_PIDS");
  unsigned found = 0;
  for (char* end; text != nullptr && *text != '\0' && found < *count; text = end) {
    out[found++] = {static_cast<unsigned>(strtoul(text, &end, 10)), 1 << 20, 0, 0};
    end += *end == ',' ? 1 : 0;
  }
  return *count = found, 0;
}
#ifdef FAKE_NVML_LIMITS  // a driver from 615 on
FAKE int nvmlDeviceSetMemoryLimits_v1(void*, void*) { return 3; }
#endif
// 3 is NVML_ERROR_NOT_SUPPORTED.
FAKE int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* mj) {
  const char* watts = getenv("FAKE_NVML_WATTS");
  if (watts == nullptr) return 3;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double s = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  return *mj = static_cast<unsigned long long>(s * atof(watts) * 1e3), 0;
}
