#include "ipc/record.h"

#include <cstring>

namespace heddle::ipc {
namespace {

constexpr size_t kRecordWords = kRecordBytes / sizeof(capnp::word);
constexpr uint16_t kLastKind = static_cast<uint16_t>(wire::Kind::STREAM_END);
constexpr uint16_t kLastAdmission = static_cast<uint16_t>(wire::Admission::UNMANAGED);
constexpr uint16_t kLastEvidence = static_cast<uint16_t>(wire::Evidence::FAILED);

}  // namespace

// A root that is any other was not built by build_record, and refusing it keeps the decoder from
// following a pointer that a client made up.
bool read_record(const std::byte* copy, RecordFields& fields) {
  uint64_t root;
  std::memcpy(&root, copy, sizeof root);
  if (root != kRootIsRecord) return false;
  const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(copy),
                                                kRecordWords);
  const kj::ArrayPtr<const capnp::word> segments[1] = {segment};
  capnp::SegmentArrayMessageReader message(segments);
  const auto record = message.getRoot<wire::Record>();
  fields = {.at_ns = record.getAtNs(),
            .stream_seq = record.getStreamSeq(),
            .kernel = record.getKernel(),
            .stream = record.getStream(),
            .kind = record.getKind(),
            .epoch = record.getEpoch(),
            .ask_seq = record.getAskSeq(),
            .admission = record.getAdmission(),
            .device = record.getDevice(),
            .unmovable = record.getUnmovable(),
            .evidence = record.getEvidence(),
            .duration_us = record.getDurationUs()};
  return static_cast<uint16_t>(fields.kind) <= kLastKind &&
         static_cast<uint16_t>(fields.admission) <= kLastAdmission &&
         static_cast<uint16_t>(fields.evidence) <= kLastEvidence;
}

}  // namespace heddle::ipc
