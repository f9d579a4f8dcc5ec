// Physical memory of cuMemCreate, in the account's table: it counts once, for as long as a handle
// names it or an address maps it.
//
// No lock, and no call of the driver: the caller's (account.cc).
#pragma once

#include <cstdint>

#include "shim/memory/table.h"

namespace heddle::shim {

class PhysicalMemory {
 public:
  // `ended` takes what is no more out of the account.
  using Ended = void (*)(int device, uint64_t bytes);
  constexpr PhysicalMemory(HoldingTable& table, Ended ended) : table_(table), ended_(ended) {}

  // Where there is no room to note it, it counts no more.
  void create(uint64_t handle, int device, uint64_t bytes);
  // Its driver's answer for an address that is mapped, which may be a new handle.
  void retain(uint64_t handle, uint64_t at);
  void export_as(uint64_t handle, int file);
  // From a file that this process exported it names the same memory; other files are of others'.
  void import_from(uint64_t handle, int file);
  void release(uint64_t handle);
  void map(uint64_t handle, uint64_t at, uint64_t bytes);
  // Whole mappings, one behind the other, as the driver demands.
  void unmap(uint64_t at, uint64_t bytes);

 private:
  Holding* find(Holds kind, uint64_t key);
  bool name(uint64_t handle, uint64_t number);
  void drop_references(uint64_t number, uint32_t count);
  void end_if_unused(Holding* physical);

  HoldingTable& table_;
  const Ended ended_;
  uint64_t created_ = 0;
};

}  // namespace heddle::shim
