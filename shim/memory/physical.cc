#include "shim/memory/physical.h"

namespace heddle::shim {

Holding* PhysicalMemory::find(Holds kind, uint64_t key) {
  const Holding* names = table_.find(kind, key);
  return names != nullptr ? table_.find(Holds::kPhysical, names->owner) : nullptr;
}

void PhysicalMemory::end_if_unused(Holding* physical) {
  if (physical->handles != 0 || physical->mappings != 0) return;
  ended_(physical->device, physical->bytes);
  table_.remove(physical);
}

void PhysicalMemory::create(uint64_t handle, int device, uint64_t bytes) {
  const uint64_t number = ++created_;
  Holding* names = table_.add(Holds::kHandle, handle);
  if (names != nullptr) names->owner = number;
  Holding* physical = names != nullptr ? table_.add(Holds::kPhysical, number) : nullptr;
  if (physical == nullptr) {
    if (names != nullptr) table_.remove(table_.find(Holds::kHandle, handle));
    return ended_(device, bytes);
  }
  physical->device = static_cast<uint8_t>(device);
  physical->bytes = bytes;
  physical->handles = 1;
}

void PhysicalMemory::retain(uint64_t handle) {
  if (Holding* physical = find(Holds::kHandle, handle)) ++physical->handles;
}

void PhysicalMemory::release(uint64_t handle) {
  Holding* physical = find(Holds::kHandle, handle);
  if (physical == nullptr) return;
  const uint64_t number = physical->key;
  if (--physical->handles == 0) table_.remove(table_.find(Holds::kHandle, handle));
  end_if_unused(table_.find(Holds::kPhysical, number));
}

void PhysicalMemory::map(uint64_t handle, uint64_t at, uint64_t bytes) {
  Holding* physical = find(Holds::kHandle, handle);
  if (physical == nullptr) return;
  const uint64_t number = physical->key;
  Holding* mapping = table_.add(Holds::kMapping, at);
  if (mapping == nullptr) return;
  mapping->bytes = bytes;
  mapping->owner = number;
  ++table_.find(Holds::kPhysical, number)->mappings;
}

void PhysicalMemory::unmap(uint64_t at, uint64_t bytes) {
  const uint64_t end = at + bytes;
  while (at < end) {
    Holding* mapping = table_.find(Holds::kMapping, at);
    if (mapping == nullptr || mapping->bytes == 0) return;
    const uint64_t number = mapping->owner;
    at += mapping->bytes;
    table_.remove(mapping);
    Holding* physical = table_.find(Holds::kPhysical, number);
    if (physical == nullptr) continue;
    --physical->mappings;
    end_if_unused(physical);
  }
}

}  // namespace heddle::shim
