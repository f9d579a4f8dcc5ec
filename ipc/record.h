// The launch record: a plain struct on both sides, one bare Cap'n Proto segment in between.
#pragma once

#include <capnp/message.h>

#include <cstddef>
#include <cstdint>

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

// Builds one record after the other: all have one shape, so that the message is made once and only
// its fields are set anew. No allocation, never throws. Stays where it was made; one thread at a
// time.
class RecordWriter {
 public:
  RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // `slot`: kRecordBytes, 8-byte aligned.
  void write(std::byte* slot, const RecordFields& fields);

 private:
  alignas(64) std::byte bytes_[kRecordBytes] = {};
  capnp::FlatMessageBuilder message_;
  wire::Record::Builder record_;
};

// The same once, without a writer: 40 ns more.
void build_record(std::byte* slot, const RecordFields& fields);

// Decodes a private copy of a record (kRecordBytes, 8-byte aligned). False if it is malformed or
// an enumerant is unknown: the writer is broken or hostile. Does not throw.
bool read_record(const std::byte* copy, RecordFields& fields);

}  // namespace heddle::ipc
