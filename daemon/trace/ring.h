// How a recording leaves the daemon: a ring of bytes in shared memory, made by the daemon, emptied
// by `heddle record`. The daemon makes no system call and never waits for the reader: what does not
// fit is dropped and counted. Lock-free, one writer, one reader.
//
// The writer trusts nothing that the reader can write: `tail` decides only how much is dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/core/decision.h"
#include "daemon/trace/encoder.h"

namespace heddle::trace {

// A second of a million small records.
inline constexpr size_t kRingBytes = 16 << 20;

struct Ring {
  alignas(64) std::atomic<uint64_t> head{0};  // bytes written, by the daemon
  std::atomic<uint64_t> dropped{0};           // records, by the daemon
  std::atomic<uint64_t> records{0};           // written, by the daemon
  alignas(64) std::atomic<uint64_t> tail{0};  // bytes taken, by the reader
  alignas(64) char bytes[kRingBytes];
};

// The daemon's side; loop thread only. Owns nothing: the ring must outlive it.
class Recorder {
 public:
  explicit Recorder(Ring& ring) : ring_(ring) {}

  void event(const core::Event& e, bool introduced = false) {
    write(encoder_.event(e, introduced));
  }
  void decision(const core::Decision& d) { write(encoder_.decision(d)); }
  void device(const core::Config& config, core::TimeNs at, bool fresh) {
    write(encoder_.device(config, at, fresh));
  }
  void policy(const PolicyRecord& p) { write(encoder_.policy(p)); }
  void bypass(const BypassRecord& b) { write(encoder_.bypass(b)); }

 private:
  void write(std::span<const std::byte> record);
  bool put(std::span<const std::byte> record);

  Ring& ring_;
  Encoder encoder_;
  uint64_t head_ = 0;
  uint64_t lost_ = 0;  // since the last record that was kept
};

// The reader's side: appends what has come since to `out`, at most what the ring holds.
void take(Ring& ring, std::string& out);

// The end record of what take() gave so far, once the daemon has stopped writing.
std::string end_of(const Ring& ring);

}  // namespace heddle::trace
