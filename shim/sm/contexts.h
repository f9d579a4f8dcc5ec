// SM sets: parts of a device's SMs, as Green Contexts beside its primary context (KRISP section 4:
// kernel-scoped partition instances).
//
// The driver splits a device into groups, the same ones in every process. An SM set is some of
// these groups, and the empty set is the whole device. A launch on a set makes a detour through a
// lane, a stream of that set: the lane waits for the application's stream, launches, and the
// application's stream waits for the lane. So the stream's order is kept, also that of the default
// stream. Each stream has a lane of its own on each set: streams that shared a lane would wait for
// each other.
//
// cuGreenCtxCreate waits for the kernels that the process has running, and launches meanwhile wait
// with it. If a running kernel waits for another launch, the call never returns. So a device's SM
// sets are made when its primary context comes into being, before any thread can launch there, and
// never later. They are the process's family: the set of the client's rule, and the sizes to which
// a policy may keep single launches. A launch without an exact member goes into the next larger
// one, or keeps the whole device, and is counted. Making lanes and events waits for nothing: a
// launching thread makes them when it first needs them. Only streams of primary contexts have
// lanes: another context is another address space, and streams of Green Contexts that the
// application made have their SMs already.
//
// A waiting lane takes one of the process's hardware queues, which streams share. The work that the
// lane waits for may be behind it in that queue: a program that writes a value for another stream
// hung on an H100 under MPS with two queues, the default there, but not with 4. So a process with
// fewer than 4 has no family (CUDA_DEVICE_MAX_CONNECTIONS, which `heddle run` sets).
#pragma once

#include <time.h>

#include <span>

#include "ipc/sm_set.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// The primary context of a device; nullptr if it is not active.
CUcontext primary_of(CUdevice device);
bool primary_is_active(CUdevice device);

// SMs of each group of a device, in the order of the bits. The number of groups; 0: it has none.
size_t read_groups(CUdevice device, std::span<uint16_t> widths);

// Held while the device's primary context may come into being.
Spin& primary_lock(CUdevice device);

// Makes the family of a device whose primary context has just come into being. The caller ensures
// that no other thread has that context yet.
void make_family(CUdevice device, CUcontext primary);

// Finds out from the environment whether the process has enough hardware queues for lanes. Called
// at the first cuInit.
void count_queues(bool mps);

// Whether the device has a family in use, and `context` is its primary context.
bool has_family(int device, CUcontext context);
// From now on no launch of the process goes to an SM set. For processes whose kernels update graph
// nodes: a kernel on an SM set runs in another context, and cannot update a node of a graph of the
// primary context (cudaErrorInvalidValue on an H200).
void keep_whole_device();
// The family's sets, for the next daemon (ipc::pack_made); 0: there is none.
uint64_t made_sets(int device);
// The smallest member that holds the set; empty: the launch keeps the whole device.
ipc::SmSet member_for(int device, ipc::SmSet set);
// The context of that member, or the primary context for an empty one; nullptr: there is none.
CUcontext context_of(int device, ipc::SmSet member);

// The set of `size` groups within `within` for a client with these terms; `within` if there is no
// such set.
ipc::SmSet size_set(int device, ipc::GroupCount size, const ipc::DeviceTerms& terms,
                    ipc::SmSet within);

// Whether launches of the stream can be moved to the device's SM sets now.
bool has_lanes(const StreamSlot& slot);

// Record an event in a stream, and have a stream wait for one. False: the driver refused.
bool record(CUevent event, StreamRef stream);
bool await(StreamRef stream, CUevent event);

// After a tie failed: polls until `done`, for a second at most. A call that waits in the driver
// would never return if the work waited for this thread's next launch.
template <class Done>
void look_until(Done&& done) {
  constexpr int64_t kPatienceNs = 1'000'000'000;
  const timespec pause{0, 20'000};
  for (const int64_t until = now_ns() + kPatienceNs; now_ns() < until && !done();) {
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
}

// A launch's way to an SM set and back, on the launching thread, which holds the stream's turn. The
// end of the primary context waits until the detour is over (EventPermit).
class Detour {
 public:
  // Makes the lane wait for `from`. stream() is nullptr if the launch must stay in `from`.
  Detour(const Inside& in, StreamSlot& slot, StreamRef from, ipc::SmSet set);
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  CUstream stream() const { return lane_; }

  // Makes `from` wait for the work in stream(). False: the driver refused. Then the calling thread
  // has polled until that work was done, for a second at most, and the stream uses no lane for a
  // while.
  bool back();

 private:
  const EventPermit permit_;
  StreamSlot& slot_;
  const StreamRef from_;
  CUstream lane_ = nullptr;
  uint32_t place_ = 0;  // of the set in the family
  CUevent out_ = nullptr;
};

// The stream of the slot ends: its lanes are kept for other streams, or forgotten if their context
// is `gone`.
void end_lanes(StreamSlot& slot, bool gone);

// The device's primary context is about to end: its Green Contexts, which hold it, end first. No
// thread may be on a detour (EventsRest).
void end_sm_sets(CUdevice device);

void forget_sm_sets();  // in a forked child

}  // namespace heddle::shim
