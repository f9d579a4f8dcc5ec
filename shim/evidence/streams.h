// The streams of this process: a slot for each, with the numbers that were posted and are done.
//
// Any thread looks a stream up at a launch, without a lock; the first sight of a stream takes a
// short one. A slot keeps its sequence numbers when another stream takes it over: they never go
// back.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/limits.h"
#include "shim/driver/calls.h"
#include "shim/link/inside.h"
#include "shim/link/spin.h"

namespace heddle::shim {

// A stream as a call names it: in the _ptsz variants NULL is the thread's own default stream.
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
  float lead_us = 0;     // to subtract from the time between the events: not the kernel's
  uint32_t kernel = 0;
  std::atomic<State> state{kFree};
};

struct alignas(64) StreamSlot {
  static constexpr uint32_t kMarkers = 8;
  static constexpr int kPairs = 8;
  static constexpr uint32_t kLanes = 12;  // at most so many SM sets in a device's family

  // What each launch reads and writes: one cache line.
  std::atomic<uint64_t> posted{0};      // sequence numbers handed out
  std::atomic<uint64_t> marked{0};      // up to here there are markers
  std::atomic<int64_t> launched_ns{0};  // when the newest launch was
  std::atomic<uint32_t> kernel{0};      // its kernel, + 1
  std::atomic<int> pairs_out{0};        // neither free nor harvested
  // While a less important client waits: when the stream's work is predicted to be done.
  std::atomic<int64_t> queue_end_ns{0};
  uint16_t index = 0;  // this and the device: constant while the slot is taken
  int device = 0;
  // Work up to this number is known to be done.
  std::atomic<uint64_t> done{0};
  // Constant while the slot is taken.
  CUcontext context = nullptr;
  int priority = 0;
  std::atomic<bool> markable{false};  // false where slots are shared
  std::atomic<bool> signals{false};   // others may wait for its work (note_signal)
  // When a launch began to wait that starved while a thread was in a synchronizing call; 0: none.
  std::atomic<int64_t> spared_ns{0};

  std::atomic<uint64_t> gate{0};  // the stream's newest gate (gate/page.cc); 0: it had none

  // Whether it is the legacy stream, and whether it is that or ordered against it. Constant, too.
  bool legacy = false, blocking = false;
  bool green = false;  // of a Green Context that the application made; constant, too

  // The stream's lanes (contexts.h), by the SM set's place in the family. After a lane failed: when
  // lanes may be tried again, and how long the present pause is.
  std::atomic<CUstream> lanes[kLanes] = {};
  std::atomic<int64_t> lanes_again_ns{0}, lanes_rest_ns{0};

  // A launch of the stream made a detour (contexts.h). From then on a thread that puts work into it
  // holds `turn`: a detour is several driver calls, and work between them would overlap its launch.
  std::atomic<bool> detoured{false};
  Spin turn;

  Spin events;  // guards the rest; launches only try it
  // After an error of an event no event is placed the next `rest` times, twice as many each time.
  std::atomic<uint32_t> rest{0};
  uint32_t next_rest = 0;
  // Written under `events`, read without.
  std::atomic<uint32_t> marker_head{0}, marker_tail{0};
  Marker markers[kMarkers];
  Pair pairs[kPairs];
};

// Some stream of the process is `detoured`.
extern constinit std::atomic<bool> any_detours;

// A launch of the stream starved while a thread was in a synchronizing call, and some thread still
// is in a call that began before that.
bool is_spared(StreamSlot& stream);

// The slot of a stream, taken at its first sight. Streams beyond the pool share the last slot.
StreamSlot& stream_slot(Inside& in, StreamRef stream);

// Others may wait for the stream's work: set and read by launches inside a session or outside.
void set_signals(StreamRef stream);
bool signals(StreamRef stream);

// The slot that a stream has to itself; nullptr if nothing was ever submitted to the stream, or if
// it shares a slot: the end of one stream's work is then no evidence about the slot.
StreamSlot* known_stream(const ThreadSlot& thread, StreamRef stream);

// Frees the slot of a stream that is destroyed, or of all streams of a context, and tells the
// daemon. Its events are destroyed, or dropped if their context is `gone` already. A thread's own
// default stream ends with the thread. Its slot is freed when the next thread in the same thread
// slot uses its default stream.
void end_stream(CUstream stream);
void end_context(CUcontext context, bool gone);

// Bitmap of streams with launches that are not known to be done.
extern constinit std::atomic<uint64_t> active_streams[ipc::kStreams / 64];
inline void set_active(StreamSlot& slot) {
  auto& word = active_streams[slot.index / 64];
  const uint64_t bit = uint64_t{1} << (slot.index % 64);
  if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit);
}
void clear_active(StreamSlot& slot);
template <class Visit>
void for_each_active(Visit&& visit);

// In a forked child: the parent's handles mean nothing there.
void forget_streams();

// ---- captures: while any stream of the process captures, no event is queried or recorded anew ---

void capture_begins(StreamRef stream);  // before the driver is called
void capture_failed(StreamRef stream);  // the driver refused
void capture_ends(StreamRef stream);    // the driver ended it
// A stream, or all streams of a context, are destroyed, and with them their captures. The capture
// of a thread's own default stream ends with the thread.
void stream_gone(CUstream stream);
void context_gone(CUcontext context);
void create_capture_key();  // once a process
// How many captures go on, and how many synchronizing calls there were. Each launch reads them, so
// they have a cache line to themselves.
struct alignas(64) Counts {
  std::atomic<uint32_t> captures{0};
  std::atomic<uint32_t> waits{0};
};
extern constinit Counts counts;
inline bool anything_captures() { return counts.captures.load(std::memory_order_relaxed) != 0; }
bool stream_captures(StreamRef stream);
inline uint32_t waits() { return counts.waits.load(std::memory_order_relaxed); }
inline void note_wait() { counts.waits.fetch_add(1, std::memory_order_relaxed); }

// Permission to touch events: denied while a stream captures. A thread that ends a context waits
// until all permits are given back (EventsRest). A capture that begins does not wait, for the
// holder's driver calls cannot end it (RelaxedCapture).
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

// While one exists, this thread's driver calls end no capture. In the default mode, querying or
// making an event would end every capture in global mode, and the shim does not know of captures
// that it did not see begin.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own, once exchanged
};

// The thread of this slot is gone. If it was cancelled, it may have kept a permit, which would hold
// up the end of every context.
void return_permits(uint32_t thread);

// While one exists, no event is queried or recorded: a context is about to end.
class EventsRest {
 public:
  EventsRest();
  ~EventsRest();
  EventsRest(const EventsRest&) = delete;
  EventsRest& operator=(const EventsRest&) = delete;
};
// The same for good from exit() on, before the driver's own exit handlers. Once a process.
void rest_events_at_exit();

// ---- implementation detail of the template above ----

StreamSlot& slot_at(uint32_t index);

template <class Visit>
void for_each_active(Visit&& visit) {
  for (uint32_t word = 0; word < ipc::kStreams / 64; ++word) {
    // Acquire: the slot's constant fields were written before its stream became active.
    uint64_t bits = active_streams[word].load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      visit(slot_at(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits))));
    }
  }
}

}  // namespace heddle::shim
