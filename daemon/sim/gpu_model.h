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
// waves x block_ns; behind another one of its stream, queue_ns instead of launch_ns. Room that
// blocks leave goes to the highest priority first, blocks are never preempted, equal priorities are
// served in the order in which they became ready, and a kernel with blocks left over blocks those
// behind it: a kernel that fills the GPU lets nobody in before its last wave, one that does not
// runs beside others. Blocks of several kernels on the same SMs slow each other
// (KernelShape::saturation). A client may be limited to so many SMs' worth of room (MPS's active
// thread percentage), a launch to a set of SMs (a Green Context's). Time-sliced: one client's work
// at a time, in slices, and its blocks stop where they are when its slice ends. A client's slices
// may have a length of their own, and a client may be stopped: its blocks stand until it goes on.
// Not modelled: placement on individual SMs (room is summed over them, so that what others leave
// free is taken to lie where a limited client or launch needs it), caches, clocks, power.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "daemon/sim/facts.h"
#include "ipc/sm_set.h"

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
  TimeNs launch_ns = facts::kLaunchNs;  // least time from a kernel's submission to its first block
  TimeNs queue_ns = facts::kQueueNs;    // and from the end of what was before it in its stream
  TimeNs slice_ns = facts::kSliceNs;
  TimeNs switch_ns = facts::kSwitchNs;
};

// What one launch asks of the GPU. `blocks` 0 is an empty launch: launch_ns, nothing more.
struct KernelShape {
  uint32_t blocks = 1;
  uint32_t threads = 1;       // per block
  uint32_t registers = 0;     // per thread
  uint32_t shared_bytes = 0;  // per block
  TimeNs block_ns = 0;        // how long one block runs, if the kernel is alone
  float saturation = 1;       // fill from which its SMs are busy, 0 to 1; 1: its blocks only wait
};

// Which SMs a launch may use, and how many these are: a Green Context's. Equal sets are the same
// SMs, in whatever client; different ones are taken to be disjoint. Empty: all SMs.
struct Place {
  ipc::SmSet set{};
  ipc::SmCount sms{};
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
  Place place{};         // kKernel: where its blocks may run
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

  // Time-sliced: how long the client has the GPU while others want it, from its next slice on, and
  // in the one that it has from `at` on at most. 0: the config's. Below facts::kSliceLeastNs it
  // makes no progress while others want the GPU. Of `at` the same holds as in submit().
  void set_slice(TimeNs at, ClientIndex client, TimeNs slice_ns);
  // The client's channels are switched off, or on again, by a call that begins at `at`. Its kernels
  // and markers stand where they are from facts::kStopNs later until facts::kGoOnNs after the other
  // call, and others have the GPU as if alone; delays go on. The last call counts. Under MPS all
  // clients stand while one does.
  void stop(TimeNs at, ClientIndex client);
  void go_on(TimeNs at, ClientIndex client);

  // GPU time of the client so far, now() included: while blocks of n clients run, 1/n of the time
  // is each one's, so that together they never have more than passed.
  double gpu_ns(ClientIndex client) const;

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
  TimeNs next_event() const {
    if (dirty_) return now_;
    if (!next_known_) next_ = find_next();
    next_known_ = true;
    return next_;
  }

  bool done(OpId op) const { return op.seq <= streams_[op.stream].done; }
  bool idle(StreamIndex s) const { return streams_[s].done == streams_[s].issued; }
  uint64_t issued(StreamIndex s) const { return streams_[s].issued; }

  // Occupancy: blocks of this shape that fit on one SM (0 if none), and waves on the empty GPU.
  uint32_t blocks_per_sm(const KernelShape& kernel) const;
  uint32_t waves(const KernelShape& kernel) const;
  // What one launch takes on the empty GPU, launch_ns left out.
  TimeNs alone_ns(const KernelShape& kernel) const;

 private:
  static constexpr ClientIndex kNobody = 0xffffffff;
  static constexpr StreamIndex kNone = 0xffffffff;
  // A cohort with less than this left is done: sums of rounded steps never hit zero exactly.
  static constexpr double kDoneNs = 0.5;

  struct Room {  // free resources, summed over the SMs
    uint32_t threads = 0, registers = 0, shared_bytes = 0, blocks = 0;
    ipc::SmCount sms{};     // of the empty one
    uint64_t short_in = 0;  // the pass of place_blocks() in which a kernel found too little
  };
  struct Queued {
    Op op;
    TimeNs submitted;
  };
  // Of a kernel, found once: every wave asks for it.
  struct Needs {
    uint32_t threads = 0, registers = 0, shared_bytes = 0;  // of a block
    uint32_t per_sm = 0;                                    // blocks
    uint32_t wave = 0;                                      // blocks that fill its SMs
    double least = 0;                                       // its saturation
    double alone = 0;  // which part of its SMs it fills if nobody else is there, or `least`
  };
  enum class Phase : uint8_t { kQueued, kLaunching, kReady, kRunning };
  struct Stream {
    ClientIndex client = 0;
    int priority = 0;
    bool open = false;
    uint64_t issued = 0;
    uint64_t done = 0;
    std::vector<Queued> queue;  // from `head`; numbered done + 1 upwards
    size_t head = 0;
    // The operation at the head.
    Phase phase = Phase::kQueued;
    TimeNs phase_end = 0;   // kLaunching: ready then; of a delay: done then; kNever: blocks decide
    size_t region = 0;      // index into regions_
    uint32_t unplaced = 0;  // blocks
    uint32_t running = 0;   // blocks
    uint32_t behind = 0;    // waves that join_waves() made one with the one that runs
    int head_priority = 0;
    Needs needs;  // of a kernel that is ready or runs
  };
  struct Client {
    bool live = false;
    uint32_t kernels = 0;  // stream heads that launch, wait for room or run
    Room room;             // what it may use
    uint32_t blocks = 0;   // that hold room, or would in its slice
    TimeNs slice_ns = 0;   // 0: the config's
    bool stands = false;
    TimeNs turns_at = kNever;        // from when that is different
    double gpu_ns = 0, part_at = 0;  // up to when part_ns_ was that
  };
  struct Region {
    ClientIndex client;  // kNobody: of all, under MPS
    ipc::SmSet set;      // Place's
    Room room;
    double fill = 0;  // part of it that running blocks hold
  };
  struct Cohort {
    StreamIndex stream;
    uint32_t blocks;
    double left_ns;  // at full speed
    double speed;    // 1 alone, 0 while its client's slice is over
    double fill;     // which part of the SMs that it may use it fills
  };

  Room room_of(ipc::SmCount sms) const;
  size_t region_of(ClientIndex client, const Place& place);
  std::array<Room*, 3> rooms(const Stream& stream);  // of its head; the last ones may be missing
  TimeNs find_next() const;
  void settle(std::vector<Notice>& notices);
  bool move_heads(std::vector<Notice>& notices);
  bool move_head(StreamIndex s, std::vector<Notice>& notices);
  void begin(Stream& stream);
  void make_ready(StreamIndex s);
  Needs needs_of(const Stream& stream) const;
  void finish_head(StreamIndex s, std::vector<Notice>& notices);
  void finish_cohorts(std::vector<Notice>& notices);
  bool place_blocks(std::vector<Notice>& notices);
  static uint32_t blocks_that_fit(const Stream& stream, const Room& room);
  static bool too_little(const Stream& stream, const Room& room);
  bool place(StreamIndex s, uint32_t blocks, std::vector<Notice>& notices);
  void take_room(const Stream& stream, uint32_t blocks);
  void pass_time(TimeNs to);
  void join_waves();
  void part_waves();
  static double wave_ns(const Stream& stream) {
    return static_cast<double>(stream.queue[stream.head].op.kernel.block_ns);
  }
  bool choose_client();
  void renew_slice(TimeNs at);
  TimeNs slice_ns(ClientIndex client) const {
    return clients_[client].slice_ns > 0 ? clients_[client].slice_ns : config_.slice_ns;
  }
  void pass_to(TimeNs at);
  void order(TimeNs at, ClientIndex client, bool stands, TimeNs takes_ns);
  void turn_clients();
  bool stands(ClientIndex client) const {
    return config_.mode == Mode::kMps ? standing_ > 0 : clients_[client].stands;
  }
  bool wants_gpu(ClientIndex client) const {
    return clients_[client].kernels > 0 && !clients_[client].stands;
  }
  bool may_run(ClientIndex client) const {
    if (stands(client)) return false;
    return config_.mode == Mode::kMps || (on_gpu_ == client && now_ >= switch_end_);
  }
  void share_sms();
  void count_blocks(ClientIndex client, uint32_t more, uint32_t less);
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
  Room gpu_;                                        // under MPS everybody's blocks take from it too
  std::vector<Region> regions_{{kNobody, {}, {}}};  // 0 stands for all SMs
  double part_ns_ = 0;  // under MPS a clock: of n clients that have blocks, each has a part of 1/n
  uint32_t sharers_ = 0;      // so many have
  uint32_t standing_ = 0;     // clients
  TimeNs turns_at_ = kNever;  // the earliest of theirs
  uint64_t pass_ = 0;
  bool dirty_ = false;               // a stream got work or lost it since the last advance()
  TimeNs settled_ = -1;              // advance() has done all that happens up to here
  StreamIndex joined_ = kNone;       // whose waves are joined
  bool unshared_ = false;            // other cohorts run than share_sms() knows
  mutable TimeNs next_ = 0;          // next_event(), ...
  mutable bool next_known_ = false;  // ... as long as nothing happens and no time passes

  // Time-slicing.
  ClientIndex on_gpu_ = kNobody;  // whose context is loaded
  TimeNs switch_end_ = 0;         // its work runs from here
  TimeNs slice_end_ = 0;
};

}  // namespace heddle::sim
