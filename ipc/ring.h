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
// `tail_seen` is private to the producer, 0 for a fresh ring: the tail as it last saw it, which is
// looked at again only when the ring may be half full. From half on it is what the tail is.
// `publish`: sequentially consistent where the reader's `sleeping` word is read next (shim:
// Inside::ring), so that either the reader sees the record before it sleeps, or the writer that it
// sleeps; otherwise at least release.
template <class Fault = FaultPoint, class Word, class Build>
[[gnu::always_inline]] inline bool ring_push(
    Word& head_word, const Word& tail_word, uint32_t& tail_seen, std::byte (*ring)[kRecordBytes],
    Build&& build, std::memory_order publish = std::memory_order_seq_cst) {
  const uint32_t head = head_word.load(std::memory_order_relaxed);
  if (head + 1 - tail_seen >= kRingRecords / 2) {
    tail_seen = tail_word.load(std::memory_order_acquire);
    if (head - tail_seen >= kRingRecords) return false;
  }
  // The next comes over from the daemon's processor, which read it last, until it is written.
  __builtin_prefetch(ring[(head + 1) % kRingRecords], 1);
  build(ring[head % kRingRecords]);
  Fault::at("ring: record written, not published");
  head_word.store(head + 1, publish);
  Fault::at("ring: record published");
  return true;
}

// The same for what the next ring_push writes if the caller's own work may have pushed it out.
template <class Word>
void ring_prefetch(const Word& head_word, const std::byte (*ring)[kRecordBytes]) {
  __builtin_prefetch(&head_word, 1);
  __builtin_prefetch(ring[head_word.load(std::memory_order_relaxed) % kRingRecords], 1);
}

// Called by the daemon. Copies each new record out, then hands the copy to `take(const
// std::byte*)`, at most `most` of them: the rest is there the next time. `cursor` is private to the
// daemon. Returns the number taken, or -1 if the client's head is impossible (more than a ring
// ahead): the client is not to be believed any more.
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
