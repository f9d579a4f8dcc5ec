// Physical memory of cuMemCreate, in the account's table: it counts once, for as long as a handle
// names it or an address maps it.
//
// Takes no lock and calls no driver: account.cc does both.
#pragma once

#include <cstdint>

#include "shim/memory/table.h"

namespace heddle::shim {

class PhysicalMemory {
 public:
  // `ended` takes freed memory out of the account.
  using Ended = void (*)(int device, uint64_t bytes);
  constexpr PhysicalMemory(HoldingTable& table, Ended ended) : table_(table), ended_(ended) {}

  // If the table has no room to note the memory, it counts no more.
  void create(uint64_t handle, int device, uint64_t bytes);
  // The driver gave `handle`, which may be a new one, for the mapped address `at`.
  void retain(uint64_t handle, uint64_t at);
  void export_as(uint64_t handle, int file);
  // A handle from a file that this process exported names the same memory. Other files are ignored.
  void import_from(uint64_t handle, int file);
  void release(uint64_t handle);
  void map(uint64_t handle, uint64_t at, uint64_t bytes);
  // Unmaps whole, adjacent mappings, as the driver demands.
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
