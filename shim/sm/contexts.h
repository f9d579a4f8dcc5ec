// Partitions: parts of a device's SMs, as Green Contexts beside its primary context (KRISP section
// 4: kernel-scoped partition instances).
//
// The driver splits a device into groups, alike in every process; a partition is a set of them, a
// bit each, and 0 the whole device. A launch into a partition makes a detour: what the
// application's stream holds so far is waited for by a stream of the partition, which launches and
// is waited for in turn, so that the stream's order is kept, the default stream's too. Each stream
// has its own stream in each partition, its lane: two that shared one would wait for each other.
//
// cuGreenCtxCreate waits for the kernels that the process has running, and what the process
// launches meanwhile waits with it: beside a kernel that waits for another launch it would never
// return. So a device's partitions are made as its primary context comes into being, before anybody
// can launch there, and never later. They are the process's family: the partition of the client's
// rule, and the sizes that a policy may keep single launches to. A launch for which the family has
// no exact member goes into the next larger one, or keeps the whole device, counted. Lanes and
// events wait for nothing: a launching thread makes them when it first needs them. Only streams of
// primary contexts have lanes: another context is another address space, and streams of Green
// Contexts that the application made have their SMs already.
//
// A lane that waits takes one of the process's hardware queues, which streams share: what it waits
// for may be behind it, and a program that writes a value for another stream hangs (seen on an H100
// under MPS, where a process has two unless it asks for more; not with 4). Without enough of them
// there is no family: CUDA_DEVICE_MAX_CONNECTIONS, which `heddle run` sets.
#pragma once

#include <time.h>

#include <span>

#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// The primary context of a device, nullptr if it is not there.
CUcontext primary_of(CUdevice device);
bool primary_is_active(CUdevice device);

// SMs of each group of a device, in the order of the bits. The number of groups; 0: it has none.
size_t read_groups(CUdevice device, std::span<uint16_t> sms);

// Held while the device's primary context may come into being.
Spin& primary_lock(CUdevice device);

// Makes the family of a device whose primary context has just come into being. The caller makes
// sure that no other thread has that context yet.
void make_family(CUdevice device, CUcontext primary);

// Whether the process has hardware queues enough for lanes, by its environment. At the first
// cuInit.
void count_queues(bool mps);

// The device has a family, and this is its primary context.
bool has_family(int device, CUcontext context);
// The groups of the member that stands in for these, 0: the whole device.
uint32_t member_for(int device, uint32_t groups);
// Of that member, or with 0 the primary context; nullptr: the driver gives none.
CUcontext context_of(int device, uint32_t member);

// The set of `size` groups within `kept` for a client with these words; `kept` if there is none.
uint32_t size_set(int device, uint32_t size, const ipc::DeviceWindow& window, uint32_t kept);


// A launch of the stream can be moved into the device's partitions.
bool has_lanes(const StreamSlot& slot);

// Events that tie streams together; false: the driver refused.
bool record(CUevent event, StreamRef stream);
bool await(StreamRef stream, CUevent event);

// Where a tie failed: looks until `done`, for a second at most. Without a call that waits in the
// driver, which would never return if that work waited for this thread's next launch.
template <class Done>
void look_until(Done&& done) {
  constexpr int64_t kPatienceNs = 1'000'000'000;
  const timespec pause{0, 20'000};
  for (const int64_t until = now_ns() + kPatienceNs; now_ns() < until && !done();) {
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
}

// A launch's way into a partition and back. On the caller's thread, who holds the stream's turn.
// Captures wait until it is over (EventPermit), and so does the end of the primary context.
class Detour {
 public:
  // Makes the partition's stream wait for `from`. stream() is nullptr if the launch must stay.
  Detour(const Inside& in, StreamSlot& slot, StreamRef from, uint32_t groups);
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  CUstream stream() const { return lane_; }

  // Makes `from` wait for what was launched into stream(). If the driver refuses, the calling
  // thread looks until that is done, for a second at most, and the stream stays where it is for a
  // while; false.
  bool back();

 private:
  const EventPermit permit_;
  StreamSlot& slot_;
  const StreamRef from_;
  CUstream lane_ = nullptr;
  uint32_t place_ = 0;  // of the partition in the pool
  CUevent out_ = nullptr;
};

// The stream of the slot ends: its lanes are left to the next, or forgotten if their context is
// `gone`.
void end_lanes(StreamSlot& slot, bool gone);

// The device's primary context is about to go: its Green Contexts, which keep it, go first. No
// thread is on a detour (EventsRest).
void end_partitions(CUdevice device);

void forget_partitions();  // in a forked child

}  // namespace heddle::shim
