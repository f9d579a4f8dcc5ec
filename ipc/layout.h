// The two shared memories between one client and the daemon, as fixed layouts.
//
// Control (daemon to client): made by the daemon, mapped, then sealed SHRINK|GROW|FUTURE_WRITE, so
// that the client can map it only for reading; futex waits work there.
// Client (client to daemon): made by the daemon, sealed SHRINK|GROW|SEAL, written by the client.
// The daemon treats it as hostile: cursors of its own, every record copied before it is decoded.
//
// Nothing here is a mutex, and no state needs its owner to be alive: a process may die between any
// two stores. Atomics are lock-free and address-free; all are zero in a fresh memfd.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/limits.h"
#include "ipc/sm_set.h"
#include "ipc/stop.h"

namespace heddle::ipc {

inline constexpr uint32_t kControlMagic = 0x68646c43;  // "hdlC"

// How much the daemon wants to be woken (ControlHeader::sleeping). The shim rings the doorbell
// eventfd only for these.
enum Sleep : uint32_t {
  kAwake = 0,      // polling: never ring
  kWakeOnAsk = 1,  // nothing this client does can change another's fate: ring for tickets
  kWakeOnAny = 2,  // ring for every record
};

// Of the client on one device.
struct alignas(64) DeviceTerms {
  std::atomic<uint32_t> leased;          // 1: launches have no tickets (ipc/gate.h)
  std::atomic<int32_t> launch_priority;  // CU_LAUNCH_ATTRIBUTE_PRIORITY of launches, 0: none
  std::atomic<uint32_t> sm_set;          // an SmSet, of all launches; empty: the whole device
  // A SetSizes: single launches may be kept to a set of so many groups within `sm_set`. Constant
  // while the client is attached; 0: none.
  std::atomic<uint32_t> set_sizes;
  // Where those sets lie (pack_ring). Constant while the client is attached; 0: they are the
  // last groups.
  std::atomic<uint32_t> ring;
  // Device memory (ipc/memory.h); all 0 where there is no limit. Written when they change,
  // `memory_answered` last.
  std::atomic<uint32_t> memory_answered;  // the newest MemoryNeed that was answered, by its number
  std::atomic<uint64_t> memory_granted;   // bytes that this process may hold here
  std::atomic<uint64_t> memory_limit;     // of all processes of its group, 0: none
  std::atomic<uint64_t> memory_others;    // what counts of that besides this process's own use
  std::atomic<uint32_t> memory_verdict;   // a MemoryVerdict
  std::atomic<uint32_t> stop;             // pack_stop (ipc/stop.h)
};
static_assert(sizeof(DeviceTerms) == 64, "later words lie in padding");

// How a MemoryNeed was answered.
enum MemoryVerdict : uint32_t {
  kMemoryGranted = 0,
  kMemoryRefused = 1,
  kMemoryRetry = 2,  // others of the group were asked for what they hold and do not use
};

// Header::sparse: the client's launch priority.
constexpr uint32_t pack_sparse(int launch_priority) {
  return 0x100u | static_cast<uint8_t>(launch_priority);
}
constexpr int sparse_priority(uint32_t word) { return static_cast<int8_t>(word & 0xff); }

// Where a thread waits whose launch cannot wait on the GPU. `granted` is the futex word and equals
// slot_key() of the launch's ticket once that is let go; the fields before it are valid then, until
// the thread's next ticket.
struct alignas(64) GrantSlot {
  std::atomic<uint32_t> sm_set;          // as those of DeviceTerms
  std::atomic<int32_t> launch_priority;  // 0: none; kNoVerdict: nor is the set one
  std::atomic<uint32_t> granted;
  std::atomic<uint32_t> ring_tail;  // records of this thread that the daemon has taken
};

// What the launch path knows of a kernel on one device.
struct KernelHint {
  std::atomic<float> predicted_us;  // 0: not learned yet
  // pack_special: 0 of a kernel that is like all others, so that one look tells. A shim that knows
  // no sizes takes the whole for `measure`, and times the kernel now and then.
  std::atomic<uint32_t> special;
};

// What is special about the launches of one kernel.
struct Special {
  uint8_t measure = 0;      // one launch in so many is to be timed; 0: now and then
  GroupCount size{};        // of the SM set that the policy wants for it; 0: all
  bool raised = false;      // it has a launch priority of its own:
  int launch_priority = 0;  // -5 to 0

  // Its launches are other than the application made them.
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

// By the client's kernel index.
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
    std::atomic<uint32_t> contended;      // nonzero: someone less important waits: report finely
    std::atomic<uint32_t> unobserved;     // nonzero: alone at work, launches need no record
    std::atomic<uint32_t> sparse;         // nonzero: few launches do (pack_sparse, ipc/sparse.h)
  } header;
  alignas(64) std::atomic<uint32_t> sleeping;  // a Sleep; written with each nap: its own line
  std::atomic<uint32_t> naps;                  // this nap's number; 0: of a daemon without any
  std::atomic<uint32_t> stop_order;            // ipc/stop.h
  DeviceTerms devices[kDevices];
  GrantSlot grants[kThreads];
  DeviceHints hints[kDevices];  // by device
};

// One per launching thread. The first line holds all that the daemon polls.
struct ThreadBlock {
  alignas(64) std::atomic<uint32_t> ring_head;  // records published; slot = head % kRingRecords
  std::atomic<uint32_t> waiting;  // nonzero: in FUTEX_WAIT on GrantSlot::granted, wake it
  std::atomic<uint32_t> dropped;  // records that found the ring full
  // Of this process on the device with this block's number, whichever thread it is:
  std::atomic<uint64_t> memory_used;                    // device memory that it holds, in bytes
  std::atomic<uint64_t> memory_refused;                 // allocations that its limit refused
  std::atomic<uint32_t> stop_able, stop_done, stop_us;  // ipc/stop.h
  alignas(64) std::byte ring[kRingRecords][kRecordBytes];
};

struct ClientMemory {
  struct alignas(64) Counters {
    std::atomic<uint32_t> threads_used;  // high-water mark of ThreadBlocks, at most kThreads
    // For `heddle ps`: read, never believed for a decision.
    std::atomic<uint32_t> twin_launches;  // of `launches`, graphs that ran as their twin
    std::atomic<uint64_t> launches;       // all but those of `self`
    std::atomic<uint64_t> self[16];       // by Admission: launches that did not wait for a grant
    std::atomic<uint64_t> marker_errors;
    std::atomic<uint64_t> on_sm_set;   // launches that are to be on an SM set: on it,
    std::atomic<uint64_t> off_sm_set;  // or for some reason not (shim/DETAILS.md)
    std::atomic<uint64_t> unobserved;  // of `launches`, those without a record
    std::atomic<uint64_t>
        green_streams;  // of Green Contexts that the application made: never moved
    // Executable graphs by what became of them, a byte each, 255 at most (shim/sm/twins.h). The
    // eighth: checks of the shim that failed (shim/link/check.h).
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

// The administrator wants no launch of this client without a daemon's word.
inline constexpr uint32_t kFailClosed = 1;
// Its launches may wait on the GPU (ipc/gate.h); else each waits in its thread.
inline constexpr uint32_t kStreamsWait = 2;

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<float>::is_always_lock_free);
static_assert(sizeof(ClientMemory::Counters) == 3 * 64, "programs that run survive an upgrade");
static_assert(sizeof(GrantSlot) == 64 && sizeof(DeviceTerms) == 64);
static_assert(kDevices <= kThreads && offsetof(ThreadBlock, ring) == 64);

}  // namespace heddle::ipc
