// NVIDIA's MIG slices: which exist on a GPU model, and where each may lie. Pure functions.
//
// The rules are those that `nvidia-smi mig -lgipp` prints: a slice takes consecutive memory slices
// of eight, may begin only at certain ones, and no two overlap. A slice's compute slices are fewer
// than its memory slices where memory is not divisible by seven.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::plan {

inline constexpr uint32_t kMemorySlices = 8;
inline constexpr uint32_t kComputeSlices = 7;

struct SliceProfile {
  std::string_view name;  // "3g.40gb"
  uint32_t compute;       // compute slices, of 7
  uint32_t memory;        // memory slices, of 8
  uint32_t sms;
  double memory_gib;
  uint32_t starts;  // bit i: it may begin at memory slice i
  bool wide;        // one compute slice with the memory of two
};

struct GpuModel {
  std::string_view name;  // "a100-80gb"
  uint32_t sms;           // without MIG
  double memory_gib;
  std::span<const SliceProfile> profiles;  // by size, the whole GPU last
};

// nullptr if the name is unknown; gpu_names() is for the message.
const GpuModel* gpu_model(std::string_view name);
std::string gpu_names();

struct Slice {
  const SliceProfile* profile;
  uint32_t start;  // memory slice
};
using Layout = std::vector<Slice>;  // by start

// "4g.40gb+3g.40gb"
std::string to_string(const Layout& layout);

// Places the slices that `text` names, "+" between them, in a legal way; or says why there is none.
Result<Layout> place(const GpuModel& gpu, std::string_view text);

// Every layout to which no slice can be added. Without `wide`, the five profiles of the papers.
enum class Wide : bool { kNo, kYes };
std::vector<Layout> layouts(const GpuModel& gpu, Wide wide = Wide::kNo);

// Of these one for each set of sizes: where slices lie makes no difference to a job.
std::vector<Layout> distinct(std::vector<Layout> layouts);

}  // namespace heddle::plan
