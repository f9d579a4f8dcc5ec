// A single-producer, single-consumer ring of fixed records in shared memory.
//
// The producer is one thread of a client that may die between any two stores; the consumer is the
// daemon, which trusts neither cursor nor contents. Parametrized on the atomic word and on a fault
// hook that runs between stores, so that tests and a model checker drive this very code.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "ipc/fault.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// Called by the thread that owns the ring. Publishes what `build(std::byte*)` writes; false if the
// ring is full (the record is dropped: completions are cumulative, so a later one covers it).
// `tail_seen` is private to the producer, 0 for a fresh ring: the tail as the producer last read
// it. The tail is read again only when the ring may be half full.
// `publish`: sequentially consistent if the producer reads the daemon's `sleeping` word next (shim:
// Inside::ring), so that either the daemon sees the record before it sleeps, or the producer sees
// that the daemon sleeps; otherwise at least release.
template <class Fault = FaultPoint, class Word, class Build>
[[gnu::always_inline]] inline bool ring_push(
    Word& head_word, const Word& tail_word, uint32_t& tail_seen, std::byte (*ring)[kRecordBytes],
    Build&& build, std::memory_order publish = std::memory_order_seq_cst) {
  const uint32_t head = head_word.load(std::memory_order_relaxed);
  if (head + 1 - tail_seen >= kRingRecords / 2) {
    tail_seen = tail_word.load(std::memory_order_acquire);
    if (head - tail_seen >= kRingRecords) return false;
  }
  // The daemon's processor read the next record's cache line last: fetch it before it is needed.
  __builtin_prefetch(ring[(head + 1) % kRingRecords], 1);
  build(ring[head % kRingRecords]);
  Fault::at("ring: record written, not published");
  head_word.store(head + 1, publish);
  Fault::at("ring: record published");
  return true;
}

// Prefetches the cache lines that the next ring_push writes, for a caller whose work may have
// evicted them.
template <class Word>
void ring_prefetch(const Word& head_word, const std::byte (*ring)[kRecordBytes]) {
  __builtin_prefetch(&head_word, 1);
  __builtin_prefetch(ring[head_word.load(std::memory_order_relaxed) % kRingRecords], 1);
}

// Called by the daemon. Copies each new record out, then hands the copy to `take(const
// std::byte*)`, at most `most` of them; the next call takes the rest. `cursor` is private to the
// daemon. Returns the number taken, or -1 if the client's head is impossible (more than a ring
// ahead): the daemon must not trust the client any longer.
template <class Fault = FaultPoint, class Word, class Take>
int ring_drain(const Word& head_word, Word& tail_word, uint32_t& cursor,
               const std::byte (*ring)[kRecordBytes], Take&& take, uint32_t most = kRingRecords) {
  const uint32_t head = head_word.load(std::memory_order_seq_cst);
  const uint32_t fresh = head - cursor;
  if (fresh > kRingRecords) return -1;
  const uint32_t taken = fresh < most ? fresh : most;
  for (uint32_t i = 0; i < taken; ++i) {
    alignas(64) std::byte copy[kRecordBytes];
    std::memcpy(copy, ring[cursor % kRingRecords], kRecordBytes);
    ++cursor;
    tail_word.store(cursor, std::memory_order_release);
    Fault::at("ring: record copied");
    take(static_cast<const std::byte*>(copy));
  }
  return static_cast<int>(taken);
}

}  // namespace heddle::ipc
