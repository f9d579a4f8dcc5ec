// Which GPU of this host a client's device is. A process numbers the GPUs that it sees
// (CUDA_VISIBLE_DEVICES, its container's devices), so device 0 of two processes may be two GPUs.
// The UUIDs of cuDeviceGetUuid, which clients send, tell them apart.
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

// The GPU's number of each of a client's devices. kNoGpu: its launches there are not scheduled.
inline constexpr uint8_t kNoGpu = 0xff;
using DeviceMap = std::array<uint8_t, ipc::kDevices>;

constexpr DeviceMap same_numbers() {
  DeviceMap map{};
  for (uint8_t device = 0; device < ipc::kDevices; ++device) map[device] = device;
  return map;
}

// The numbers of GPUs. A GPU keeps its number while any client has it, and until another GPU needs
// the number.
class GpuNumbers {
 public:
  using Numbers = uint32_t;  // a bit each

  // The host's GPUs by its driver: they have the first numbers for good.
  void keep(std::span<const GpuId> gpus);

  // The numbers of a new client's devices. `held`: numbers that clients have; `own`: those among
  // them of the same user. Unless `privileged`, a user can have half of the numbers that others
  // leave. A client without known ids keeps its own numbering.
  DeviceMap map(std::span<const GpuId> devices, Numbers held, Numbers own, bool privileged);

  const GpuId& id(uint8_t number) const { return ids_[number]; }
  // "GPU-...", as nvidia-smi -L writes that of a whole GPU; "" if it is unknown.
  std::string text(uint8_t number) const;

 private:
  uint8_t find(const GpuId& id, uint8_t device, Numbers held) const;

  std::array<GpuId, ipc::kDevices> ids_{};
  Numbers kept_ = 0;
};

// The directory of GPU constants for the interference estimator (profiles/gpu): share/heddle/gpu
// beside the executable's bin/.
std::string installed_gpu_models();

// Gives the scheduler the model in `directory` that has the GPU's name. If there is none, or its
// file is wrong, the log says so, and the core's own constants stay. Called once for each device,
// on the loop's thread.
void use_gpu_model(core::Scheduler& scheduler, const std::string& directory, const std::string& gpu,
                   Log& log);

// The host's GPUs by the NVIDIA driver, in /proc/driver/nvidia: this needs no client's word.
// Without it (in some containers, and with the simulated GPU) the clients tell.
struct DriverGpu {
  std::string model;  // "NVIDIA H200"
  GpuId id{};
};

// "GPU-00112233-4455-6677-8899-aabbccddeeff"
std::optional<GpuId> parse_gpu_id(const std::string& text);

// By ascending bus address, without those whose UUID the driver does not know yet.
std::vector<DriverGpu> driver_gpus(const std::string& directory = "/proc/driver/nvidia/gpus");

// Whether one of these GPUs, or a MIG instance of one, may have that name.
bool has_model(const std::vector<DriverGpu>& gpus, const std::string& name);

}  // namespace heddle::server
