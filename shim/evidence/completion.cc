#include "shim/evidence/completion.h"

#include <algorithm>

#include "shim/driver/driver.h"

namespace heddle::shim {
namespace {

template <class T>
bool raise(std::atomic<T>& mark, T to) {
  T seen = mark.load(std::memory_order_relaxed);
  while (seen < to) {
    if (mark.compare_exchange_weak(seen, to, std::memory_order_relaxed)) return true;
  }
  return false;
}

ipc::RecordFields completion_of(const StreamSlot& slot, uint64_t seq, wire::Evidence evidence) {
  ipc::RecordFields fields;
  fields.at_ns = static_cast<uint64_t>(now_ns());
  fields.stream_seq = seq;
  fields.stream = slot.index;
  fields.kind = wire::Kind::COMPLETION;
  fields.device = static_cast<uint8_t>(slot.device);
  fields.evidence = evidence;
  return fields;
}

constexpr uint32_t kRestMin = 64;
constexpr uint32_t kRestMax = 64 * 1024;

// An event failed: the shim drops the markers and pairs of this stream, and places none for a
// while. The launch itself is not affected. `slot.events` is held.
void rest_events(Inside& in, StreamSlot& slot) {
  slot.next_rest = std::clamp(2 * slot.next_rest, kRestMin, kRestMax);
  slot.rest.store(slot.next_rest, std::memory_order_relaxed);
  slot.marker_head.store(slot.marker_tail.load(std::memory_order_relaxed),
                         std::memory_order_relaxed);
  for (Pair& pair : slot.pairs) {
    if (pair.state.load(std::memory_order_relaxed) == Pair::kRecorded) {
      pair.state.store(Pair::kFree, std::memory_order_relaxed);
      slot.pairs_out.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  in.count(&ipc::ClientMemory::Counters::marker_errors);
}

// True if an event may be placed now.
bool may_place(StreamSlot& slot) {
  if (!slot.markable.load(std::memory_order_relaxed)) return false;
  const uint32_t rest = slot.rest.load(std::memory_order_relaxed);
  if (rest == 0) [[likely]]
    return true;
  slot.rest.store(rest - 1, std::memory_order_relaxed);
  return false;
}

bool record(CUevent event, StreamRef stream) {
  const auto record =
      stream.per_thread ? HEDDLE_REAL(cuEventRecord_ptsz) : HEDDLE_REAL(cuEventRecord);
  return record(event, stream.handle) == CUDA_SUCCESS;
}

enum class Placed : uint8_t { kYes, kNotHere, kFailed };

// Records an event, and makes it at the first use. An event belongs to the context that is current
// when it is made, and a stream takes only events of its own context. kNotHere: another context is
// current. An event that failed is not used again, for its context may be gone.
Placed place(StreamSlot& slot, CUevent& event, unsigned flags, StreamRef stream) {
  if (event == nullptr) {
    if (current_context() != slot.context) return Placed::kNotHere;
    if (HEDDLE_REAL(cuEventCreate)(&event, flags) != CUDA_SUCCESS) event = nullptr;
  }
  if (event != nullptr && record(event, stream)) return Placed::kYes;
  event = nullptr;
  return Placed::kFailed;
}

Pair* oldest_recorded(StreamSlot& slot) {
  Pair* oldest = nullptr;
  for (Pair& pair : slot.pairs) {
    if (pair.state.load(std::memory_order_acquire) == Pair::kRecorded &&
        (oldest == nullptr || pair.seq < oldest->seq)) {
      oldest = &pair;
    }
  }
  return oldest;
}

constexpr float kShortestKernelUs = 1;

// How much longer two events around a kernel say that it took than it takes in a queue of such
// kernels: on an idle stream, and on a busy one (measured on an H200).
constexpr float kIdleBracketUs = 0.3f;
constexpr float kBusyBracketUs = 1.2f;

// Posts the durations of the recorded pairs up to `seq`, which are all done. They are posted in the
// order of their launches, because a completion covers all launches before it. `slot.events` is
// held.
void harvest(Inside& in, StreamSlot& slot, uint64_t seq) {
  while (Pair* pair = oldest_recorded(slot)) {
    if (pair->seq > seq) return;
    float ms = 0;
    if (HEDDLE_REAL(cuEventElapsedTime)(&ms, pair->begin, pair->end) == CUDA_SUCCESS && ms > 0) {
      ipc::RecordFields fields = completion_of(slot, pair->seq, wire::Evidence::MARKER);
      fields.kernel = pair->kernel;
      fields.duration_us = std::max(ms * 1e3f - pair->lead_us, kShortestKernelUs);
      in.post(fields, true);
      raise(slot.done, pair->seq);
    }
    pair->state.store(Pair::kFree, std::memory_order_release);
    slot.pairs_out.fetch_sub(1, std::memory_order_relaxed);
  }
}

void advance(Inside& in, StreamSlot& slot, uint64_t seq, wire::Evidence evidence, bool always) {
  const bool news = raise(slot.done, seq);
  if (news || always) in.post(completion_of(slot, seq, evidence), true);
  if (slot.done.load(std::memory_order_relaxed) < slot.posted.load(std::memory_order_seq_cst)) {
    return;
  }
  clear_active(slot);
  // A launch may have been posted in between.
  if (slot.done.load(std::memory_order_relaxed) < slot.posted.load(std::memory_order_seq_cst)) {
    set_active(slot);
  }
}

// Harvests pairs whose events are done. `slot.events` is held. Stops at the oldest pair that is not
// done, because later ones are not done either.
void poll_pairs(Inside& in, StreamSlot& slot) {
  while (const Pair* pair = oldest_recorded(slot)) {
    const CUresult result = HEDDLE_REAL(cuEventQuery)(pair->end);
    if (result == CUDA_ERROR_NOT_READY) return;
    if (result != CUDA_SUCCESS) return rest_events(in, slot);
    harvest(in, slot, pair->seq);
  }
}

// Lossy table of the application's events.
struct EventPlace {
  std::atomic<CUevent> event{nullptr};
  std::atomic<uint32_t> slot{0};
  std::atomic<uint64_t> seq{0};
};
constexpr size_t kEventPlaces = 1024;
constinit EventPlace event_places[kEventPlaces];
const CUevent kBusyEvent = reinterpret_cast<CUevent>(1);  // being written; no event's handle

EventPlace& place_of(CUevent event) {
  return event_places[(reinterpret_cast<uint64_t>(event) * 0x9e3779b97f4a7c15u) >> 54];
}
static_assert(kEventPlaces == size_t{1} << (64 - 54));

}  // namespace

uint64_t reach_of(const StreamSlot& slot) {
  // Acquire: a thread that took a number up to this one had set `in_hand` before.
  uint64_t reach = slot.posted.load(std::memory_order_acquire);
  for_each_thread([&](const ThreadSlot& thread) {
    const uint64_t in_hand = thread.in_hand.load(std::memory_order_acquire);
    if (in_hand == 0 || in_hand >> ThreadSlot::kStreamShift != slot.index) return;
    const uint64_t seq = in_hand & ((uint64_t{1} << ThreadSlot::kStreamShift) - 1);
    reach = std::min(reach, seq - 1);
  });
  return reach;
}

void complete(Inside& in, StreamSlot& slot, uint64_t seq, wire::Evidence evidence, bool always) {
  if (slot.pairs_out.load(std::memory_order_relaxed) > 0 && slot.events.try_lock()) {
    if (const EventPermit permit(in); permit) {
      const RelaxedCapture relaxed;
      harvest(in, slot, seq);
    }
    slot.events.unlock();
  }
  advance(in, slot, seq, evidence, always);
}

void place_marker(Inside& in, StreamSlot& slot, StreamRef stream) {
  const uint64_t reach = reach_of(slot);
  const uint64_t known = std::max(slot.marked.load(std::memory_order_relaxed),
                                  slot.done.load(std::memory_order_relaxed));
  if (reach <= known || !may_place(slot)) return;
  const uint32_t there = slot.marker_tail.load(std::memory_order_relaxed) -
                         slot.marker_head.load(std::memory_order_relaxed);
  if (there >= StreamSlot::kMarkers) poll_stream(in, slot);  // some may be done by now
  const EventPermit permit(in);
  if (!permit || !slot.events.try_lock()) return;
  const RelaxedCapture relaxed;
  const uint32_t tail = slot.marker_tail.load(std::memory_order_relaxed);
  if (tail - slot.marker_head.load(std::memory_order_relaxed) < StreamSlot::kMarkers) {
    Marker& marker = slot.markers[tail % StreamSlot::kMarkers];
    const Placed placed = place(slot, marker.event, CU_EVENT_DISABLE_TIMING, stream);
    if (placed == Placed::kYes) {
      marker.seq = reach;
      slot.marker_tail.store(tail + 1, std::memory_order_relaxed);
      slot.marked.store(reach, std::memory_order_relaxed);
    } else if (placed == Placed::kFailed) {
      rest_events(in, slot);
    }
  }
  slot.events.unlock();
}

void poll_stream(Inside& in, StreamSlot& slot) {
  if (!slot.markable.load(std::memory_order_relaxed)) return;
  const EventPermit permit(in);
  if (!has_events(slot) || !permit || !slot.events.try_lock()) return;
  const RelaxedCapture relaxed;
  if (slot.pairs_out.load(std::memory_order_relaxed) > 0) poll_pairs(in, slot);
  uint64_t reach = 0;
  while (has_markers(slot)) {
    const uint32_t head = slot.marker_head.load(std::memory_order_relaxed);
    const Marker& marker = slot.markers[head % StreamSlot::kMarkers];
    const CUresult result = HEDDLE_REAL(cuEventQuery)(marker.event);
    if (result == CUDA_ERROR_NOT_READY) break;
    if (result != CUDA_SUCCESS) {
      rest_events(in, slot);
      break;
    }
    reach = marker.seq;
    slot.marker_head.store(head + 1, std::memory_order_relaxed);
  }
  slot.events.unlock();
  if (reach != 0) advance(in, slot, reach, wire::Evidence::MARKER, false);
}

bool poll_all(Inside& in) {
  bool waiting = false;
  for_each_active([&](StreamSlot& slot) {
    poll_stream(in, slot);
    waiting |= has_events(slot);
  });
  return waiting;
}

int begin_pair(Inside& in, StreamSlot& slot, StreamRef stream, uint64_t seq, uint32_t kernel) {
  if (slot.pairs_out.load(std::memory_order_relaxed) >= StreamSlot::kPairs || !may_place(slot)) {
    return -1;
  }
  const EventPermit permit(in);
  if (!permit || !slot.events.try_lock()) return -1;
  const RelaxedCapture relaxed;
  int found = -1;
  for (int i = 0; i < StreamSlot::kPairs && found < 0; ++i) {
    Pair& pair = slot.pairs[i];
    if (pair.state.load(std::memory_order_acquire) != Pair::kFree) continue;
    const Placed placed = place(slot, pair.begin, CU_EVENT_DEFAULT, stream);
    if (placed == Placed::kFailed) rest_events(in, slot);
    if (placed != Placed::kYes) break;
    pair.seq = seq;
    pair.kernel = kernel;
    pair.begun_ns = now_ns();
    pair.state.store(Pair::kOpen, std::memory_order_relaxed);
    slot.pairs_out.fetch_add(1, std::memory_order_relaxed);
    found = i;
  }
  slot.events.unlock();
  return found;
}

void end_pair(Inside& in, StreamSlot& slot, StreamRef stream, int pair, bool launched) {
  Pair& open = slot.pairs[pair];
  if (open.state.load(std::memory_order_relaxed) != Pair::kOpen) return;  // its stream has ended
  const EventPermit permit(in);
  const int64_t returned_ns = now_ns();
  if (launched && permit) {
    const RelaxedCapture relaxed;
    const Placed placed = place(slot, open.end, CU_EVENT_DEFAULT, stream);
    if (placed == Placed::kYes) {
      // On an idle GPU the first event is done before the launch call returns, and the kernel
      // begins later by the length of that call. Without this correction launch-bound programs
      // would seem to use the GPU twice as much. The query comes last: the first event needs a
      // microsecond to be done, and the query costs as much.
      const bool idle = HEDDLE_REAL(cuEventQuery)(open.begin) == CUDA_SUCCESS;
      const float led_us = static_cast<float>(returned_ns - open.begun_ns) * 1e-3f;
      open.lead_us = idle ? led_us + kIdleBracketUs : kBusyBracketUs;
      return open.state.store(Pair::kRecorded, std::memory_order_release);
    }
    if (placed == Placed::kFailed) in.count(&ipc::ClientMemory::Counters::marker_errors);
  }
  open.state.store(Pair::kFree, std::memory_order_release);
  slot.pairs_out.fetch_sub(1, std::memory_order_relaxed);
}

void event_recorded(CUevent event, const StreamSlot& slot, uint64_t seq) {
  EventPlace& place = place_of(event);
  // Two events may share a place. It has one writer at a time, and the other's evidence is lost.
  if (place.event.exchange(kBusyEvent, std::memory_order_acquire) == kBusyEvent) return;
  place.slot.store(slot.index, std::memory_order_release);
  place.seq.store(seq, std::memory_order_release);
  place.event.store(event, std::memory_order_release);
}

void event_forgotten(CUevent event) {
  CUevent expected = event;
  if (place_of(event).event.load(std::memory_order_relaxed) != event) return;
  place_of(event).event.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
}

StreamSlot* event_reach(CUevent event, uint64_t& seq) {
  EventPlace& place = place_of(event);
  if (place.event.load(std::memory_order_acquire) != event) return nullptr;
  StreamSlot& slot = slot_at(place.slot.load(std::memory_order_acquire));
  seq = place.seq.load(std::memory_order_acquire);
  return place.event.load(std::memory_order_relaxed) == event ? &slot : nullptr;
}

}  // namespace heddle::shim
