// Limits on device memory: how people write them, and in which chunks the daemon grants memory.
//
// A limit holds for a group of processes together. The daemon keeps each group's account and grants
// its members bytes in chunks. Each member's shim counts the allocations, and asks the daemon again
// before they exceed its grant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::ipc {

// "20GiB" or "25%" (of the device).
struct MemoryAmount {
  uint64_t bytes = 0;
  double percent = 0;  // if this is not 0, `bytes` is 0

  uint64_t of(uint64_t total) const {
    return percent > 0 ? static_cast<uint64_t>(static_cast<double>(total) * percent / 100) : bytes;
  }
  bool operator==(const MemoryAmount&) const = default;
};

inline constexpr const char* kMemoryForm =
    "an amount in quotes, such as \"20GiB\", \"512MiB\" or \"25%\" of the GPU";

namespace detail {
inline uint64_t memory_unit(std::string_view unit) {
  if (unit == "KiB") return uint64_t{1} << 10;
  if (unit == "MiB") return uint64_t{1} << 20;
  if (unit == "GiB") return uint64_t{1} << 30;
  if (unit == "TiB") return uint64_t{1} << 40;
  return 0;
}
}  // namespace detail

// At least 1 MiB, or more than 0 and at most 100 %. Decimals are allowed: "1.5GiB".
inline std::optional<MemoryAmount> parse_memory(std::string_view text) {
  double value = 0;
  double place = 0;  // value of the next digit after the point
  size_t at = 0;
  bool any = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c >= '0' && c <= '9') {
      any = true;
      value = place == 0 ? value * 10 + (c - '0') : value + (c - '0') * place;
      place /= 10;
    } else if (c == '.' && place == 0 && any) {
      place = 0.1;
    } else {
      break;
    }
  }
  const std::string_view unit = text.substr(at);
  if (!any || value <= 0 || value > 1e6) return std::nullopt;
  if (unit == "%") return value <= 100 ? std::optional(MemoryAmount{0, value}) : std::nullopt;
  const uint64_t bytes =
      static_cast<uint64_t>(value * static_cast<double>(detail::memory_unit(unit)));
  return bytes >= uint64_t{1} << 20 ? std::optional(MemoryAmount{bytes, 0}) : std::nullopt;
}

// A process is granted up to this many bytes more than it needs now, so that most allocations need
// not ask the daemon. Small limits give smaller chunks, and so does a group close to its limit
// (daemon/server/memory.cc).
inline constexpr uint64_t kMemoryChunk = uint64_t{64} << 20;
constexpr uint64_t memory_chunk(uint64_t limit) {
  return std::min(kMemoryChunk, std::max(limit / 64, uint64_t{64} << 10));
}

}  // namespace heddle::ipc
