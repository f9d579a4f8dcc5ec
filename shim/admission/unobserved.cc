#include "shim/admission/unobserved.h"

namespace heddle::shim {

constinit Harmless harmless[1 << kHarmlessBits] = {};
constinit __thread uint32_t unobserved_launches = 0;

// A new handle pushes out the older one of its place.
void remember_harmless(const void* handle) {
  if (is_harmless(handle)) return;
  auto& [newer, older] = harmless_place(handle).handles;
  older.store(newer.load(std::memory_order_relaxed), std::memory_order_relaxed);
  newer.store(handle, std::memory_order_relaxed);
}

void forget_harmless(const void* handle) {
  for (auto& place : harmless_place(handle).handles) {
    const void* expected = handle;
    place.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
  }
}

void forget_all_harmless() {
  for (Harmless& place : harmless) {
    for (auto& handle : place.handles) handle.store(nullptr, std::memory_order_relaxed);
  }
}

}  // namespace heddle::shim
