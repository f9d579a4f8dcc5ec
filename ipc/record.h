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

// The fields of wire::Record (ipc/heddle.capnp documents them), as Cap'n Proto lays them out. Its
// own builder writes the same bytes (Record.IsWhatCapnProtoBuilds), in a copy that it has to keep
// for each thread: two more cache lines that a launch finds cold. Its reader finds the same fields
// (Record.ReadsWhatCapnProtoReads), in 490 instructions where these take 30.
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
  uint32_t unused = 0;  // what is there must not be chance
};

// A struct pointer to the next word, with the data words of the schema and no pointers.
inline constexpr uint64_t kRootIsRecord =
    uint64_t{capnp::_::structSize<wire::Record>().data} << 32 |
    uint64_t{capnp::_::structSize<wire::Record>().pointers} << 48;
static_assert(sizeof(RecordFields) ==
                  capnp::_::structSize<wire::Record>().data * sizeof(uint64_t) &&
              std::endian::native == std::endian::little);

// As one segment, root pointer first. `slot`: kRecordBytes, 8-byte aligned. Its fields are as they
// are by default, to be set where they lie: a record that is made elsewhere and copied costs a
// launch the wait for its own stores.
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
