#include "shim/admission/library_kernels.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::shim {
namespace {

constexpr int kPlaceBits = 16;  // frameworks have some ten thousand kernels
constexpr size_t kPlaces = size_t{1} << kPlaceBits;
constexpr size_t kProbes = 64;
const CUkernel kGone = reinterpret_cast<CUkernel>(1);

// Zeros at first, so that untouched pages cost nothing.
struct Place {
  std::atomic<CUkernel> kernel{nullptr};  // kGone: was taken, a search goes on past it
  std::atomic<CUlibrary> library{nullptr};
};
constinit Place places[kPlaces];

Place& place_at(const void* handle, size_t probe) {
  const uint64_t home = reinterpret_cast<uint64_t>(handle) * 0x9e3779b97f4a7c15u;
  return places[((home >> (64 - kPlaceBits)) + probe) % kPlaces];
}

}  // namespace

void note_library_kernel(CUkernel kernel, CUlibrary library) {
  if (kernel == nullptr) return;
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Place& place = place_at(kernel, probe);
    CUkernel seen = place.kernel.load(std::memory_order_relaxed);
    const bool is_free = seen == nullptr || seen == kGone;
    if (seen != kernel && !(is_free && place.kernel.compare_exchange_strong(seen, kernel))) {
      continue;
    }
    return place.library.store(library, std::memory_order_relaxed);
  }
}

bool is_library_kernel(const void* handle) {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const CUkernel seen = place_at(handle, probe).kernel.load(std::memory_order_relaxed);
    if (seen == handle) return seen != nullptr;
    if (seen == nullptr) return false;
  }
  return false;
}

void forget_library(CUlibrary library) {
  for (Place& place : places) {
    if (place.kernel.load(std::memory_order_relaxed) != nullptr &&
        place.library.load(std::memory_order_relaxed) == library) {
      place.kernel.store(kGone, std::memory_order_relaxed);
    }
  }
}

}  // namespace heddle::shim
