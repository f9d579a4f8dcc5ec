// Every entry point of the real driver: those that are not implemented elsewhere are refused and
// counted.
#include "bench/sim/driver.h"

// Weak, so that the definitions of the other files take their place.
#define HEDDLE_ENTRY(name) \
  HEDDLE_SIM_API __attribute__((weak)) CUresult name() { return ::heddle::sim::unsupported(#name); }
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY

namespace heddle::sim {
namespace {

constexpr Entry kEntries[] = {
#define HEDDLE_ENTRY(name) {#name, &name},
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
};

}  // namespace

const Entry* find_entry(const std::string& name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

CUresult unsupported(const char* name) {
  const Entry* entry = find_entry(name);
  ClientRegion* region = driver().link.region();
  if (entry != nullptr && region != nullptr) region->unsupported[entry - kEntries].fetch_add(1);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace heddle::sim
