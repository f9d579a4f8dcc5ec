// What the simulated driver (in each client process) and the owner of the simulated GPU share: one
// memory region and one device heap per client, both memfds that the owner makes.
//
// A client writes commands into one ring (under a process-wide mutex) and reads completions from
// words that the owner writes: launching and asking need no system call. The owner is woken by an
// eventfd, and only when it sleeps and could not have found the command by itself: work behind
// unfinished work of the same stream is found when that finishes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>

#include "daemon/sim/gpu_model.h"

namespace heddle::sim {

inline constexpr uint32_t kWireMagic = 0x68646c04;
inline constexpr uint32_t kWireStreams = 1024;  // stream slots of one client
inline constexpr uint32_t kOrders = kWireStreams;
inline constexpr uint32_t kWireRing = 4096;     // commands, a power of two
inline constexpr uint32_t kWireTimings = 8192;  // timing events alive at once
inline constexpr uint32_t kWireKernels = 64;    // distinct kernel names of one client
inline constexpr uint32_t kNoTiming = 0xffffffff;
inline constexpr uint64_t kHeapBytes = uint64_t{1} << 30;  // device memory of one client, sparse
// Entries of one stream that may be outstanding; then the launching call waits, as on an H100.
inline constexpr uint64_t kStreamDepth = 1020;

// The demo kernel's arithmetic: state = state * kStateFactor + value. A lost, doubled or reordered
// launch gives another result (the multiplier is odd, so that no step forgets the ones before).
inline constexpr uint64_t kStateFactor = 6364136223846793005ULL;

enum class CommandKind : uint8_t {
  kOpenStream,  // no operation: (re)opens the slot, which is drained, with `priority`
  kKernel,      // `state` != kNoHeap: the word there becomes word * kStateFactor + value
  kCopy,        // heap to heap
  kFill,        // `bytes` of heap with `value`, `width` bytes wide
  kMarker,
  kMeet,  // a kernel that ends when `bytes` of them with the same `value` have started
  // Orders of the stream kOrders, which is no stream of the model: they are carried out one at a
  // time over all clients, and done when the call that gave one would return.
  kSlice,  // the client's, `value` ns
  kStop,
  kGoOn,
  kCheckpoint,  // at once: the process `bytes` has the state `value` from now on; the answer at dst
};

// Of kCheckpoint. An answer is the state, and kBusy while the process has work or is in a call.
inline constexpr uint64_t kOnlyAsk = ~uint64_t{0}, kNobody = ~uint64_t{0}, kBusy = 1 << 8;

// The GPU's one split: groups of facts::kGroupSms SMs, and one more of what is left.
inline constexpr uint32_t kAllGroups = (2U << facts::kGroups) - 1;

constexpr uint32_t sms_of(uint32_t groups) {
  constexpr uint32_t kRest = facts::kSmCount - facts::kGroups * facts::kGroupSms;
  const uint32_t whole = groups & (kAllGroups >> 1);
  return static_cast<uint32_t>(std::popcount(whole)) * facts::kGroupSms +
         (whole != groups ? kRest : 0);
}

inline constexpr uint64_t kNoHeap = ~uint64_t{0};

struct Command {
  CommandKind kind = CommandKind::kMarker;
  uint8_t width = 0;
  uint16_t stream = 0;
  uint16_t after_stream = 0;
  uint16_t name = 0;  // index into ClientRegion::names
  int32_t priority = 0;
  uint32_t timing = kNoTiming;
  uint64_t seq = 0;        // of this stream, from 1
  uint64_t after_seq = 0;  // 0: waits for nothing
  int64_t submitted_ns = 0;
  uint64_t dst = kNoHeap;  // heap offsets
  uint64_t src = kNoHeap;
  uint64_t bytes = 0;
  uint64_t value = 0;
  KernelShape kernel{};
  uint32_t groups = 0;  // the SM groups that the kernel may run on, a bit each
};

struct StreamWords {
  std::atomic<uint64_t> done;     // everything up to here is complete
  std::atomic<uint32_t> wake;     // futex word, moves with every completion
  std::atomic<uint32_t> waiting;  // threads in FUTEX_WAIT on it
};

struct ClientRegion {
  uint32_t magic;
  bool mps;                                // kernels of several clients overlap
  alignas(64) std::atomic<uint32_t> head;  // commands published
  alignas(64) std::atomic<uint32_t> tail;  // commands taken
  alignas(64) std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> checkpoint;            // a CUprocessState; but for 0, running, calls wait
  std::atomic<uint32_t> inside;                // calls of the driver that have begun
  StreamWords streams[kWireStreams + 1];       // and kOrders
  std::atomic<int64_t> timings[kWireTimings];  // written before the stream's `done`
  std::atomic<uint32_t> names_used;
  char names[kWireKernels][64];
  std::atomic<uint32_t> unsupported[1024];  // refused calls, by position in entry_points.inc
  Command ring[kWireRing];
};

// The client's first packet. The owner answers with one byte and three descriptors: region memfd,
// heap memfd, doorbell eventfd.
struct Hello {
  uint32_t magic = kWireMagic;
  char label[64] = {};
  uint32_t sm_limit = 0;  // SMs' worth of room that its kernels may take; 0: of all
};

inline int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

}  // namespace heddle::sim
