// The launch record: a plain struct on both sides, one bare Cap'n Proto segment in between.
#pragma once

#include <capnp/message.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "ipc/heddle.capnp.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// The fields of wire::Record (ipc/heddle.capnp documents them), as Cap'n Proto lays them out. Cap'n
// Proto's own builder writes the same bytes (Record.IsWhatCapnProtoBuilds), but needs a builder for
// each thread: two more cold cache lines for a launch. Its reader reads the same fields
// (Record.ReadsWhatCapnProtoReads), but takes 490 instructions instead of 30.
struct RecordFields {
  uint64_t at_ns = 0;
  uint64_t stream_seq = 0;
  uint32_t kernel = kNoKernel;
  uint16_t stream = 0;
  wire::Kind kind = wire::Kind::KERNEL;
  uint32_t ask_seq = 0;
  wire::Admission admission = wire::Admission::LEASE;
  uint8_t device = 0;
  bool unmovable = false;
  wire::Evidence evidence = wire::Evidence::NONE;
  uint16_t may_follow = 0;
  float duration_us = 0;
  uint32_t untold = 0;
  uint32_t unused = 0;  // named, so that these bytes are initialized
};

// A struct pointer to the next word, with the data words of the schema and no pointers.
inline constexpr uint64_t kRootIsRecord =
    uint64_t{capnp::_::structSize<wire::Record>().data} << 32 |
    uint64_t{capnp::_::structSize<wire::Record>().pointers} << 48;
static_assert(sizeof(RecordFields) ==
                  capnp::_::structSize<wire::Record>().data * sizeof(uint64_t) &&
              std::endian::native == std::endian::little);

// Begins a record as one segment, root pointer first. `slot`: kRecordBytes, 8-byte aligned. The
// caller sets the fields in place, from their defaults: if it copied a record built elsewhere, the
// copy would wait for the stores before it.
inline RecordFields& begin_record(std::byte* slot) {
  struct Segment {
    uint64_t root = kRootIsRecord;
    RecordFields fields;
    uint64_t unused = 0;
  };
  static_assert(sizeof(Segment) == kRecordBytes);
  return (new (slot) Segment)->fields;
}
inline void build_record(std::byte* slot, const RecordFields& fields) {
  begin_record(slot) = fields;
}

// Decodes a private copy of a record (kRecordBytes, 8-byte aligned). False if its root is not
// build_record's or an enumerant is unknown: the writer is broken or hostile. Does not throw.
bool read_record(const std::byte* copy, RecordFields& fields);

}  // namespace heddle::ipc
