// `heddle run --memory`: which mechanisms hold the limit, and MPS's own where an MPS is in force.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::cli {

inline constexpr const char* kMpsMemoryLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

// What the program will find. `nvml` as probe_gpu() has it; null where nobody asked.
struct MemorySetting {
  std::string limit;              // of --memory
  bool daemon = false;            // heddled answers, so that the shim keeps to the limit
  bool mps = false;               // an MPS runs where the program looks for it
  std::string given;              // kMpsMemoryLimit, as the user has it
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES of the program; null: not set
  std::string mps_visible;        // and of MPS, "": all
  nlohmann::json nvml;
};

struct MemoryHold {
  std::string by;         // shim, mps, "shim and mps" or none, as `heddle ps --json` has it
  std::string mps_limit;  // to be set for the program, with room for its context; "": nothing
  std::string why;        // said beside `by`; may be ""
};

// Asks nothing, so that tests can make settings up. A value that the user set stays. MPS drops the
// whole of a value that names a device which the program does not see: no other is named.
MemoryHold hold_memory(const MemorySetting& setting);

// Sets kMpsMemoryLimit in this environment where hold_memory() says so; `daemon` as above.
MemoryHold set_memory_limit(const std::string& limit, bool daemon);

}  // namespace heddle::cli
