// The streams of this process: their slots, what was posted to each, and what is known to be done.
//
// Any thread looks a stream up at a launch, without a lock. A slot keeps its sequence numbers when
// another stream takes it over, so that they never go back.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/limits.h"
#include "shim/driver/calls.h"
#include "shim/link/inside.h"
#include "shim/link/spin.h"

namespace heddle::shim {

// A stream as a call named it: in the _ptsz variants NULL is the thread's own default stream.
struct StreamRef {
  CUstream handle = nullptr;
  bool per_thread = false;
};

// An untimed event behind everything posted up to `seq`.
struct Marker {
  CUevent event = nullptr;
  uint64_t seq = 0;
};

// Two timed events around one launch.
struct Pair {
  enum State : uint8_t { kFree, kOpen, kRecorded };
  CUevent begin = nullptr;
  CUevent end = nullptr;
  uint64_t seq = 0;
  int64_t begun_ns = 0;  // when `begin` was recorded
  float lead_us = 0;     // of what the events will tell, the part that is not the kernel's
  uint32_t kernel = 0;
  std::atomic<State> state{kFree};
};

struct alignas(64) StreamSlot {
  static constexpr uint32_t kMarkers = 8;
  static constexpr int kPairs = 8;
  static constexpr uint32_t kLanes = 12;  // SM sets that a device's launches may go to

  // What each launch reads and writes: one cache line.
  std::atomic<uint64_t> posted{0};      // sequence numbers handed out
  std::atomic<uint64_t> marked{0};      // up to here there are markers
  std::atomic<int64_t> launched_ns{0};  // when the newest launch was
  std::atomic<uint32_t> kernel{0};      // its kernel, + 1
  std::atomic<int> pairs_out{0};        // neither free nor harvested
  // While somebody less important waits: when its work is predicted to be done.
  std::atomic<int64_t> queue_end_ns{0};
  uint16_t index = 0;  // this and the device: constant while the slot is taken
  int device = 0;
  // Written when something is seen to be done.
  std::atomic<uint64_t> done{0};
  // Constant while the slot is taken.
  CUcontext context = nullptr;
  int priority = 0;
  std::atomic<bool> markable{false};  // false where slots are shared
  std::atomic<bool> signals{false};   // others may wait for its work (note_signal)
  // When it began to wait, if it starved while a thread was in a synchronizing call; 0: none did.
  std::atomic<int64_t> spared_ns{0};

  std::atomic<uint64_t> gate{0};  // the newest in it (gate/page.h); 0: none since it has the slot

  // The legacy stream; that or ordered against it. Constant as the context.
  bool legacy = false, blocking = false;
  bool green = false;  // of a Green Context that the application made; constant as the context

  // What runs for it on an SM set (contexts.h), by the set's place. After one failed, when
  // it may be tried again, and how long that was put off for.
  std::atomic<CUstream> lanes[kLanes] = {};
  std::atomic<int64_t> lanes_again_ns{0}, lanes_rest_ns{0};

  // A launch of it made a detour (contexts.h). From then on whoever puts work into it holds `turn`:
  // a detour is several calls, and work that came between them would overlap with its launch.
  std::atomic<bool> detoured{false};
  Spin turn;

  Spin events;  // guards what follows; only ever tried on the launch path
  // After an error of an event: so many chances to place one are let pass, each time twice as many.
  std::atomic<uint32_t> rest{0};
  uint32_t next_rest = 0;
  // Written under `events`, looked at without.
  std::atomic<uint32_t> marker_head{0}, marker_tail{0};
  Marker markers[kMarkers];
  Pair pairs[kPairs];
};

// Some stream of the process is `detoured`.
extern constinit std::atomic<bool> any_detours;

// A launch of it starved while a thread was in a synchronizing call, and that thread still is.
bool is_spared(StreamSlot& stream);

// The slot of a stream; takes one at first sight. Streams beyond the pool share the last slot.
StreamSlot& stream_slot(Inside& in, StreamRef stream);

// Others may wait for the stream's work; known to this thread's later launches, in a session or
// not.
void set_signals(StreamRef stream);
bool signals(StreamRef stream);

// The slot that a stream has to itself; nullptr if nothing was ever submitted to it, or if it
// shares one: what is known of one stream is then no evidence about the slot.
StreamSlot* known_stream(const ThreadSlot& thread, StreamRef stream);

// Frees the slot of a stream that is destroyed, or of all streams of a context, and tells the
// daemon. Its events are destroyed, or dropped if their context is `gone` already. A thread's own
// default stream ends with it, and is freed when the next thread in its place uses its own.
void end_stream(CUstream stream);
void end_context(CUcontext context, bool gone);

// Streams with predicted work that is not known to be done.
extern constinit std::atomic<uint64_t> active_streams[ipc::kStreams / 64];
inline void set_active(StreamSlot& slot) {
  auto& word = active_streams[slot.index / 64];
  const uint64_t bit = uint64_t{1} << (slot.index % 64);
  if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit);
}
void clear_active(StreamSlot& slot);
template <class Visit>
void for_each_active(Visit&& visit);

// In a forked child: handles of the parent mean nothing.
void forget_streams();

// ---- captures: while any stream of the process captures, no event is queried or recorded anew ---

void capture_begins(StreamRef stream);  // before the driver is called
void capture_failed(StreamRef stream);  // the driver refused
void capture_ends(StreamRef stream);    // the driver ended it
// Gone with its capture, if it had one: a stream, the streams of a context; a thread's own default
// stream goes with the thread.
void stream_gone(CUstream stream);
void context_gone(CUcontext context);
void create_capture_key();  // once a process
// How many, and how many synchronizing calls there were; read at each launch, so that they have a
// line to themselves.
struct alignas(64) Counts {
  std::atomic<uint32_t> captures{0};
  std::atomic<uint32_t> waits{0};
};
extern constinit Counts counts;
inline bool anything_captures() { return counts.captures.load(std::memory_order_relaxed) != 0; }
bool stream_captures(StreamRef stream);
inline uint32_t waits() { return counts.waits.load(std::memory_order_relaxed); }
inline void note_wait() { counts.waits.fetch_add(1, std::memory_order_relaxed); }

// Permission to touch events: denied while anything captures. Who ends a context waits until the
// permission is given back (EventsRest). A capture that begins meanwhile does not wait, for its
// holder's calls cannot end one (RelaxedCapture).
class EventPermit {
 public:
  explicit EventPermit(const Inside& in);
  ~EventPermit();
  EventPermit(const EventPermit&) = delete;
  EventPermit& operator=(const EventPermit&) = delete;
  explicit operator bool() const { return given_ != nullptr; }

 private:
  std::atomic<uint32_t>* given_;
};

// While one stands, no driver call that this thread makes ends a capture: where the calling
// thread's mode is the default, a query or the making of an event ends every capture in global
// mode, and of those that began behind our back nothing is known here.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own, once exchanged
};

// The thread of this slot is gone. A cancelled one may have left with a permit, which would hold up
// the end of each context.
void return_permits(uint32_t thread);

// While one stands no event is queried or recorded: a context is about to go.
class EventsRest {
 public:
  EventsRest();
  ~EventsRest();
  EventsRest(const EventsRest&) = delete;
  EventsRest& operator=(const EventsRest&) = delete;
};
// The same for good once the process exits, before the driver's own end. Once a process.
void rest_events_at_exit();

// ---- implementation detail of the template above ----

StreamSlot& slot_at(uint32_t index);

template <class Visit>
void for_each_active(Visit&& visit) {
  for (uint32_t word = 0; word < ipc::kStreams / 64; ++word) {
    // Acquiring: what is constant of a slot was written before its stream was active.
    uint64_t bits = active_streams[word].load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      visit(slot_at(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits))));
    }
  }
}

}  // namespace heddle::shim
