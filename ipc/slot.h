// The ask slot: how one thread asks for a launch and learns the answer.
//
//   client  ask_word: IDLE -> ASKED(seq) -> IDLE        the grant came
//                                       \-> SELF(seq)   it did not come in time: launched anyway
//   daemon  granted : ... -> seq
//
// Each thread has one ask at a time, so order within a thread holds by construction. A grant may
// cross a time-out: then both SELF(seq) and granted == seq stand, the launch ran once, and the
// daemon reconciles when it sees SELF. Parametrized on the two structs and on a fault hook, so that
// tests/unit/slot_model_test.cc explores this very code, one access to shared memory at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "ipc/layout.h"
#include "ipc/ring.h"

namespace heddle::ipc {

struct Grant {
  uint32_t credit_us = 0;
  uint32_t epoch = 0;
  SmSet sm_set{};
  int32_t launch_priority = 0;
};

// ---- client side, by the thread that owns the slot ----

template <class Fault = FaultPoint, class Block, class Build>
void slot_ask(Block& block, uint32_t seq, Build&& build) {
  build(block.ask_record);
  Fault::at("slot: ask written, not published");
  block.ask_word.store(pack_ask(AskState::kAsked, seq), std::memory_order_seq_cst);
  Fault::at("slot: ask published");
}

template <class Slot>
bool slot_granted(const Slot& grant, uint32_t seq) {
  return grant.granted.load(std::memory_order_acquire) == seq;
}

template <class Slot>
Grant slot_grant(const Slot& grant) {
  return {grant.credit_us.load(std::memory_order_relaxed),
          grant.epoch.load(std::memory_order_relaxed),
          SmSet(grant.sm_set.load(std::memory_order_relaxed)),
          grant.launch_priority.load(std::memory_order_relaxed)};
}

template <class Fault = FaultPoint, class Block>
void slot_close(Block& block, uint32_t seq) {
  Fault::at("slot: granted, not closed");
  block.ask_word.store(pack_ask(AskState::kIdle, seq), std::memory_order_release);
}

template <class Fault = FaultPoint, class Block>
void slot_withdraw(Block& block, uint32_t seq) {
  Fault::at("slot: given up, not withdrawn");
  block.ask_word.store(pack_ask(AskState::kSelf, seq), std::memory_order_seq_cst);
  Fault::at("slot: withdrawn");
}

// Sleeps until the grant word moves, by `sleep(seen)`, a FUTEX_WAIT on it; or not at all if the
// grant is there. The daemon stores the word, then looks whether anybody sleeps (slot_sleeps).
template <class Block, class Slot, class Sleep>
void slot_sleep(Block& block, const Slot& grant, uint32_t seq, Sleep&& sleep) {
  block.waiting.store(1, std::memory_order_seq_cst);
  const uint32_t seen = grant.granted.load(std::memory_order_seq_cst);
  if (seen != seq) sleep(seen);
  block.waiting.store(0, std::memory_order_relaxed);
}

// ---- daemon side ----

// Word by word and acquiring, because the thread may be writing its next ask meanwhile.
inline void copy_ask(const std::byte (&record)[kRecordBytes], std::byte* copy) {
  const auto* words = reinterpret_cast<const uint64_t*>(record);
#pragma GCC unroll 8
  for (size_t i = 0; i < kRecordBytes / sizeof(uint64_t); ++i) {
    const uint64_t value = __atomic_load_n(words + i, __ATOMIC_ACQUIRE);
    std::memcpy(copy + i * sizeof value, &value, sizeof value);
  }
}

// Copies the record of an ask that is newer than `last_seen`; false if there is none. A word that
// changes while the record is copied is not believed: the next poll looks again.
template <class Fault = FaultPoint, class Block>
bool slot_poll(const Block& block, uint32_t last_seen, uint32_t& seq, std::byte* copy) {
  const uint64_t word = block.ask_word.load(std::memory_order_seq_cst);
  seq = static_cast<uint32_t>(word);
  if (word != pack_ask(AskState::kAsked, seq) || seq == last_seen) return false;
  copy_ask(block.ask_record, copy);
  Fault::at("slot: ask copied");
  return block.ask_word.load(std::memory_order_relaxed) == word;
}

// True if the thread gave up waiting for `seq` and launched by itself.
template <class Block>
bool slot_withdrawn(const Block& block, uint32_t seq) {
  return block.ask_word.load(std::memory_order_acquire) == pack_ask(AskState::kSelf, seq);
}

// Publishes the grant. The thread may sleep: see slot_sleeps.
template <class Fault = FaultPoint, class Slot>
void slot_answer(Slot& grant, uint32_t seq, const Grant& answer) {
  grant.credit_us.store(answer.credit_us, std::memory_order_relaxed);
  grant.epoch.store(answer.epoch, std::memory_order_relaxed);
  grant.sm_set.store(answer.sm_set.bits(), std::memory_order_relaxed);
  grant.launch_priority.store(answer.launch_priority, std::memory_order_relaxed);
  Fault::at("slot: answer written, not published");
  grant.granted.store(seq, std::memory_order_release);
  Fault::at("slot: answer published");
}

// Behind slot_answer, of several if there are, for it waits until all other processors see them.
inline void slot_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Behind that fence: true if the thread must be woken by FUTEX_WAKE on `GrantSlot::granted`.
template <class Block>
bool slot_sleeps(const Block& block) {
  return block.waiting.load(std::memory_order_relaxed) != 0;
}

}  // namespace heddle::ipc
