// SM sets: parts of a device's SMs, as Green Contexts beside its primary context (KRISP section 4:
// kernel-scoped partition instances).
//
// The driver splits a device into groups, alike in every process; an SM set is some of them, and
// the empty one the whole device. A launch on a set makes a detour: what the application's stream
// holds so far is waited for by a stream of the set, which launches and is waited for in turn, so
// that the stream's order is kept, the default stream's too. Each stream has its own stream on each
// set, its lane: two that shared one would wait for each other.
//
// cuGreenCtxCreate waits for the kernels that the process has running, and what the process
// launches meanwhile waits with it: beside a kernel that waits for another launch it would never
// return. So a device's SM sets are made as its primary context comes into being, before anybody
// can launch there, and never later. They are the process's family: the set of the client's rule,
// and the sizes that a policy may keep single launches to. A launch for which the family has no
// exact member goes into the next larger one, or keeps the whole device, counted. Lanes and events
// wait for nothing: a launching thread makes them when it first needs them. Only streams of primary
// contexts have lanes: another context is another address space, and streams of Green Contexts that
// the application made have their SMs already.
//
// A lane that waits takes one of the process's hardware queues, which streams share: what it waits
// for may be behind it, and a program that writes a value for another stream hangs (seen on an H100
// under MPS, where a process has two unless it asks for more; not with 4). Without enough of them
// there is no family: CUDA_DEVICE_MAX_CONNECTIONS, which `heddle run` sets.
#pragma once

#include <time.h>

#include <span>

#include "ipc/sm_set.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// The primary context of a device, nullptr if it is not there.
CUcontext primary_of(CUdevice device);
bool primary_is_active(CUdevice device);

// SMs of each group of a device, in the order of the bits. The number of groups; 0: it has none.
size_t read_groups(CUdevice device, std::span<uint16_t> widths);

// Held while the device's primary context may come into being.
Spin& primary_lock(CUdevice device);

// Makes the family of a device whose primary context has just come into being. The caller makes
// sure that no other thread has that context yet.
void make_family(CUdevice device, CUcontext primary);

// Whether the process has hardware queues enough for lanes, by its environment. At the first
// cuInit.
void count_queues(bool mps);

// The device has a family in use, and this is its primary context.
bool has_family(int device, CUcontext context);
// From now on no launch of the process goes to an SM set. Of a graph of the primary context a
// kernel on an SM set, which is another context, can update no node (cudaErrorInvalidValue, on an
// H200).
void keep_whole_device();
// Which that is, for the next daemon (ipc::pack_made); 0: there is none.
uint64_t made_sets(int device);
// The member that stands in for the set, empty: the whole device.
ipc::SmSet member_for(int device, ipc::SmSet set);
// Of that member, or of the empty set the primary context; nullptr: the driver gives none.
CUcontext context_of(int device, ipc::SmSet member);

// The set of `size` groups within `within` for a client with these words; `within` if there is
// none.
ipc::SmSet size_set(int device, ipc::GroupCount size, const ipc::DeviceTerms& terms,
                    ipc::SmSet within);

// A launch of the stream can be moved to the device's SM sets.
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

// A launch's way to an SM set and back. On the caller's thread, who holds the stream's turn. The
// end of the primary context waits until it is over (EventPermit).
class Detour {
 public:
  // Makes the set's stream wait for `from`. stream() is nullptr if the launch must stay.
  Detour(const Inside& in, StreamSlot& slot, StreamRef from, ipc::SmSet set);
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
  uint32_t place_ = 0;  // of the set in the pool
  CUevent out_ = nullptr;
};

// The stream of the slot ends: its lanes are left to the next, or forgotten if their context is
// `gone`.
void end_lanes(StreamSlot& slot, bool gone);

// The device's primary context is about to go: its Green Contexts, which keep it, go first. No
// thread is on a detour (EventsRest).
void end_sm_sets(CUdevice device);

void forget_sm_sets();  // in a forked child

}  // namespace heddle::shim
