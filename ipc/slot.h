// The slot where a thread waits for its ticket, if its launch cannot wait on the GPU (ipc/gate.h).
//
//   client  writes a record with the ticket into its ring; the record says that the thread waits
//   daemon  stores the ticket's key in `granted`
//
// Each thread waits for one ticket at a time. The slot lies in memory that only the daemon writes,
// and also says on which SMs the launch runs. Parametrized on the two structs and on a fault hook,
// as the rings are.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/fault.h"
#include "ipc/layout.h"

namespace heddle::ipc {

struct Grant {
  SmSet sm_set{};
  int32_t launch_priority = 0;
};
// The launch was let go without a decision: it runs on its client's general terms.
inline constexpr int32_t kNoVerdict = INT32_MIN;

// A thread has one slot for all devices, and each device numbers its own tickets, so the key has
// both. A key is used again after 2^28 tickets.
constexpr uint32_t slot_key(uint32_t ticket, uint32_t device) { return ticket << 4 | device; }
static_assert(kDevices <= 16);

// ---- client side, by the thread that owns the slot ----

template <class Slot>
bool slot_granted(const Slot& grant, uint32_t key) {
  return grant.granted.load(std::memory_order_acquire) == key;
}

template <class Slot>
Grant slot_grant(const Slot& grant) {
  return {SmSet(grant.sm_set.load(std::memory_order_relaxed)),
          grant.launch_priority.load(std::memory_order_relaxed)};
}

// Sleeps until the grant word changes, by `sleep(seen)`, a FUTEX_WAIT on it; returns at once if the
// grant is there. The daemon stores the word, then checks whether the thread sleeps (slot_sleeps).
template <class Block, class Slot, class Sleep>
void slot_sleep(Block& block, const Slot& grant, uint32_t key, Sleep&& sleep) {
  block.waiting.store(1, std::memory_order_seq_cst);
  const uint32_t seen = grant.granted.load(std::memory_order_seq_cst);
  if (seen != key) sleep(seen);
  block.waiting.store(0, std::memory_order_relaxed);
}

// ---- daemon side ----

// Publishes the grant. If the thread sleeps, the caller must wake it: see slot_sleeps.
template <class Fault = FaultPoint, class Slot>
void slot_answer(Slot& grant, uint32_t key, const Grant& answer) {
  grant.sm_set.store(answer.sm_set.bits(), std::memory_order_relaxed);
  grant.launch_priority.store(answer.launch_priority, std::memory_order_relaxed);
  Fault::at("slot: answer written, not published");
  grant.granted.store(key, std::memory_order_release);
  Fault::at("slot: answer published");
}

// To be called after slot_answer, once for several answers: the fence takes long, because it waits
// until all other processors see them.
inline void slot_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Called after that fence: true if the caller must wake the thread by FUTEX_WAKE on
// `GrantSlot::granted`.
template <class Block>
bool slot_sleeps(const Block& block) {
  return block.waiting.load(std::memory_order_relaxed) != 0;
}

}  // namespace heddle::ipc
