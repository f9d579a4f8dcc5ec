#include "shim/link/inside.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ipc/socket.h"
#include "shim/admission/rows.h"
#include "shim/admission/unobserved.h"
#include "shim/evidence/streams.h"
#include "shim/link/check.h"

namespace heddle::shim {

extern "C" {
__attribute__((visibility("default"))) constinit uint32_t heddle_shim_bypass = 0;
// `heddle doctor` reads the protocol version here, without attaching.
extern __attribute__((visibility("default"))) const uint32_t heddle_shim_protocol;
const uint32_t heddle_shim_protocol = ipc::kProtocolVersion;
}

constinit ThreadSlot thread_slots[ipc::kThreads];
constinit __thread ThreadSlot* my_slot = nullptr;

namespace {

// A ring within this time of the last one is skipped: the daemon is still waking up, or polls. The
// time is at most half of the daemon's own polling time, so that it cannot sleep again meanwhile.
constexpr int64_t kRungNs = 20'000;

static_assert(ipc::kThreads == 64, "Guarded::threads is a bitmap of them");

constinit pthread_key_t exit_key = 0;
constinit bool exit_key_made = false;

// See count_without_slot().
constinit std::atomic<uint64_t> without_slot{0};

// Unobserved launches of threads that ended before they reported them. The next report adds them.
constinit std::atomic<uint64_t> unobserved_left{0};

// Runs at thread exit, and frees the thread's slot.
void release_slot(void* value) {
  auto* slot = static_cast<ThreadSlot*>(value);
  if (slot->owner.load(std::memory_order_relaxed) != &my_slot) return;
  slot->owner.store(nullptr, std::memory_order_relaxed);
  slot->unreported += telling.untold();
  unobserved_left.fetch_add(std::exchange(unobserved_launches, 0), std::memory_order_relaxed);
  // A cancelled thread may still be inside a session, with a launch in hand.
  slot->in_hand.store(0, std::memory_order_relaxed);
  slot->blocked_ns.store(0, std::memory_order_relaxed);
  slot->inside.store(nullptr, std::memory_order_release);
  return_permits(slot->index);
  my_slot = nullptr;
  guard().threads.fetch_and(~(uint64_t{1} << slot->index), std::memory_order_release);
}

ThreadSlot* claim_slot() {
  std::atomic<uint64_t>& used = guard().threads;
  uint64_t seen = used.load(std::memory_order_relaxed);
  for (;;) {
    if (~seen == 0) return nullptr;
    const auto index = static_cast<uint32_t>(__builtin_ctzll(~seen));
    if (!used.compare_exchange_weak(seen, seen | uint64_t{1} << index, std::memory_order_acquire)) {
      continue;
    }
    ThreadSlot& slot = thread_slots[index];
    slot.index = index;
    ++slot.owners;
    slot.generation = 0;
    slot.owner.store(&my_slot, std::memory_order_relaxed);
    my_slot = &slot;
    if (exit_key_made) pthread_setspecific(exit_key, &slot);
    return &slot;
  }
}

void raise(std::atomic<uint32_t>& mark, uint32_t to) {
  uint32_t seen = mark.load(std::memory_order_relaxed);
  while (seen < to && !mark.compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
  }
}

void begin_session(ThreadSlot& slot, Session& session) {
  slot.generation = session.generation;
  slot.block = &session.client->threads[slot.index];
  slot.unit = {};
  slot.tail_seen = session.control->grants[slot.index].ring_tail.load();
  HEDDLE_FAULT_POINT("slot: taken, not counted");
  raise(session.client->counters.threads_used, slot.index + 1);
}

}  // namespace

ThreadSlot* own_slot() {
  ThreadSlot* slot = my_slot;
  // In a forked child the parent's slot has lost its owner (forget_threads).
  if (slot != nullptr && slot->owner.load(std::memory_order_relaxed) == &my_slot) return slot;
  return claim_slot();
}

void count_without_slot() { without_slot.fetch_add(1, std::memory_order_relaxed); }

[[gnu::hot]] Inside::Entry Inside::enter(Session* session) {
  ThreadSlot* slot = my_slot;
  if (slot == nullptr || slot->generation != session->generation) [[unlikely]]
    slot = own_slot();
  if (slot == nullptr) return Entry::kNoSlot;
  if (slot->inside.load(std::memory_order_relaxed) != nullptr) return Entry::kBarred;
  if (!announce(*slot, session)) return Entry::kNoSession;
  // The session cannot be recycled from here on, so its generation can be trusted.
  if (slot->generation != session->generation) [[unlikely]]
    begin_session(*slot, *session);
  thread_ = slot;
  session_ = session;
  return Entry::kIn;
}

[[gnu::hot]] void Inside::post(const ipc::RecordFields& fields, bool urgent) {
  const auto copy = [&](ipc::RecordFields& record) { record = fields; };
  const bool filling = push(copy, std::memory_order_seq_cst);
  // A client without a lease wakes the daemon early, with the completions that it reports: so the
  // daemon is awake for the client's next ticket.
  const bool early = urgent && asks(fields.device);
  ring(filling || early ? ipc::kWakeOnAsk : ipc::kWakeOnAny, !urgent && !filling);
}

void Inside::ring_doorbell(bool seldom) {
  // On a busy host the daemon may take milliseconds to wake up: one ring for each of its naps.
  const uint32_t nap = control().naps.load(std::memory_order_relaxed);
  if (nap != 0 && nap == session_->rung_nap.load(std::memory_order_relaxed)) return;
  // The time now, not the record's: this thread may have been off its processor in between.
  const int64_t now = now_ns();
  const int64_t since = now - session_->rung_ns.load(std::memory_order_relaxed);
  const int64_t polls_ns =
      int64_t{control().header.spin_us.load(std::memory_order_relaxed)} * 1'000;
  if (seldom && since < std::min(kRungNs, polls_ns / 2)) return;
  session_->rung_ns.store(now, std::memory_order_relaxed);
  const uint64_t one = 1;
  const int before = errno;  // the application's
  HEDDLE_FAULT_POINT("doorbell: about to ring");
  if (file_id(session_->doorbell) == session_->doorbell_id) {
    // Not write(), which is a cancellation point: the thread is in the session.
    syscall(SYS_write, session_->doorbell, &one, sizeof one);
    // Stored after the write: a thread that reads it skips its own ring.
    session_->rung_nap.store(nap, std::memory_order_release);
  } else {  // the application closed it, and the number may name a file of its own
    session_->detached.store(true, std::memory_order_relaxed);
  }
  errno = before;
}

void Inside::count_self(wire::Admission admission) {
  session_->client->counters.self[static_cast<size_t>(admission)].fetch_add(
      1, std::memory_order_relaxed);
}

void Inside::report_launches() {
  auto& counters = session_->client->counters;
  uint64_t unobserved = std::exchange(unobserved_launches, 0);
  if (unobserved_left.load(std::memory_order_relaxed) != 0) {
    unobserved += unobserved_left.exchange(0, std::memory_order_relaxed);
  }
  counters.launches.fetch_add(std::exchange(thread_->unreported, 0) + unobserved,
                              std::memory_order_relaxed);
  if (unobserved != 0) {
    HEDDLE_FAULT_POINT("unobserved: reported in half");
    counters.unobserved.fetch_add(unobserved, std::memory_order_relaxed);
  }
  if (without_slot.load(std::memory_order_relaxed) != 0) {
    counters.self[static_cast<size_t>(wire::Admission::SELF_POOL)].fetch_add(
        without_slot.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  if (broken_checks.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    broken_checks.fetch_sub(1, std::memory_order_relaxed);  // one a report
    count_graph(kBrokenChecks);
  }
}

void Inside::count(Counter counter) {
  if (session_ == nullptr) return;
  (session_->client->counters.*counter).fetch_add(1, std::memory_order_relaxed);
}

void Inside::count_on_sm_set(bool moved) {
  auto& counters = session_->client->counters;
  (moved ? counters.on_sm_set : counters.off_sm_set).fetch_add(1, std::memory_order_relaxed);
}

void Inside::count_twin_launch() {
  session_->client->counters.twin_launches.fetch_add(1, std::memory_order_relaxed);
}

void Inside::count_graph(unsigned fate) const {
  std::atomic<uint64_t>& graphs = session_->client->counters.graphs;
  uint64_t now = graphs.load(std::memory_order_relaxed);
  while ((now >> (8 * fate) & 0xff) != 0xff &&
         !graphs.compare_exchange_weak(now, now + (uint64_t{1} << (8 * fate)),
                                       std::memory_order_relaxed)) {
  }
}

void create_thread_key() {
  if (!exit_key_made) exit_key_made = pthread_key_create(&exit_key, release_slot) == 0;
}

void forget_threads() {
  unobserved_left.store(0, std::memory_order_relaxed);
  for (ThreadSlot& slot : thread_slots) {
    slot.owner.store(nullptr, std::memory_order_relaxed);
    slot.inside.store(nullptr, std::memory_order_relaxed);
    slot.in_hand.store(0, std::memory_order_relaxed);
    slot.blocked_ns.store(0, std::memory_order_relaxed);
  }
}

bool anyone_blocked(int64_t since_ns) {
  bool blocked = false;
  for_each_thread([&](const ThreadSlot& thread) {
    const int64_t ns = thread.blocked_ns.load(std::memory_order_relaxed);
    blocked |= ns != 0 && ns <= since_ns;
  });
  return blocked;
}

bool anyone_inside(const Session& session) {
  for (const ThreadSlot& slot : thread_slots) {
    if (slot.inside.load(std::memory_order_acquire) == &session) return true;
  }
  return false;
}

void wake_waiters(const Session& session) {
  for (size_t i = 0; i < ipc::kThreads; ++i) {
    if (thread_slots[i].inside.load(std::memory_order_relaxed) == &session) {
      ipc::futex_wake(&session.control->grants[i].granted);
    }
  }
}

}  // namespace heddle::shim
