// One model of the GPU: SMs, block scheduler, streams with priorities, clients (processes), and the
// two ways in which clients share: MPS-like and time-sliced.
//
// Used twice: by the owner process of the simulated driver, in real time, and by the virtual-time
// simulator. Time is an argument, never read; equal calls give equal answers. Not thread-safe.
//
// How to drive it. Time only moves forward, and only in advance() and submit():
//   TimeNs next = gpu.next_event();         // kNever if nothing will change by itself
//   gpu.advance(next, notices);             // appends what started and completed up to `next`
//   OpId op = gpu.submit(now, stream, o);   // requires next_event() >= now: advance first
// A step costs well under a microsecond with a few kernels on the GPU: the unit of work is a
// cohort, the blocks of one kernel that were placed at the same moment, not the single block.
//
// What is modelled. A kernel's blocks are placed as far as threads, registers, shared memory and
// block slots allow; the rest wait for room: alone on the GPU, a kernel takes launch_ns plus
// waves x block_ns. Higher-priority kernels get free room first, blocks are never preempted, equal
// priorities are served in the order in which they became ready, and a kernel with blocks left over
// blocks those behind it. Overlapping kernels share DRAM bandwidth. Time-sliced: one client's work
// at a time, in slices, and its blocks stop where they are when its slice ends.
// Not modelled: placement on individual SMs (room is summed over them), caches, clocks, power.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "bench/sim/facts.h"

namespace heddle::sim {

using TimeNs = int64_t;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

using ClientIndex = uint32_t;
using StreamIndex = uint32_t;

// Names one operation for ever: the stream's index, and the operation's number in it from 1.
struct OpId {
  StreamIndex stream = 0;
  uint64_t seq = 0;  // 0: none

  bool operator==(const OpId&) const = default;
};

enum class Mode : uint8_t { kMps, kTimeSlice };

struct GpuConfig {
  Mode mode = Mode::kMps;
  uint32_t sm_count = facts::kSmCount;
  uint32_t threads_per_sm = facts::kThreadsPerSm;
  uint32_t registers_per_sm = facts::kRegistersPerSm;
  uint32_t shared_bytes_per_sm = facts::kSharedBytesPerSm;
  uint32_t blocks_per_sm = facts::kBlocksPerSm;
  TimeNs launch_ns = facts::kLaunchNs;  // from the head of the stream to the first block
  TimeNs slice_ns = facts::kSliceNs;
  TimeNs switch_ns = facts::kSwitchNs;
};

// What one launch asks of the GPU. `blocks` 0 is an empty launch: launch_ns, nothing more.
struct KernelShape {
  uint32_t blocks = 1;
  uint32_t threads = 1;       // per block
  uint32_t registers = 0;     // per thread
  uint32_t shared_bytes = 0;  // per block
  TimeNs block_ns = 0;        // how long one block runs
  float bandwidth = 0;        // share of DRAM bandwidth with the GPU filled, 0 to 1
};

// Which SMs a launch may use, and how many these are: a Green Context's. Equal ids are the same
// SMs, in whatever client; sets of different ids are taken to be disjoint. 0: all SMs.
struct SmSet {
  uint32_t id = 0;
  uint32_t sms = 0;
};

enum class OpKind : uint8_t {
  kKernel,
  kDelay,   // takes `delay_ns`, uses no SM: a copy, a memset
  kMarker,  // takes no time: an event record, or a wait when `after` is set
};

struct Op {
  OpKind kind = OpKind::kMarker;
  int priority = 0;      // added to the stream's; CUDA's: lower numbers run first
  TimeNs delay_ns = 0;   // kDelay
  KernelShape kernel{};  // kKernel
  SmSet sms{};           // kKernel: where its blocks may run
  OpId after{};          // starts no earlier than the completion of `after`
  uint64_t tag = 0;      // the caller's own, given back in notices
};

struct Notice {
  enum Kind : uint8_t { kStarted, kCompleted } kind;
  OpId op;
  ClientIndex client;
  TimeNs at;  // exact: independent of when advance() was called
  uint64_t tag;
};

class GpuModel {
 public:
  explicit GpuModel(const GpuConfig& config);

  const GpuConfig& config() const { return config_; }
  TimeNs now() const { return now_; }

  // A client is a process; its blocks take the room of `sm_limit` SMs at most, whichever these are
  // (0: of all). Removing one drops all its work without notices and frees its streams.
  ClientIndex add_client(uint32_t sm_limit = 0);
  void remove_client(TimeNs at, ClientIndex client);

  // Streams run in order. `priority` as in CUDA, 0 to -5. Closing one drops what it has not
  // finished, without notices. Indices are reused, sequence numbers go on, so that old OpIds stay
  // done.
  StreamIndex open_stream(ClientIndex client, int priority = 0);
  void close_stream(TimeNs at, StreamIndex stream);

  // Appends an operation to its stream. `at` >= now(), and nothing may be pending before `at`:
  // call advance(at, ...) first. It starts, if it can, in the next advance(), even to the same
  // time.
  OpId submit(TimeNs at, StreamIndex stream, const Op& op);

  // Lets the kernel that runs at the head of the stream end now, whatever its block_ns; blocks of
  // it that found no room yet take no time once they do.
  void end_kernel(StreamIndex stream);

  // Moves time to `to` and appends starts and completions in the order of their times.
  void advance(TimeNs to, std::vector<Notice>& notices);

  // The earliest time at which something changes by itself, kNever if nothing will.
  TimeNs next_event() const;

  bool done(OpId op) const { return op.seq <= streams_[op.stream].done; }
  bool idle(StreamIndex s) const { return streams_[s].done == streams_[s].issued; }
  uint64_t issued(StreamIndex s) const { return streams_[s].issued; }

  // Occupancy: blocks of this shape that fit on one SM (0 if none), and waves on the empty GPU.
  uint32_t blocks_per_sm(const KernelShape& kernel) const;
  uint32_t waves(const KernelShape& kernel) const;
  // What one launch takes on the empty GPU, launch_ns left out.
  TimeNs alone_ns(const KernelShape& kernel) const;

 private:
  struct Room {  // free resources, summed over the SMs
    uint64_t threads, registers, shared_bytes, blocks;
  };
  enum class Phase : uint8_t { kQueued, kLaunching, kReady, kRunning };
  struct Stream {
    ClientIndex client = 0;
    int priority = 0;
    bool open = false;
    uint64_t issued = 0;
    uint64_t done = 0;
    std::vector<Op> queue;  // from `head`; numbered done + 1 upwards
    size_t head = 0;
    // The operation at the head.
    Phase phase = Phase::kQueued;
    TimeNs phase_end = 0;   // kLaunching: ready then; kRunning of a delay: done then
    uint32_t unplaced = 0;  // blocks
    uint32_t running = 0;   // blocks
    int head_priority = 0;
  };
  struct Client {
    bool live = false;
    uint32_t domain = 0;   // index into rooms_: all share one under MPS
    uint32_t kernels = 0;  // stream heads that launch, wait for room or run
    Room room{};           // what it may use
    uint32_t sms = 0;      // of that
  };
  struct Cohort {
    StreamIndex stream;
    uint32_t blocks;
    double left_ns;   // at full speed
    float bandwidth;  // the kernel's: which part of its time scales with contention
    float demand;     // what these blocks draw
  };

  struct Region {
    uint32_t domain, id;  // SmSet's
    Room room;
  };

  Room room_of(uint32_t sms) const;
  Room* region_of(const Stream& stream);                // of its head; nullptr: all SMs
  std::array<Room*, 3> rooms_of(const Stream& stream);  // the last one may be missing
  void settle(std::vector<Notice>& notices);
  bool move_heads(std::vector<Notice>& notices);
  bool move_head(StreamIndex s, std::vector<Notice>& notices);
  void begin(Stream& stream);
  void make_ready(StreamIndex s);
  void finish_head(StreamIndex s, std::vector<Notice>& notices);
  bool finish_cohorts(std::vector<Notice>& notices);
  void place_blocks(std::vector<Notice>& notices);
  uint32_t blocks_that_fit(const Stream& stream);
  void take_room(const Stream& stream, uint32_t blocks);
  void pass_time(TimeNs to);
  bool choose_client();
  bool may_run(ClientIndex client) const;
  double bandwidth_in_use() const;
  void give_room(const Stream& stream, uint32_t blocks);
  void drop_work(StreamIndex s);
  void forget(StreamIndex s);

  GpuConfig config_;
  TimeNs now_ = 0;
  std::vector<Client> clients_;
  std::vector<Stream> streams_;
  std::vector<StreamIndex> free_streams_;
  std::vector<StreamIndex> active_;  // streams with work, in the order in which they got it
  std::vector<StreamIndex> ready_;   // kernels with unplaced blocks: priority, then first come
  std::vector<Cohort> cohorts_;
  std::vector<Room> rooms_;
  std::vector<Region> regions_;
  bool dirty_ = false;  // something was submitted or removed since the last advance()

  // Time-slicing.
  static constexpr ClientIndex kNobody = 0xffffffff;
  ClientIndex on_gpu_ = kNobody;  // whose context is loaded
  TimeNs switch_end_ = 0;         // its work runs from here
  TimeNs slice_end_ = 0;
};

}  // namespace heddle::sim
