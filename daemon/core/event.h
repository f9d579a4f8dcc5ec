// Events, the input of the scheduler core. One plain struct, trivially copyable, so that a
// recording is the bytes of its events. daemon/server makes them from clients' records, which it
// copies and checks; the virtual-time simulator and tests make them, too.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "daemon/model/sm_groups.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// CLOCK_MONOTONIC in nanoseconds, or virtual time. The core never reads a clock.
using TimeNs = int64_t;

inline constexpr TimeNs kSecondNs = 1'000'000'000;
inline constexpr TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }
inline constexpr double to_us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

using ClientId = uint64_t;  // unique for the life of the daemon, never 0

inline constexpr uint16_t kEventVersion = 1;
inline constexpr uint32_t kUnknownKernel = 0xffffffff;
inline constexpr uint16_t kEveryStream = 0xffff;
// Thread numbers from here on name no thread, but the client's tickets for one of its devices
// (ipc/gate.h): ipc::kThreads + device.
inline constexpr uint16_t kTicketThreads = 64;
inline constexpr int kPriorityCount = 10;  // Q0 (highest) to Q9 (lowest), FIKIT section 3.2
inline constexpr int kPriorityLowest = kPriorityCount - 1;

// How a client may launch, from the least to the most.
enum class Allowance : uint8_t {
  kGated,   // each unit has a ticket, and waits for its grant
  kOpen,    // each unit has a ticket, and goes; work that has not begun can be held at any time
  kLeased,  // units have no tickets
};

enum class EventKind : uint16_t {
  kAttached,    // body: attached
  kDetached,    // the process ended, or detached
  kKernel,      // body: kernel; a kernel ID is first seen at a client
  kPosted,      // body: launch; it was launched, or is about to be, without a grant
  kAsked,       // body: launch, with ticket `ask_seq`; the client's oldest held unit
  kWithdrawn,   // body: launch.ask_seq; that unit is not held any more: it asks again, or is posted
  kWaiting,     // body: done.stream; a thread entered a synchronizing call
  kCompleted,   // body: done
  kStreamEnd,   // body: done.stream
  kTick,        // nothing but time
  kProfile,     // body: profile; an earlier measurement of a kernel ID
  kUnobserved,  // body: untold; the client is at work, and has no records of launches from now on
  kObserved,    // body: untold; its launches have records again
  kRow,         // body: untold; launches of a thread in a row, before the next recorded one
  kTerms,       // body: terms; the rules give the client other terms from now on
  kRecalled,   // body: launch, its stream, stream_seq and thread; a running graph stopped at a gate
               // inside. It asks again, with the same stream_seq
  kGatesLeft,  // the client's gates stand open for good, and none of its launches is held any more
  kNodes,      // body: nodes; the kernels inside a graph, after its kKernel and theirs
  kStops,      // body: stop; whether the client can be stopped, and what its shim carried out
  kMemory,     // body: memory; how much device memory the client has, and where that is
};

enum class LaunchKind : uint8_t { kKernel, kGraph, kCopy, kMemset };

// Why a launch went, or how it is held. Mirrors wire::Admission.
enum class Admission : uint8_t {
  kLease,
  kGated,  // its stream waits on the GPU. Posted when it may have begun, at `at`
  kAsk,    // its thread waits
  kSelfStarved,
  kSelfStale,
  kSelfPool,
  kSelfCapturing,
  kSelfExempt,
  kBypass,
  kUnmanaged,
};

enum class Evidence : uint8_t { kNone, kSynchronized, kMarker, kFailed };

// The most that a client may use of each channel beside others: a mean, as a part of the channel's
// peak (ceiling.h). 0: no limit.
struct ChannelMax {
  float issue, l2, dram;
  bool operator==(const ChannelMax&) const = default;
};

// The promise of how much others may slow a client's runs (budget.h, tail.h): the mean, and the
// 99th percentile. 1.1: by a tenth; 0: no promise.
struct SlowdownMax {
  float mean = 0, p99 = 0;
  bool any() const { return mean > 0 || p99 > 0; }
  bool operator==(const SlowdownMax&) const = default;
};

// The parts of its GPU's time that a client is to get beside others (request), and may get at most
// (limit), by its rule. Policies read both. 0: none.
struct Compute {
  float request = 0, limit = 0;
  bool any() const { return request > 0 || limit > 0; }
  bool operator==(const Compute&) const = default;
};

// The part of the GPU's time that a client had over the last 1, 10 and 60 seconds.
using GotParts = std::array<double, 3>;

struct AttachedBody {
  uint64_t task;  // hash of label, executable and arguments: with the uid, the key of statistics
  uint32_t profile_runs;  // runs in the task's profile (kProfile); 0: there is none, measure it
  uint32_t pid;
  uint32_t uid;
  float share;   // weight among equals, 1 unless set
  float slo_ms;  // 0: none
  Compute compute;
  bool fail_closed;  // a policy that refuses the client holds it back
  bool gates;        // its launches can be held on the GPU, and stopped at the next gate
  uint8_t priority;
  SlowdownMax slowdown_max;
  ChannelMax channel_max;
  SmGroups groups;     // of its device, as its shim says; none: its launches keep all SMs
  SmSet sm_set;        // by rule: its launches are kept to it; empty: all
  MadeSets made_sets;  // sets that it made under an earlier daemon: it can make no others
  char name[64];       // of the executable, NUL-terminated
  char label[64];
};

// The fields of AttachedBody that may change while the client is attached.
struct TermsBody {
  float share;
  float slo_ms;
  uint8_t priority;
  SlowdownMax slowdown_max = {};
  ChannelMax channel_max = {};
  Compute compute = {};
};

struct KernelBody : ipc::KernelFacts {
  uint32_t index;  // the client's own
};

// The kernels in a graph.
struct NodesBody {
  static constexpr uint32_t kMost = 64;  // the most frequent
  struct Node {
    uint16_t kernel;  // client's index
    uint16_t count;   // nodes that launch it
  };
  uint32_t graph;   // client's index
  uint32_t count;   // of `nodes`
  uint32_t others;  // further kernel nodes
  Node nodes[kMost];
};

// A measured distribution of times; all zero if there were no samples.
struct Summary {
  float mean_us;
  float p50_us;
  float p90_us;
  uint32_t count;
};

// How long a kernel takes in one context (estimator.h).
struct DurationAfter {
  uint64_t before;  // Context::last()
  float mean_us;
  uint32_t count;
};

// FIKIT's SK and SG of one kernel ID (section 3.2), with two kinds of gaps (estimator.h). A further
// event may follow for the duration in one context alone (`before`).
struct ProfileBody {
  uint64_t kernel_id;
  Summary duration, gap_launching, gap_synchronized;
  uint64_t before;  // Context::last(); 0: of all launches
  ipc::KernelMetrics metrics;
};

struct LaunchBody {
  uint64_t stream_seq;  // counts a stream's work from 1
  uint32_t kernel;      // client's index, or kUnknownKernel
  uint32_t ask_seq;     // its ticket; 0: none
  uint16_t stream;
  uint16_t thread;
  LaunchKind kind;
  Admission admission;
  bool unmovable;       // it runs on all SMs, whatever its kernel's size or the grant says
  uint16_t may_follow;  // launches of its thread that may follow without a record (ipc/sparse.h);
                        // of a launch at a gate: the number of gates inside it
  float unit_us;        // at a gate: predicted time of its unit; 0: that of its kernel
};

struct DoneBody {
  uint64_t stream_seq;  // everything of `stream` up to here is done
  float duration_us;    // GPU time of launch `stream_seq`, 0 if it was not measured
  uint16_t stream;      // kEveryStream: the whole device
  Evidence evidence;
};

struct StopBody {
  uint32_t able;  // an ipc::StopAble
  bool off;       // its channels are off, by the last kStop that its shim carried out
  float took_us;  // how long that took; 0: nothing new was carried out
};

struct MemoryBody {
  uint64_t bytes;  // that it holds; on the host while it is parked
  bool parked;     // it is parked, or on its way
};

struct UntoldBody {
  uint64_t launches;  // launches without a record that no earlier event counted
  uint32_t kernel;    // kRow: the last one's kernel, or kUnknownKernel
  float backlog_us;   // kRow: predicted time of their work that is still on the device
};

struct Event {
  uint16_t version = kEventVersion;
  EventKind kind = EventKind::kTick;
  uint8_t device = 0;
  TimeNs at = 0;
  ClientId client = 0;
  union {
    AttachedBody attached;
    KernelBody kernel;
    NodesBody nodes;
    ProfileBody profile;
    LaunchBody launch;
    DoneBody done;
    UntoldBody untold;
    StopBody stop;
    MemoryBody memory;
    TermsBody terms;
  };

  Event() : launch{} {}
  Event(EventKind k, TimeNs t, ClientId c) : kind(k), at(t), client(c), launch{} {}
};

static_assert(std::is_trivially_copyable_v<Event>);
static_assert(sizeof(NodesBody) <= sizeof(KernelBody), "an event gets no longer by it");

}  // namespace heddle::core
