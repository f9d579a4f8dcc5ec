#include "ipc/record.h"

#include <cstddef>
#include <cstring>

namespace heddle::ipc {
namespace {

constexpr uint16_t kLastKind = static_cast<uint16_t>(wire::Kind::STREAM_END);
constexpr uint16_t kLastAdmission = static_cast<uint16_t>(wire::Admission::UNMANAGED);
constexpr uint16_t kLastEvidence = static_cast<uint16_t>(wire::Evidence::FAILED);

}  // namespace

bool read_record(const std::byte* copy, RecordFields& fields) {
  uint64_t root;
  std::memcpy(&root, copy, sizeof root);
  if (root != kRootIsRecord) return false;
  std::memcpy(&fields, copy + sizeof root, sizeof fields);
  // The schema's Bool is one bit. The other seven bits are unused, and a C++ bool must not have
  // them.
  reinterpret_cast<std::byte*>(&fields)[offsetof(RecordFields, unmovable)] &= std::byte{1};
  return static_cast<uint16_t>(fields.kind) <= kLastKind &&
         static_cast<uint16_t>(fields.admission) <= kLastAdmission &&
         static_cast<uint16_t>(fields.evidence) <= kLastEvidence;
}

}  // namespace heddle::ipc
