#include "shim/memory/physical.h"

#include <fcntl.h>
#include <unistd.h>

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

void PhysicalMemory::drop_references(uint64_t number, uint32_t count) {
  Holding* physical = table_.find(Holds::kPhysical, number);
  if (physical == nullptr) return;
  physical->handles -= count;
  end_if_unused(physical);
}

// Adds a reference by the handle to that memory. False: the table has no room to note it.
bool PhysicalMemory::name(uint64_t handle, uint64_t number) {
  Holding* names = table_.add(Holds::kHandle, handle);
  if (names == nullptr) return false;
  ++table_.find(Holds::kPhysical, number)->handles;
  if (names->owner == number) return ++names->handles, true;
  const Holding before = *names;  // empty, or an older use of the handle whose end was not seen
  names->owner = number;
  names->handles = 1;
  drop_references(before.owner, before.handles);
  return true;
}

void PhysicalMemory::create(uint64_t handle, int device, uint64_t bytes) {
  const uint64_t number = ++created_;
  Holding* physical = table_.add(Holds::kPhysical, number);
  if (physical == nullptr) return ended_(device, bytes);
  physical->device = static_cast<uint8_t>(device);
  physical->bytes = bytes;
  if (!name(handle, number)) end_if_unused(table_.find(Holds::kPhysical, number));
}

void PhysicalMemory::retain(uint64_t handle, uint64_t at) {
  uint64_t number = 0;
  table_.for_each([&](const Holding& holding) {
    if (holding.kind == Holds::kMapping && at - holding.key < holding.bytes) number = holding.owner;
  });
  if (number != 0) name(handle, number);
}

// F_SETOWN marks the file with the process that exported it. The mark lasts while the file is open
// anywhere. A duplicate of the descriptor would keep the file open, and with it the memory. The
// descriptor's number alone would not do: after a close it may soon be another process's export.
void PhysicalMemory::export_as(uint64_t handle, int file) {
  const Holding* physical = find(Holds::kHandle, handle);
  if (physical == nullptr || fcntl(file, F_SETOWN, getpid()) != 0) return;
  const uint64_t number = physical->key;
  Holding* exported = table_.add(Holds::kExport, static_cast<uint64_t>(file));
  if (exported != nullptr) exported->owner = number;
}

void PhysicalMemory::import_from(uint64_t handle, int file) {
  if (fcntl(file, F_GETOWN) != getpid()) return;
  const Holding* physical = find(Holds::kExport, static_cast<uint64_t>(file));
  if (physical != nullptr) name(handle, physical->key);
}

void PhysicalMemory::release(uint64_t handle) {
  Holding* names = table_.find(Holds::kHandle, handle);
  if (names == nullptr) return;
  const uint64_t number = names->owner;
  if (--names->handles == 0) table_.remove(names);
  drop_references(number, 1);
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
