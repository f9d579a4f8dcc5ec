// What a launch does under every admission: it takes its number, and says what it is.
//
// Inlined into the ways that launches go (gate.cc, leased.h), of which most is what these do.
#pragma once

#include "shim/evidence/completion.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// The stream's next number.
[[gnu::always_inline]] inline uint64_t take_number(ThreadSlot& thread, StreamSlot& stream,
                                                   uint32_t kernel) {
  const uint64_t next = stream.posted.load(std::memory_order_relaxed) + 1;
  // In hand before it has a number: whoever reads a larger one then sees it (reach_of).
  thread.in_hand.store(uint64_t{stream.index} << ThreadSlot::kStreamShift | next,
                       std::memory_order_relaxed);
  const uint64_t seq = stream.posted.fetch_add(1, std::memory_order_seq_cst) + 1;
  stream.kernel.store(kernel + 1, std::memory_order_relaxed);
  set_active(stream);
  return seq;
}

// `fields` as by default.
[[gnu::always_inline]] inline void fill_record(ipc::RecordFields& fields, const StreamSlot& stream,
                                               uint64_t seq, uint32_t kernel, int64_t at_ns) {
  fields.at_ns = static_cast<uint64_t>(at_ns);
  fields.stream_seq = seq;
  fields.kernel = kernel;
  fields.stream = stream.index;
  fields.device = static_cast<uint8_t>(stream.device);
}

// The driver refused the launch of this record: nothing of it is outstanding. What then is posted.
ipc::RecordFields failure_of(ipc::RecordFields record);

}  // namespace heddle::shim
