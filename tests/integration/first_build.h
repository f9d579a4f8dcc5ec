// What shim and daemon of protocol 1's first build (833c7dc) share, written down by hand: all words
// that came later lie in padding of these, are zero where an older build wrote, and are not looked
// at by one that reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ipc/layout.h"
#include "ipc/record.h"

namespace heddle::first_build {

struct alignas(64) Header {
  uint32_t magic, version;
  int64_t heartbeat_ns;
  uint32_t bypass, starvation_ms, spin_us, contended;
};
static_assert(sizeof(Header) == sizeof(ipc::ControlMemory::Header) &&
              offsetof(Header, contended) == offsetof(ipc::ControlMemory::Header, contended));

struct alignas(64) Counters {
  uint32_t threads_used;
  uint64_t launches, self[16], marker_errors;
};
static_assert(sizeof(Counters) == sizeof(ipc::ClientMemory::Counters) &&
              offsetof(Counters, marker_errors) ==
                  offsetof(ipc::ClientMemory::Counters, marker_errors));

struct Attached {
  uint32_t magic = ipc::kControlMagic, version = 1, managed = 0, priority = 0;
  uint64_t client_id = 0;
  char rule[128] = {}, reason[256] = {};
};
static_assert(sizeof(Attached) == sizeof(ipc::Attached) &&
              offsetof(Attached, reason) == offsetof(ipc::Attached, reason));

// A record in its ring: Cap'n Proto's root pointer to six data words, and those.
struct Record {
  uint64_t root = uint64_t{6} << 32;
  uint64_t at_ns = 0, stream_seq = 0;
  uint32_t kernel = 0;
  uint16_t stream = 0, kind = 0;
  uint32_t epoch = 0, ask_seq = 0;
  uint16_t admission = 0;
  uint8_t device = 0, padding = 0;
  uint16_t evidence = 0, padding_too = 0;
  float duration_us = 0;
  uint32_t more_padding = 0;
  uint64_t unused = 0;
};
static_assert(sizeof(Record) == ipc::kRecordBytes);

// A record of today as the first build wrote it.
inline Record record_of(const ipc::RecordFields& fields) {
  Record old;
  old.at_ns = fields.at_ns;
  old.stream_seq = fields.stream_seq;
  old.kernel = fields.kernel;
  old.stream = fields.stream;
  old.kind = static_cast<uint16_t>(fields.kind);
  old.epoch = fields.epoch;
  old.ask_seq = fields.ask_seq;
  old.admission = static_cast<uint16_t>(fields.admission);
  old.device = fields.device;
  old.evidence = static_cast<uint16_t>(fields.evidence);
  old.duration_us = fields.duration_us;
  return old;
}

// Its Attach of one device with 64 SMs, as Cap'n Proto lays it out, with no texts.
inline std::vector<std::byte> attach_packet(int priority) {
  const struct {
    uint32_t segments_less_one = 0, words = 8;
    uint64_t root = uint64_t{1} << 32 | uint64_t{1} << 48;    // Message: a word, a pointer
    uint64_t what = 0;                                        // an Attach
    uint64_t attach = uint64_t{3} << 32 | uint64_t{2} << 48;  // three words, two pointers
    uint32_t protocol = 1;
    uint8_t priority_and_default, mps = 0, padding[2] = {};
    uint32_t driver_version = 13000, device_count = 1, sm_count = 64, more_padding = 0;
    uint64_t texts[2] = {};
  } packet{.priority_and_default = static_cast<uint8_t>(priority ^ -1)};
  static_assert(sizeof packet == 9 * sizeof(uint64_t));
  std::vector<std::byte> bytes(sizeof packet);
  std::memcpy(bytes.data(), &packet, sizeof packet);
  return bytes;
}

}  // namespace heddle::first_build
