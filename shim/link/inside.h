// A thread's stay inside a session: its slot, its ring, its records.
//
// Entering costs a few loads and one plain store, without a lock or a fence: the helper thread pays
// for both sides with membarrier() before it unmaps a session. Stays do not nest: a launch by a
// profiler's callback or a signal handler inside a stay passes through. No stay lasts over a
// synchronizing call of the application. But the first sight of a kernel loads its code, and that
// may synchronize.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/record.h"
#include "ipc/ring.h"
#include "shim/link/session.h"

namespace heddle::shim {

// The launches of a thread that share a gate (shim/gate/unit.h).
struct Unit {
  const void* stream = nullptr;  // its StreamSlot; nullptr: there is no unit
  uint32_t ticket = 0;
  float us = 0;          // predicted time of all its launches
  int64_t begun_ns = 0;  // when the first was launched
};

// Process-local half of a ThreadBlock; slot i uses ThreadBlock i and GrantSlot i of every session.
struct alignas(64) ThreadSlot {
  // What each launch reads and writes: one cache line.
  std::atomic<Session*> inside{nullptr};
  uint64_t generation = 0;            // of the session it last used
  ipc::ThreadBlock* block = nullptr;  // this slot's, in that session
  // The launch that this thread has in hand, from before it takes its number until the driver has
  // it: stream index << kStreamShift | a lower bound of its number. 0: none.
  std::atomic<uint64_t> in_hand{0};
  static constexpr int kStreamShift = 48;
  uint32_t index = 0;
  uint32_t owners = 0;  // how many threads have had the slot, with the present one
  uint32_t launches = 0;
  uint32_t unreported = 0;  // launches not yet added to the shared counter
  uint32_t tail_seen = 0;   // the ring's tail when it was last read

  std::atomic<const void*> owner{nullptr};  // address of the owner's thread-local variable
  std::atomic<int64_t> blocked_ns{0};       // when its synchronizing call began; 0: in none
  Unit unit;
};
extern ThreadSlot thread_slots[ipc::kThreads];

// True if some thread has been in a synchronizing call since `since_ns` or longer.
bool anyone_blocked(int64_t since_ns);

// This thread's slot, taken at the first call; nullptr if all slots are taken.
ThreadSlot* own_slot();
// What own_slot() returned last, which may be the parent's after a fork; nullptr: not called yet.
extern __thread ThreadSlot* my_slot __attribute__((tls_model("initial-exec")));

// This thread's unobserved launches (unobserved.h) that are not yet in the shared counter.
extern __thread uint32_t unobserved_launches __attribute__((tls_model("initial-exec")));

// Counts a launch of a thread without a slot. The next report of a thread with one adds it to
// SELF_POOL.
void count_without_slot();

// Visits the slots in use. If the caller has read a stream's `posted` with acquire order, these
// include the slot of each thread that took one of those numbers.
template <class Visit>
void for_each_thread(Visit&& visit) {
  uint64_t used = guard().threads.load(std::memory_order_relaxed);
  for (; used != 0; used &= used - 1) visit(thread_slots[__builtin_ctzll(used)]);
}

extern "C" uint32_t heddle_shim_bypass;

class Inside {
 public:
  Inside() {
    if (__atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) != 0) return;
    if (Session* session = guard().current.load(std::memory_order_acquire)) enter(session);
  }
  // Starts outside; enter_known() enters.
  explicit Inside(std::nullptr_t) {}
  ~Inside() { leave(); }
  enum class Entry : uint8_t {
    kIn,
    kNoSession,
    kNoSlot,  // all are taken
    kBarred,  // bypass, or a stay further up the stack
  };
  // After leave(): enters the session that is current by now.
  Entry enter_again() {
    if (__atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) != 0) return Entry::kBarred;
    Session* session = guard().current.load(std::memory_order_acquire);
    // A detached session gets no answer any more; the helper is making the next one.
    if (session == nullptr || session->detached.load(std::memory_order_relaxed)) {
      return Entry::kNoSession;
    }
    return enter(session);
  }
  // The short way, without a look at the bypass: enters the current session if this thread has used
  // it before.
  bool enter_known();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  explicit operator bool() const { return session_ != nullptr; }
  void leave() {
    if (session_ == nullptr) return;
    thread_->inside.store(nullptr, std::memory_order_release);
    session_ = nullptr;
  }

  // Valid only inside a session. (The analyzer cannot follow that through all of Leased.)
  ThreadSlot& thread() const { return *thread_; }
  Session& session() const { return *session_; }
  const ipc::ControlMemory& control() const {
    return *session_->control;  // NOLINT(clang-analyzer-core.NullDereference)
  }
  ipc::ThreadBlock& block() const { return *thread_->block; }
  const ipc::GrantSlot& grant() const { return session_->control->grants[thread_->index]; }

  // Publishes a record in the thread's ring. If the daemon wants to be woken for every record,
  // rings the doorbell: each time if `urgent`, now and then otherwise. A full ring drops the
  // record, and counts it.
  void post(const ipc::RecordFields& fields, bool urgent = false);
  // The same, inlined, with a default record that `fill(ipc::RecordFields&)` completes. Does not
  // ring the doorbell: the caller must do so, with a fence in between.
  template <class Fill>
  void post_silently(Fill&& fill);
  // Rings if the daemon's `sleeping` word is at least `least`. If `seldom`, not so soon after the
  // last ring (kRungNs).
  void ring(ipc::Sleep least, bool seldom = false);
  // Counts one launch under `admission`, for `heddle ps`.
  void count(wire::Admission admission) {
    // 64 at a time, so that threads do not contend for the shared counter's cache line.
    constexpr uint32_t kReportLaunches = 64;
    if (admission > wire::Admission::ASK) return count_self(admission);
    if (++thread_->unreported >= kReportLaunches || unobserved_launches != 0) [[unlikely]]
      report_launches();
  }
  // Adds this thread's counts to the shared counters that `heddle ps` shows.
  void report_launches();
  // The hints for kernels on the device.
  const ipc::DeviceHints& hints(int device) const {
    const auto index = static_cast<uint32_t>(device);
    return control().hints[index < ipc::kDevices ? index : 0];
  }
  // A less important client waits.
  bool contended() const { return control().header.contended.load(std::memory_order_relaxed) != 0; }
  // False while the client is leased on the device, and needs no tickets there.
  bool asks(uint8_t device) const {
    return control().devices[device].leased.load(std::memory_order_relaxed) == 0;
  }
  // Adds one to a shared counter; outside a session it does nothing.
  using Counter = std::atomic<uint64_t> ipc::ClientMemory::Counters::*;
  void count(Counter counter);
  // Counts one launch with an SM set, by whether it ran there.
  void count_on_sm_set(bool moved);
  void count_twin_launch();
  // Counts one executable graph by its GraphFate (twins.h): a byte of Counters::graphs.
  void count_graph(unsigned fate) const;

 private:
  Entry enter(Session* session);
  static bool announce(ThreadSlot& slot, Session* session);
  // True: the ring is half full or more, and the daemon must read it.
  template <class Fill>
  bool push(Fill&& fill, std::memory_order publish);
  void ring_doorbell(bool seldom);
  void count_self(wire::Admission admission);

  ThreadSlot* thread_ = nullptr;
  Session* session_ = nullptr;
};

// ---- on the way of each launch ----

// Announces the stay, then looks whether the session is still the current one. The compiler keeps
// that order because of the atomic_signal_fence. The processor may reorder the two: membarrier() in
// helper.cc makes up for it.
inline bool Inside::announce(ThreadSlot& slot, Session* session) {
  slot.inside.store(session, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (guard().current.load(std::memory_order_acquire) == session) [[likely]]
    return true;
  slot.inside.store(nullptr, std::memory_order_relaxed);
  return false;
}

[[gnu::always_inline]] inline bool Inside::enter_known() {
  Session* session = guard().current.load(std::memory_order_acquire);
  ThreadSlot* slot = my_slot;
  if (session == nullptr || slot == nullptr || slot->generation != session->generation ||
      slot->inside.load(std::memory_order_relaxed) != nullptr || !announce(*slot, session)) {
    return false;
  }
  thread_ = slot;
  session_ = session;
  // The session cannot be recycled from here on, so its generation can be trusted.
  if (slot->generation == session->generation) [[likely]]
    return true;
  leave();
  return false;
}

template <class Fill>
[[gnu::always_inline]] inline bool Inside::push(Fill&& fill, std::memory_order publish) {
  ipc::ThreadBlock& own = block();
  uint32_t& tail_seen = thread_->tail_seen;
  const auto build = [&](std::byte* record) { fill(ipc::begin_record(record)); };
  const bool pushed =
      ipc::ring_push(own.ring_head, grant().ring_tail, tail_seen, own.ring, build, publish);
  if (!pushed) [[unlikely]]
    own.dropped.fetch_add(1, std::memory_order_relaxed);
  const uint32_t unread = own.ring_head.load(std::memory_order_relaxed) - tail_seen;
  return !pushed || unread == ipc::kRingRecords / 2;
}

template <class Fill>
[[gnu::always_inline]] inline void Inside::post_silently(Fill&& fill) {
  if (push(fill, std::memory_order_release)) [[unlikely]]
    ring(ipc::kWakeOnAsk);
}

inline void Inside::ring(ipc::Sleep least, bool seldom) {
  // The caller has a fence between publishing the record and this load. So either the daemon sees
  // the record before it sleeps, or this thread sees that the daemon sleeps.
  if (control().sleeping.load(std::memory_order_seq_cst) >= least) [[unlikely]]
    ring_doorbell(seldom);
}

// ---- for the helper thread and for on_driver_initialized ----

void create_thread_key();                    // once a process
void forget_threads();                       // in a forked child
bool anyone_inside(const Session& session);  // after a membarrier()
void wake_waiters(const Session& session);

}  // namespace heddle::shim
