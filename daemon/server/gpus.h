// Which GPU of this host a client's device is. A process counts those that it sees
// (CUDA_VISIBLE_DEVICES, what its container was given), so that device 0 of two processes may be
// two GPUs; what tells these apart is cuDeviceGetUuid, as each client says it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/scheduler.h"
#include "daemon/server/log.h"
#include "ipc/limits.h"

namespace heddle::server {

using GpuId = std::array<uint8_t, ipc::kGpuIdBytes>;  // zeros: unknown

// A client's devices: the number of the GPU of each, or kNoGpu, where its launches run freely.
inline constexpr uint8_t kNoGpu = 0xff;
using DeviceMap = std::array<uint8_t, ipc::kDevices>;

constexpr DeviceMap same_numbers() {
  DeviceMap map{};
  for (uint8_t device = 0; device < ipc::kDevices; ++device) map[device] = device;
  return map;
}

// A GPU has its number for as long as any client has the GPU, and on until another needs it.
class GpuNumbers {
 public:
  using Numbers = uint32_t;  // a bit each

  // GPUs that the host has, as its driver says: these have the first numbers for good.
  void keep(std::span<const GpuId> gpus);

  // The numbers of a new client's devices. `held`: those that clients have; of these `own` are of
  // clients of the same user, who can have half of what others leave unless `privileged`. Whose
  // devices have no known id keeps its own numbers.
  DeviceMap map(std::span<const GpuId> devices, Numbers held, Numbers own, bool privileged);

  const GpuId& id(uint8_t number) const { return ids_[number]; }
  // "GPU-...", as nvidia-smi -L writes that of a whole GPU; "" if it is unknown.
  std::string text(uint8_t number) const;

 private:
  uint8_t find(const GpuId& id, uint8_t device, Numbers held) const;

  std::array<GpuId, ipc::kDevices> ids_{};
  Numbers kept_ = 0;
};

// Which constants the interference estimator goes by (profiles/gpu): those in
// share/heddle/gpu beside the executable's bin/.
std::string installed_gpu_models();

// Called once a device, on the loop's thread, as it is learned. Gives the scheduler the model in
// `directory` that is of the GPU, as its driver names it. Where there is none, or its file is
// wrong, the log says so, and the core's own constants stay.
void use_gpu_model(core::Scheduler& scheduler, const std::string& directory, const std::string& gpu,
                   Log& log);

// What the NVIDIA driver says of the host's GPUs, in /proc/driver/nvidia: nobody's claim. Where
// there is none (a container without it, the simulated GPU), clients say it.
struct DriverGpu {
  std::string model;  // "NVIDIA H200"
  GpuId id{};
};

// "GPU-00112233-4455-6677-8899-aabbccddeeff"
std::optional<GpuId> parse_gpu_id(const std::string& text);

// By ascending bus address; those whose UUID the driver does not know yet are left out.
std::vector<DriverGpu> driver_gpus(const std::string& directory = "/proc/driver/nvidia/gpus");

// A GPU of theirs, or a MIG instance of one, may call itself so.
bool has_model(const std::vector<DriverGpu>& gpus, const std::string& name);

}  // namespace heddle::server
