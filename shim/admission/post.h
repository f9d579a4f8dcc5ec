// What every recorded launch does: it takes a number in its stream, and fills its record.
//
// Inlined into both ways (gate.cc, leased.h), because these steps are most of their work.
#pragma once

#include "shim/evidence/completion.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// Takes the stream's next sequence number.
[[gnu::always_inline]] inline uint64_t take_number(ThreadSlot& thread, StreamSlot& stream,
                                                   uint32_t kernel) {
  const uint64_t next = stream.posted.load(std::memory_order_relaxed) + 1;
  // The launch is in hand before it has its number. So a thread that reads `posted` with that
  // number also sees the launch in hand (reach_of).
  thread.in_hand.store(uint64_t{stream.index} << ThreadSlot::kStreamShift | next,
                       std::memory_order_relaxed);
  const uint64_t seq = stream.posted.fetch_add(1, std::memory_order_seq_cst) + 1;
  stream.kernel.store(kernel + 1, std::memory_order_relaxed);
  set_active(stream);
  return seq;
}

// Fills `fields`, which have their default values.
[[gnu::always_inline]] inline void fill_record(ipc::RecordFields& fields, const StreamSlot& stream,
                                               uint64_t seq, uint32_t kernel, int64_t at_ns) {
  fields.at_ns = static_cast<uint64_t>(at_ns);
  fields.stream_seq = seq;
  fields.kernel = kernel;
  fields.stream = stream.index;
  fields.device = static_cast<uint8_t>(stream.device);
}

// The record to post if the driver refused the launch of this `record`: nothing is outstanding.
ipc::RecordFields failure_of(ipc::RecordFields record);

}  // namespace heddle::shim
