// Partitions: parts of a device's SMs, as Green Contexts beside its primary context (KRISP section
// 4: kernel-scoped partition instances; DESIGN, "Partitions").
//
// The driver splits a device into groups, alike in every process; a partition is a set of them, a
// bit each, and 0 the whole device. A launch into a partition makes a detour: what the
// application's stream holds so far is waited for by a stream of the partition, which launches and
// is waited for in turn, so that the stream's order is kept, the default stream's too. Each stream
// has its own stream in each partition, its lane: two that shared one would wait for each other.
//
// The helper thread makes Green Contexts and lanes when a launch first wants them; until then, and
// where the driver has none, launches stay on their own stream, counted. Only streams of primary
// contexts have lanes: another context is another address space.
#pragma once

#include <span>

#include "shim/inside.h"
#include "shim/streams.h"

namespace heddle::shim {

// The primary context of a device, nullptr if it is not there.
CUcontext primary_of(CUdevice device);
bool primary_is_active(CUdevice device);

// SMs of each group of a device, in the order of the bits. The number of groups; 0: it has none.
size_t read_groups(CUdevice device, std::span<uint16_t> sms);

// False while a launch of the stream cannot be moved into each partition that the device's launches
// have: one that the process never had before counts as if it could. The helper makes what lacks.
bool has_lanes(StreamSlot& slot);

// A launch's way into a partition and back. On the caller's thread, without lock or allocation.
// Captures wait until it is over (EventPermit), and so does the end of the primary context.
class Detour {
 public:
  // Makes the partition's stream wait for `from`. stream() is nullptr if the launch must stay.
  Detour(const Inside& in, StreamSlot& slot, StreamRef from, uint32_t groups);
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  CUstream stream() const { return lane_; }

  // Makes `from` wait for what was launched into stream(). If the driver refuses, the calling
  // thread waits, and the stream gets no detour any more; false.
  bool back();

 private:
  const EventPermit permit_;
  StreamSlot& slot_;
  const StreamRef from_;
  CUstream lane_ = nullptr;
  uint32_t place_ = 0;  // of the partition in the pool
  CUevent out_ = nullptr;
};

// Helper thread: makes what launches wanted. Returns at once if they wanted nothing.
void make_lanes();

// The stream of the slot ends: its lanes are destroyed, or forgotten if their context is `gone`.
void end_lanes(StreamSlot& slot, bool gone);

// The device's primary context is about to go: its Green Contexts, which keep it, go first. No
// thread is on a detour (EventsRest).
void end_partitions(CUdevice device);

void forget_partitions();  // in a forked child

}  // namespace heddle::shim
