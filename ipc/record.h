// The launch record: a plain struct on both sides, one bare Cap'n Proto segment in between.
#pragma once

#include <capnp/message.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ipc/heddle.capnp.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// The fields of wire::Record (ipc/heddle.capnp documents them).
struct RecordFields {
  uint64_t at_ns = 0;
  uint64_t stream_seq = 0;
  uint32_t kernel = kNoKernel;
  uint16_t stream = 0;
  wire::Kind kind = wire::Kind::KERNEL;
  uint32_t epoch = 0;
  uint32_t ask_seq = 0;
  wire::Admission admission = wire::Admission::LEASE;
  uint8_t device = 0;
  wire::Evidence evidence = wire::Evidence::NONE;
  float duration_us = 0;
};

// The same as a message: one segment with its root pointer, laid out as Cap'n Proto lays out this
// schema: its own builder writes the same bytes (Record.IsWhatCapnProtoBuilds), in a copy that it
// has to keep for each thread, two more cache lines that a launch finds cold.
struct EncodedRecord {
  uint64_t root = kRootIsRecord;
  uint64_t at_ns;
  uint64_t stream_seq;
  uint32_t kernel;
  uint16_t stream;
  wire::Kind kind;
  uint32_t epoch;
  uint32_t ask_seq;
  wire::Admission admission;
  uint8_t device;
  uint8_t unused_0 = 0;
  wire::Evidence evidence;
  uint16_t unused_1 = 0;
  float duration_us;
  uint32_t unused_2 = 0;
  uint64_t unused_3 = 0;

  // A struct pointer to the next word, with the data words of the schema and no pointers.
  static constexpr uint64_t kRootIsRecord =
      uint64_t{capnp::_::structSize<wire::Record>().data} << 32 |
      uint64_t{capnp::_::structSize<wire::Record>().pointers} << 48;
};
static_assert(sizeof(EncodedRecord) == kRecordBytes && std::endian::native == std::endian::little);

// `slot`: kRecordBytes, 8-byte aligned.
inline void build_record(std::byte* slot, const RecordFields& f) {
  EncodedRecord r;
  r.at_ns = f.at_ns;
  r.stream_seq = f.stream_seq;
  r.kernel = f.kernel;
  r.stream = f.stream;
  r.kind = f.kind;
  r.epoch = f.epoch;
  r.ask_seq = f.ask_seq;
  r.admission = f.admission;
  r.device = f.device;
  r.evidence = f.evidence;
  r.duration_us = f.duration_us;
  std::memcpy(slot, &r, sizeof r);
}

// Decodes a private copy of a record (kRecordBytes, 8-byte aligned). False if it is malformed or
// an enumerant is unknown: the writer is broken or hostile. Does not throw.
bool read_record(const std::byte* copy, RecordFields& fields);

}  // namespace heddle::ipc
