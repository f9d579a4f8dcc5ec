// Evidence that work is done: synchronizing calls, markers, timed pairs.
//
// Markers are untimed events behind posted work. They are polled while a thread waits for its
// ticket, by the helper thread (watch.h), and at some later launches. Pairs are two timed events
// around a single launch, which tell the daemon how long kernels take. Everything here runs inside
// a session and never blocks: an event that another thread is using, or that a capture forbids, is
// left for later.
#pragma once

#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// The number up to which all launches of the stream have been submitted to the driver. It ends
// before the first launch that a thread still has in hand: one that waits for its ticket, or is
// inside the driver's call.
uint64_t reach_of(const StreamSlot& slot);

// Notes that all work of the stream up to `seq` is done. Posts a completion if that is new, or if
// `always`.
void complete(Inside& in, StreamSlot& slot, uint64_t seq, wire::Evidence evidence, bool always);

// Puts a marker behind the work that was submitted to the stream so far.
void place_marker(Inside& in, StreamSlot& slot, StreamRef stream);

// Whether the stream has markers, or markers or pairs, that were not seen to be done.
inline bool has_markers(const StreamSlot& slot) {
  return slot.marker_head.load(std::memory_order_relaxed) !=
         slot.marker_tail.load(std::memory_order_relaxed);
}
inline bool has_events(const StreamSlot& slot) {
  return has_markers(slot) || slot.pairs_out.load(std::memory_order_relaxed) > 0;
}

// Queries the stream's markers and pairs, and reports those that are done.
void poll_stream(Inside& in, StreamSlot& slot);

// The same for all streams with outstanding work; true if some still have events to wait for.
bool poll_all(Inside& in);

// Begins to time launch `seq` of `kernel`. The pair's number, or -1 if no pair is free or events
// may not be recorded now.
int begin_pair(Inside& in, StreamSlot& slot, StreamRef stream, uint64_t seq, uint32_t kernel);
// Records the pair's second event behind the launch, or gives the pair up if the launch failed.
void end_pair(Inside& in, StreamSlot& slot, StreamRef stream, int pair, bool launched);

// ---- events of the application ----

// Remembers where the application recorded an event, so that a wait for the event is evidence. The
// table is lossy: for an event that was pushed out only that evidence is lost.
void event_recorded(CUevent event, const StreamSlot& slot, uint64_t seq);
void event_forgotten(CUevent event);  // destroyed, or recorded anew
// The stream of an event, and the number up to which it covers that; nullptr: unknown.
StreamSlot* event_reach(CUevent event, uint64_t& seq);

}  // namespace heddle::shim
