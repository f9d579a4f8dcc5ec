// A thread's stay inside a session: its slot, its ring, its records.
//
// Entering costs a few loads and one plain store; no lock, no fence: the helper thread pays for
// both sides with membarrier() before it unmaps anything. A stay does not nest: what a profiler's
// callback or a signal handler calls inside one passes through. It covers no synchronizing call of
// the application; but at first sight of a kernel its code is loaded, which may synchronize.
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
  float us = 0;          // predicted, of all of them
  int64_t begun_ns = 0;  // when the first was launched
};

// Process-local half of a ThreadBlock; slot i uses ThreadBlock i and GrantSlot i of every session.
struct alignas(64) ThreadSlot {
  // What each launch reads and writes: one cache line.
  std::atomic<Session*> inside{nullptr};
  uint64_t generation = 0;            // of the session it last used
  ipc::ThreadBlock* block = nullptr;  // its own there
  // The launch that this thread has in hand, from before it takes its number until the driver has
  // it: stream index << kStreamShift | a number that its own is not below. 0: none.
  std::atomic<uint64_t> in_hand{0};
  static constexpr int kStreamShift = 48;
  uint32_t index = 0;
  uint32_t owners = 0;  // how many threads have had it; the present one is the last
  uint32_t launches = 0;
  uint32_t unreported = 0;  // launches not yet added to the shared counter
  uint32_t tail_seen = 0;   // of this session's ring

  std::atomic<const void*> owner{nullptr};  // address of the owner's thread-local variable
  std::atomic<int64_t> blocked_ns{0};       // inside a synchronizing call since then; 0: it is not
  Unit unit;
};
extern ThreadSlot thread_slots[ipc::kThreads];

// True if some thread has been in a synchronizing call since `since_ns` or longer.
bool anyone_blocked(int64_t since_ns);

// This thread's slot, taken at the first call; nullptr where all are taken.
ThreadSlot* own_slot();
// The same as it was last seen; nullptr before the first call.
extern __thread ThreadSlot* my_slot __attribute__((tls_model("initial-exec")));

// This thread's launches that went by unobserved (unobserved.h) and are not in the shared counter.
extern __thread uint32_t unobserved_launches __attribute__((tls_model("initial-exec")));

// A launch of a thread that found no slot: counted as SELF_POOL by the next one that has one.
void count_without_slot();

// The slots in use. A thread that took a number before the caller read it is among them.
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
  // Outside, until enter_known().
  explicit Inside(std::nullptr_t) {}
  ~Inside() { leave(); }
  enum class Entry : uint8_t {
    kIn,
    kNoSession,
    kNoSlot,  // all are taken
    kBarred,  // bypass, or a stay further up the stack
  };
  // Enters, after leaving, whatever session is current by now.
  Entry enter_again() {
    if (__atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) != 0) return Entry::kBarred;
    Session* session = guard().current.load(std::memory_order_acquire);
    // A detached one answers nobody; its successor is on the way.
    if (session == nullptr || session->detached.load(std::memory_order_relaxed)) {
      return Entry::kNoSession;
    }
    return enter(session);
  }
  // The usual case, where there is no bypass: enters the current session if this thread has been
  // there before.
  bool enter_known();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  explicit operator bool() const { return session_ != nullptr; }
  void leave() {
    if (session_ == nullptr) return;
    thread_->inside.store(nullptr, std::memory_order_release);
    session_ = nullptr;
  }

  // Only where there is a session, which the analyzer does not follow through all of Leased.
  ThreadSlot& thread() const { return *thread_; }
  Session& session() const { return *session_; }
  const ipc::ControlMemory& control() const {
    return *session_->control;  // NOLINT(clang-analyzer-core.NullDereference)
  }
  ipc::ThreadBlock& block() const { return *thread_->block; }
  const ipc::GrantSlot& grant() const { return session_->control->grants[thread_->index]; }

  // Publishes a record in the thread's ring, and rings the doorbell if the daemon wants to be woken
  // for every record; now and then only, unless it is `urgent`. A full ring drops the record,
  // counted.
  void post(const ipc::RecordFields& fields, bool urgent = false);
  // The same of what `fill(ipc::RecordFields&)` makes of a default one, without a call, and without
  // the ring of the doorbell: that is the caller's, with a fence in between.
  template <class Fill>
  void post_silently(Fill&& fill);
  // Rings if the daemon's `sleeping` word is at least `least`; not again at once if `seldom`.
  void ring(ipc::Sleep least, bool seldom = false);
  // Counts one launch under `admission`, for `heddle ps`.
  void count(wire::Admission admission) {
    // In lots, so that threads do not fight for the shared counter's line.
    constexpr uint32_t kReportLaunches = 64;
    if (admission > wire::Admission::ASK) return count_self(admission);
    if (++thread_->unreported >= kReportLaunches || unobserved_launches != 0) [[unlikely]]
      report_launches();
  }
  // Adds what this thread has counted, and launched unobserved, to what `heddle ps` shows.
  void report_launches();
  // Of kernels on the device.
  const ipc::DeviceHints& hints(int device) const {
    const auto index = static_cast<uint32_t>(device);
    return control().hints[index < ipc::kDevices ? index : 0];
  }
  // Somebody less important waits.
  bool contended() const { return control().header.contended.load(std::memory_order_relaxed) != 0; }
  // False while this client launches freely on the device.
  bool asks(uint8_t device) const {
    return control().devices[device].leased.load(std::memory_order_relaxed) == 0;
  }
  // Counts one of that; outside it does nothing.
  using Counter = std::atomic<uint64_t> ipc::ClientMemory::Counters::*;
  void count(Counter counter);
  // Counts one launch that is to be on an SM set: on it, or not.
  void count_on_sm_set(bool moved);
  void count_twin_launch();
  // One executable graph, by what became of it: a byte of Counters::graphs.
  void count_graph(unsigned fate) const;

 private:
  Entry enter(Session* session);
  static bool announce(ThreadSlot& slot, Session* session);
  // True: the ring fills up, and the daemon must see to it.
  template <class Fill>
  bool push(Fill&& fill, std::memory_order publish);
  void ring_doorbell(bool seldom);
  void count_self(wire::Admission admission);

  ThreadSlot* thread_ = nullptr;
  Session* session_ = nullptr;
};

// ---- on the way of each launch ----

// Announces the stay, then looks whether the session is still the current one. The compiler must
// keep the order; the processor may not, which membarrier() in helper.cc makes up for.
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
  // Only from here on does the session stay the one that it is.
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
  // After a fence that follows the store which published the record: either the daemon sees
  // that before it sleeps, or we see that it sleeps.
  if (control().sleeping.load(std::memory_order_seq_cst) >= least) [[unlikely]]
    ring_doorbell(seldom);
}

// ---- for the helper thread and for on_driver_initialized ----

void create_thread_key();                    // once a process
void forget_threads();                       // in a forked child
bool anyone_inside(const Session& session);  // after a membarrier()
void wake_waiters(const Session& session);

}  // namespace heddle::shim
