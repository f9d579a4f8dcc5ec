#include "daemon/trace/ring.h"

#include <algorithm>
#include <cstring>

namespace heddle::trace {

bool Recorder::put(std::span<const std::byte> record) {
  const uint64_t used = head_ - ring_.tail.load(std::memory_order_acquire);
  if (used > kRingBytes || kRingBytes - used < record.size()) return false;
  const size_t at = head_ % kRingBytes;
  const size_t first = std::min(record.size(), kRingBytes - at);
  std::memcpy(ring_.bytes + at, record.data(), first);
  std::memcpy(ring_.bytes, record.data() + first, record.size() - first);
  head_ += record.size();
  ring_.records.fetch_add(1, std::memory_order_relaxed);
  ring_.head.store(head_, std::memory_order_release);
  encoder_.kept();
  return true;
}

void Recorder::write(std::span<const std::byte> record) {
  if (lost_ == 0) {
    if (put(record)) return;
  } else {
    // What is lost is said where it is missing, before anything else. The record's bytes are the
    // encoder's, so that it is lost as well; it is the next one that is kept.
    if (put(encoder_.lost(lost_ + 1))) {
      lost_ = 0;
      ring_.dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  ++lost_;
  ring_.dropped.fetch_add(1, std::memory_order_relaxed);
}

void take(Ring& ring, std::string& out) {
  const uint64_t head = ring.head.load(std::memory_order_acquire);
  uint64_t tail = ring.tail.load(std::memory_order_relaxed);
  while (tail < head) {
    const size_t at = tail % kRingBytes;
    const size_t part = std::min<uint64_t>(head - tail, kRingBytes - at);
    out.append(ring.bytes + at, part);
    tail += part;
  }
  ring.tail.store(tail, std::memory_order_release);
}

std::string end_of(const Ring& ring) {
  Encoder encoder;
  const auto bytes = encoder.end(ring.records.load(std::memory_order_relaxed),
                                 ring.dropped.load(std::memory_order_relaxed));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace heddle::trace
