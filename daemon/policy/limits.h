// What one policy may use, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::policy {

struct Limits {
  size_t memory_bytes = 4u << 20;
  // The largest string or array. Builtins, comparisons and `..` run without burning fuel, so what
  // they work on is kept small: comparing or copying this much takes about 10 µs.
  size_t block_bytes = 64u << 10;
  uint32_t fuel = 100'000;         // instructions of one hook call, about 0.2 ms
  uint32_t load_fuel = 5'000'000;  // of the top level, imports included
  // Backstop for what burns time and no fuel, looked at every kFuelStep instructions.
  double cpu_ms = 20;
  // A hook call that took longer is a fault, whatever it burned: launches waited for it.
  double call_ms = 20;
};

// Where time is virtual nobody waits: a hook that was preempted has done nothing wrong.
inline Limits virtual_time_limits() {
  Limits limits;
  limits.call_ms = 10'000;
  return limits;
}

inline constexpr uint32_t kFuelStep = 1'000;        // instructions between two looks at the fuel
inline constexpr uint32_t kQueuesMax = 16;          // of one policy
inline constexpr uint32_t kParamsMax = 64;          // of one policy
inline constexpr size_t kLaunchObjects = 256;       // launches that one hook call may look at
inline constexpr uint32_t kImportsMax = 16;         // of one policy
inline constexpr size_t kSourceBytes = 256 << 10;   // of one file
inline constexpr size_t kLineBytes = 240;           // of a trace line, a reason or a doc
inline constexpr size_t kErrorBytes = 400;          // of an error's text, its place included
inline constexpr size_t kNameBytes = 64;            // of a policy, a version or a parameter
inline constexpr size_t kDumpBytes = 4 << 10;       // of what dump returns
inline constexpr uint32_t kMapsMax = 16;            // of one policy
inline constexpr uint32_t kMapEntriesMax = 65'536;  // of all of them together
inline constexpr uint32_t kTraceLines = 64;         // kept for `heddle status`
inline constexpr size_t kReasonsMax = 16;           // of dispatch, counted for `heddle status`
inline constexpr uint32_t kCallsPerCollection = 32;

}  // namespace heddle::policy
