// The two shared memories between one client and the daemon, as fixed layouts.
//
// Control (daemon to client): made by the daemon, mapped, then sealed SHRINK|GROW|FUTURE_WRITE, so
// that the client can map it only for reading. Futex waits work on such a mapping.
// Client (client to daemon): made by the daemon, sealed SHRINK|GROW|SEAL, written by the client.
// The daemon treats it as hostile: cursors of its own, every record copied before it is decoded.
//
// A process may die between any two stores, so there is no mutex here, and no state needs its
// owner to be alive. Atomics are lock-free and address-free; all are zero in a fresh memfd.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/limits.h"
#include "ipc/sm_set.h"
#include "ipc/stop.h"

namespace heddle::ipc {

inline constexpr uint32_t kControlMagic = 0x68646c43;  // "hdlC"

// Which records wake the daemon (ControlMemory::sleeping): the shim rings the doorbell eventfd for
// no others.
enum Sleep : uint32_t {
  kAwake = 0,      // polling: never ring
  kWakeOnAsk = 1,  // only its tickets can change a decision about any client: ring for those
  kWakeOnAny = 2,  // ring for every record
};

// The terms on which the client uses one device.
struct alignas(64) DeviceTerms {
  std::atomic<uint32_t> leased;          // 1: launches have no tickets (ipc/gate.h)
  std::atomic<int32_t> launch_priority;  // CU_LAUNCH_ATTRIBUTE_PRIORITY of launches, 0: none
  std::atomic<uint32_t> sm_set;          // an SmSet, of all launches; empty: the whole device
  // A SetSizes: the sizes of the sets within `sm_set` to which the daemon may keep single launches.
  // Constant while the client is attached; 0: none.
  std::atomic<uint32_t> set_sizes;
  // Where those sets lie (pack_ring). Constant while the client is attached; 0: they are the
  // last groups.
  std::atomic<uint32_t> ring;
  // Device memory (ipc/memory.h); all 0 if there is no limit. The daemon writes `memory_answered`
  // last.
  std::atomic<uint32_t> memory_answered;  // number of the newest MemoryNeed that was answered
  std::atomic<uint64_t> memory_granted;   // bytes that this process may hold here
  std::atomic<uint64_t> memory_limit;     // of all processes of its group, 0: none
  std::atomic<uint64_t> memory_others;    // bytes of that limit that its other processes count for
  std::atomic<uint32_t> memory_verdict;   // a MemoryVerdict
  std::atomic<uint32_t> stop;             // pack_stop (ipc/stop.h)
};
static_assert(sizeof(DeviceTerms) == 64, "later words lie in padding");

// How a MemoryNeed was answered.
enum MemoryVerdict : uint32_t {
  kMemoryGranted = 0,
  kMemoryRefused = 1,
  kMemoryRetry = 2,  // the daemon asked other processes of the group to return unused grants
  kMemoryWait = 3,   // the daemon parks another process of the group (daemon/server/parking.h)
};

// Header::sparse: the client's launch priority.
constexpr uint32_t pack_sparse(int launch_priority) {
  return 0x100u | static_cast<uint8_t>(launch_priority);
}
constexpr int sparse_priority(uint32_t word) { return static_cast<int8_t>(word & 0xff); }

// The slot where a thread waits if its launch cannot wait on the GPU. `granted` is the futex word;
// it equals slot_key() of the launch's ticket once the daemon let that go. The fields before it are
// valid from then until the thread's next ticket.
struct alignas(64) GrantSlot {
  std::atomic<uint32_t> sm_set;          // as in DeviceTerms
  std::atomic<int32_t> launch_priority;  // 0: none; kNoVerdict: `sm_set` is void, too
  std::atomic<uint32_t> granted;
  std::atomic<uint32_t> ring_tail;  // records of this thread that the daemon has taken
};

// The launch path's facts about a kernel on one device.
struct KernelHint {
  std::atomic<float> predicted_us;  // 0: not learned yet
  // A Special (pack_special); 0, tested in one comparison, for a kernel without anything special.
  // A shim that knows no sizes reads all of it as `measure`, and times the kernel now and then.
  std::atomic<uint32_t> special;
};

// What is special about the launches of one kernel.
struct Special {
  uint8_t measure = 0;      // the shim times one launch in so many; 0: now and then
  GroupCount size{};        // of the SM set that the policy wants for the kernel; 0: all
  bool raised = false;      // the kernel has a launch priority of its own:
  int launch_priority = 0;  // -5 to 0

  // The shim changes the launches that the application made.
  constexpr bool changes() const { return size.get() != 0 || raised; }
};
constexpr uint32_t pack_special(Special s) {
  return s.measure | s.size.get() << 8 | uint32_t{s.raised} << 16 |
         uint32_t{static_cast<uint8_t>(s.raised ? s.launch_priority : 0)} << 24;
}
constexpr Special unpack_special(uint32_t word) {
  return {static_cast<uint8_t>(word), GroupCount(word >> 8 & 0xff), (word >> 16 & 1) != 0,
          static_cast<int8_t>(word >> 24)};
}

// Hints by the client's kernel index.
struct DeviceHints {
  KernelHint kernels[kKernels];
};

struct ControlMemory {
  struct alignas(64) Header {
    uint32_t magic;
    uint32_t version;
    std::atomic<int64_t> heartbeat_ns;    // the client's clock, every kHeartbeatPeriodNs
    std::atomic<uint32_t> bypass;         // nonzero: launch freely
    std::atomic<uint32_t> starvation_ms;  // longest wait at a ticket
    std::atomic<uint32_t> spin_us;        // how long a waiter polls before it sleeps
    std::atomic<uint32_t> contended;      // nonzero: a less important client waits: report finely
    std::atomic<uint32_t> unobserved;     // nonzero: only this client works: no launch records
    std::atomic<uint32_t> sparse;         // nonzero: few launch records (pack_sparse, ipc/sparse.h)
    std::atomic<uint32_t> away;           // nonzero: its memory is parked, and its calls wait
  } header;
  alignas(64) std::atomic<uint32_t> sleeping;  // a Sleep; written with each nap: its own line
  std::atomic<uint32_t> naps;                  // this nap's number; 0: a daemon that counts none
  std::atomic<uint32_t> stop_order;            // ipc/stop.h
  DeviceTerms devices[kDevices];
  GrantSlot grants[kThreads];
  DeviceHints hints[kDevices];  // by device
};

// One per launching thread. The first line holds all that the daemon polls.
struct ThreadBlock {
  alignas(64) std::atomic<uint32_t> ring_head;  // records published; slot = head % kRingRecords
  std::atomic<uint32_t> waiting;  // nonzero: in FUTEX_WAIT on GrantSlot::granted, to be woken
  std::atomic<uint32_t> dropped;  // records that found the ring full
  // These are not the thread's but the process's, on the device with this block's number:
  std::atomic<uint64_t> memory_used;                    // device memory that it holds, in bytes
  std::atomic<uint64_t> memory_refused;                 // allocations that its limit refused
  std::atomic<uint32_t> stop_able, stop_done, stop_us;  // ipc/stop.h
  std::atomic<uint32_t> memory_wanted;  // block 0: how often a call waited for parked memory
  alignas(64) std::byte ring[kRingRecords][kRecordBytes];
};

struct ClientMemory {
  struct alignas(64) Counters {
    std::atomic<uint32_t> threads_used;  // high-water mark of ThreadBlocks, at most kThreads
    // For `heddle ps`: the daemon shows these counters, and bases no decision on them.
    std::atomic<uint32_t> twin_launches;  // of `launches`, graphs that ran as their twin
    std::atomic<uint64_t> launches;       // all but those counted in `self`
    std::atomic<uint64_t> self[16];       // by Admission: launches that did not wait for a grant
    std::atomic<uint64_t> marker_errors;
    std::atomic<uint64_t> on_sm_set;   // launches meant for an SM set that ran on it,
    std::atomic<uint64_t> off_sm_set;  // and that did not (reasons: shim/DETAILS.md)
    std::atomic<uint64_t> unobserved;  // of `launches`, those without a record
    std::atomic<uint64_t>
        green_streams;  // of Green Contexts that the application made: never moved
    // Executable graphs by the outcome of their twins, a byte each, 255 at most (shim/sm/twins.h).
    // The eighth byte: checks of the shim that failed (shim/link/check.h).
    std::atomic<uint64_t> graphs;
  } counters;
  ThreadBlock threads[kThreads];
};

// The daemon's answer to wire::Attach: one packet of exactly this, with four descriptors when
// managed, in this order: control memfd, client memfd, doorbell eventfd, gate page's memfd.
struct Attached {
  uint32_t magic = kControlMagic;
  uint32_t version = kProtocolVersion;
  uint32_t managed = 0;   // 0: launch freely, see reason
  uint32_t priority = 0;  // the effective one
  uint64_t client_id = 0;
  char rule[128] = {};    // the rule that gave the priority
  char reason[252] = {};  // why not managed, with the remedy
  uint32_t flags = 0;     // kFailClosed, kStreamsWait
};

// The administrator's rule: without a daemon the client launches nothing.
inline constexpr uint32_t kFailClosed = 1;
// The client's launches may wait on the GPU (ipc/gate.h); else each waits in its thread.
inline constexpr uint32_t kStreamsWait = 2;

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<float>::is_always_lock_free);
static_assert(sizeof(ClientMemory::Counters) == 3 * 64, "programs that run survive an upgrade");
static_assert(sizeof(GrantSlot) == 64 && sizeof(DeviceTerms) == 64);
static_assert(kDevices <= kThreads && offsetof(ThreadBlock, ring) == 64);

}  // namespace heddle::ipc
