// Evidence that work is done: synchronizing calls, markers, timed pairs.
//
// Markers are untimed events behind posted work, asked about at the next launch and while a thread
// waits for its ticket. Pairs are timed events around single launches, which teach the daemon how
// long kernels take. Everything here runs on threads of the application, inside a session, and
// never blocks: an event that another thread is at, or that a capture forbids, is left for later.
#pragma once

#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// How far a stream has come: everything up to that number is with the driver. What a thread still
// has in hand, because it waits for its ticket or is in the driver's call, is not, nor what
// follows.
uint64_t reach_of(const StreamSlot& slot);

// Everything of the stream up to `seq` is done. Posts a completion if that is news, or `always`.
void complete(Inside& in, StreamSlot& slot, uint64_t seq, wire::Evidence evidence, bool always);

// Puts a marker behind what was submitted to the stream so far.
void place_marker(Inside& in, StreamSlot& slot, StreamRef stream);

// A marker of the stream was not seen to be done; or a marker or a pair.
inline bool has_markers(const StreamSlot& slot) {
  return slot.marker_head.load(std::memory_order_relaxed) !=
         slot.marker_tail.load(std::memory_order_relaxed);
}
inline bool has_events(const StreamSlot& slot) {
  return has_markers(slot) || slot.pairs_out.load(std::memory_order_relaxed) > 0;
}

// Asks about the stream's markers and pairs, and reports what is done.
void poll_stream(Inside& in, StreamSlot& slot);

// The same for all streams with outstanding work; true if some is left with a marker behind it.
bool poll_all(Inside& in);

// Begins to time launch `seq`, of `kernel`; a pair's number, or -1 where none is free or none may
// be placed.
int begin_pair(Inside& in, StreamSlot& slot, StreamRef stream, uint64_t seq, uint32_t kernel);
// Ends it behind the launch, or gives it up if the launch failed.
void end_pair(Inside& in, StreamSlot& slot, StreamRef stream, int pair, bool launched);

// ---- events of the application ----

// Remembers where the application recorded an event, so that its synchronization is evidence. A
// lossy table: what was pushed out is evidence lost, nothing else.
void event_recorded(CUevent event, const StreamSlot& slot, uint64_t seq);
void event_forgotten(CUevent event);  // destroyed, or recorded anew
// The stream of an event, and what number it was recorded behind; nullptr if unknown.
StreamSlot* event_reach(CUevent event, uint64_t& seq);

}  // namespace heddle::shim
