// What the NVIDIA driver says of the host's GPUs, in /proc/driver/nvidia: nobody's claim. Where
// there is none (a container without it, the simulated GPU), clients say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/server/gpus.h"

namespace heddle::server {

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
