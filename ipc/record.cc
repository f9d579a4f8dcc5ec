#include "ipc/record.h"

#include <cstring>

namespace heddle::ipc {
namespace {

constexpr size_t kRecordWords = kRecordBytes / sizeof(capnp::word);
constexpr uint16_t kLastKind = static_cast<uint16_t>(wire::Kind::STREAM_END);
constexpr uint16_t kLastAdmission = static_cast<uint16_t>(wire::Admission::UNMANAGED);
constexpr uint16_t kLastEvidence = static_cast<uint16_t>(wire::Evidence::FAILED);

// What an in-place record must look like: a struct pointer to the next word, with exactly the data
// words of this schema and no pointers. Anything else was not built by build_record, and checking
// it here keeps the decoder from following a pointer that a client made up.
bool root_is_record(const std::byte* copy) {
  uint64_t root;
  std::memcpy(&root, copy, sizeof root);
  constexpr auto size = capnp::_::structSize<wire::Record>();
  return root == (uint64_t{size.data} << 32 | uint64_t{size.pointers} << 48);
}

}  // namespace

RecordWriter::RecordWriter()
    : message_(kj::arrayPtr(reinterpret_cast<capnp::word*>(bytes_), kRecordWords)),
      record_(message_.initRoot<wire::Record>()) {}

void RecordWriter::write(std::byte* slot, const RecordFields& fields) {
  record_.setAtNs(fields.at_ns);
  record_.setStreamSeq(fields.stream_seq);
  record_.setKernel(fields.kernel);
  record_.setStream(fields.stream);
  record_.setKind(fields.kind);
  record_.setEpoch(fields.epoch);
  record_.setAskSeq(fields.ask_seq);
  record_.setAdmission(fields.admission);
  record_.setDevice(fields.device);
  record_.setEvidence(fields.evidence);
  record_.setDurationUs(fields.duration_us);
  std::memcpy(slot, bytes_, kRecordBytes);
}

void build_record(std::byte* slot, const RecordFields& fields) {
  RecordWriter().write(slot, fields);
}

bool read_record(const std::byte* copy, RecordFields& fields) {
  if (!root_is_record(copy)) return false;
  const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(copy),
                                                kRecordWords);
  const kj::ArrayPtr<const capnp::word> segments[1] = {segment};
  capnp::SegmentArrayMessageReader message(segments);
  const auto record = message.getRoot<wire::Record>();
  fields = {record.getAtNs(),   record.getStreamSeq(), record.getKernel(),    record.getStream(),
            record.getKind(),   record.getEpoch(),     record.getAskSeq(),    record.getAdmission(),
            record.getDevice(), record.getEvidence(),  record.getDurationUs()};
  return static_cast<uint16_t>(fields.kind) <= kLastKind &&
         static_cast<uint16_t>(fields.admission) <= kLastAdmission &&
         static_cast<uint16_t>(fields.evidence) <= kLastEvidence;
}

}  // namespace heddle::ipc
