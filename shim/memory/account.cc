#include "shim/memory/account.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "ipc/memory.h"
#include "ipc/socket.h"
#include "shim/driver/driver.h"
#include "shim/link/inside.h"
#include "shim/link/spin.h"
#include "shim/memory/physical.h"
#include "shim/memory/reserved.h"

namespace heddle::shim {
namespace {

constexpr int64_t kAnswerNs = ipc::kHeartbeatStaleNs;  // only a stopped daemon takes longer
constexpr int64_t kClosedWaitNs = 2'000'000'000;
// How long to ask again while the daemon asks the group's other processes for unused memory. Their
// helper threads answer soon, if they run.
constexpr int64_t kRetryNs = 200'000'000;
constexpr int64_t kParkNs = 60'000'000'000;  // while it parks one of them
constexpr int64_t kPauseNs = 20'000, kPauseLongNs = 1'000'000, kPauseParkNs = 20'000'000;

struct Account {
  uint64_t used = 0;
  uint64_t granted = 0;  // by the session's daemon, less what was given back
  uint64_t limit = 0;    // the daemon's last word
  uint64_t refused = 0;
  uint64_t graphs = 0;  // of `used`: memory that the driver reserves for graphs
};

// Parts of an account, for readers without the lock.
struct Seen {
  std::atomic<uint64_t> beside_graphs{0};
  std::atomic<uint64_t> limit{0};
};
constinit Seen seen[ipc::kDevices];

constinit Spin lock;    // guards everything below but `asking`
constinit Spin asking;  // one question at a time; taken before `lock`
constinit Account accounts[ipc::kDevices];
constinit HoldingTable table{};
constinit Session* session = nullptr;
constinit uint32_t questions = 0;

bool has_account(int device) { return device >= 0 && device < static_cast<int>(ipc::kDevices); }

const ipc::DeviceTerms* terms_of(int device) {
  return session != nullptr ? &session->control->devices[device] : nullptr;
}

// ---- all with the lock held ----

void tell_used(int device) {
  const Account& account = accounts[device];
  seen[device].beside_graphs.store(account.used - std::min(account.used, account.graphs),
                                   std::memory_order_relaxed);
  if (session == nullptr) return;
  ipc::ThreadBlock& block = session->client->threads[device];
  block.memory_used.store(accounts[device].used, std::memory_order_relaxed);
  block.memory_refused.store(accounts[device].refused, std::memory_order_relaxed);
}

void uncount(int device, uint64_t bytes) {
  Account& account = accounts[device];
  account.used -= std::min(account.used, bytes);
  tell_used(device);
}

constinit PhysicalMemory physical{table, uncount};

uint64_t limit_of(int device) {
  const ipc::DeviceTerms* terms = terms_of(device);
  if (terms != nullptr) {
    accounts[device].limit = terms->memory_limit.load(std::memory_order_relaxed);
    seen[device].limit.store(accounts[device].limit, std::memory_order_relaxed);
  }
  return accounts[device].limit;
}

// The daemon may lower memory_granted on its own: it takes back unused memory that it asked for and
// did not get in time, as from a suspended process.
uint64_t granted_of(int device) {
  uint64_t& granted = accounts[device].granted;
  if (const ipc::DeviceTerms* terms = terms_of(device)) {
    granted = std::min(granted, terms->memory_granted.load(std::memory_order_relaxed));
  }
  return granted;
}

bool fits(int device, uint64_t bytes) {
  const uint64_t limit = limit_of(device);
  if (limit == 0) return true;
  const uint64_t after = accounts[device].used + bytes;
  if (after > limit || after < bytes) return false;
  return after <= granted_of(device) || (session == nullptr && !fails_closed());
}

// Sends a question; its number, or 0 if it could not be sent.
uint32_t send_need(int device, uint64_t bytes, bool release) {
  if (session == nullptr || file_id(session->socket) != session->socket_id) return 0;
  if (++questions == 0) ++questions;
  Packet packet;
  build_need(packet, {device, questions, bytes, release});
  return ipc::send_packet(session->socket, packet.span()) == 0 ? questions : 0;
}

// ---- without it ----

void pause(int64_t ns) {
  const int before = errno;
  const timespec time{0, ns};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
  errno = before;
}

enum class Answer : uint8_t { kGranted, kRefused, kRetry, kWait, kNone };

// The answer to question `number` of the session of that generation, if it is there.
bool read_answer(int device, uint32_t number, uint64_t generation, Answer& answer) {
  const Held held(lock);
  answer = Answer::kNone;
  const ipc::DeviceTerms* terms = terms_of(device);
  if (terms == nullptr || session->generation != generation ||
      session->detached.load(std::memory_order_relaxed)) {
    return true;  // that session answers no more
  }
  if (terms->memory_answered.load(std::memory_order_acquire) != number) return false;
  accounts[device].granted = terms->memory_granted.load(std::memory_order_relaxed);
  const uint32_t verdict = terms->memory_verdict.load(std::memory_order_relaxed);
  answer = verdict == ipc::kMemoryGranted ? Answer::kGranted
           : verdict == ipc::kMemoryRetry ? Answer::kRetry
           : verdict == ipc::kMemoryWait  ? Answer::kWait
                                          : Answer::kRefused;
  return true;
}

// Asks the daemon for room for `bytes` more.
Answer ask(int device, uint64_t bytes) {
  uint32_t number;
  uint64_t generation;
  {
    const Held held(lock);
    number = send_need(device, accounts[device].used + bytes, false);
    if (number == 0) return Answer::kNone;
    generation = session->generation;
  }
  const int64_t until = now_ns() + kAnswerNs;
  Answer answer;
  while (!read_answer(device, number, generation, answer)) {
    if (now_ns() > until) return Answer::kNone;
    pause(kPauseNs);
  }
  return answer;
}

// The turn to ask. One question at a time; the other threads sleep meanwhile.
class Asking {
 public:
  Asking() {
    while (!asking.try_lock()) pause(kPauseNs);
  }
  ~Asking() { asking.unlock(); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
};

bool try_claim(int device, uint64_t bytes) {
  const Held held(lock);
  if (!fits(device, bytes)) return false;
  accounts[device].used += bytes;
  tell_used(device);
  return true;
}

// Claims without the daemon's answer: only the last known limit counts, by this process's own use.
bool claim_unanswered(int device, uint64_t bytes) {
  const Held held(lock);
  Account& account = accounts[device];
  if (fails_closed() || account.used + bytes > account.limit) return false;
  account.used += bytes;
  tell_used(device);
  return true;
}

bool beyond_limit(int device, uint64_t bytes) {
  const Held held(lock);
  return accounts[device].used + bytes > limit_of(device);
}

// How much unused memory a process keeps when it gives some back on its own.
uint64_t slack_kept(int device) { return 2 * ipc::memory_chunk(accounts[device].limit); }

// Keeps `slack` beyond what is used, gives back the rest, and tells the daemon. The caller has the
// turn to ask, so that no answer to an earlier question comes later.
void give_back_in_turn(int device, uint64_t slack) {
  const Held held(lock);
  Account& account = accounts[device];
  if (session == nullptr) return;
  if (limit_of(device) == 0) account.granted = 0;  // a grant ends with the limit that it was under
  if (account.granted <= account.used + slack) return;
  const uint64_t before = account.granted;
  account.granted = account.used + slack;
  if (send_need(device, account.granted, true) == 0) account.granted = before;
}

// Does nothing while another thread asks: that thread gives memory back if the daemon wants it.
void give_back(int device, uint64_t slack) {
  if (!asking.try_lock()) return;
  give_back_in_turn(device, slack);
  asking.unlock();
}

}  // namespace

bool claim_memory(int device, uint64_t bytes) {
  if (!has_account(device) || try_claim(device, bytes)) return true;
  const Asking turn;
  const int64_t begun = now_ns();
  int64_t begin = begun;
  for (;;) {
    if (try_claim(device, bytes)) return true;
    if (beyond_limit(device, bytes)) return false;
    const Answer answer = ask(device, bytes);
    if (try_claim(device, bytes)) return true;
    const int64_t waited = now_ns() - begin;
    switch (answer) {
      case Answer::kGranted:  // other threads were quicker to use it
        if (waited > kRetryNs) return false;
        continue;
      case Answer::kRefused:
        return false;
      case Answer::kRetry:
        if (waited > kRetryNs) return false;
        give_back_in_turn(device, 0);  // another process that asks now may need just this
        break;
      case Answer::kWait:
        if (now_ns() - begun > kParkNs) return false;
        pause(kPauseParkNs);
        begin = now_ns();  // the others' patience begins once nobody is parked any more
        break;
      case Answer::kNone:
        if (claim_unanswered(device, bytes)) return true;
        if (!fails_closed() || waited > kClosedWaitNs) return false;
        break;
    }
    pause(kPauseLongNs);
  }
}

void unclaim_memory(int device, uint64_t bytes) {
  if (!has_account(device)) return;
  bool much;
  {
    const Held held(lock);
    uncount(device, bytes);
    const Account& account = accounts[device];
    much = account.limit != 0 && account.granted > account.used + 2 * slack_kept(device);
  }
  if (much) give_back(device, slack_kept(device));
}

void count_refused_memory(int device) {
  if (!has_account(device)) return;
  const Held held(lock);
  ++accounts[device].refused;
  tell_used(device);
}

void hold_memory(Holds kind, uint64_t key, CUcontext context, int device, uint64_t bytes) {
  if (!has_account(device)) return;
  const Held held(lock);
  Holding* holding = table.add(kind, key);
  if (holding == nullptr) return uncount(device, bytes);
  if (holding->bytes != 0) uncount(holding->device, holding->bytes);  // its free was not seen
  holding->device = static_cast<uint8_t>(device);
  holding->bytes = bytes;
  holding->pooled = 0;
  holding->owner = reinterpret_cast<uint64_t>(context);
}

void hold_pooled(uint64_t at, CUmemoryPool pool, int device, uint64_t bytes) {
  if (!has_account(device)) return;
  hold_memory(Holds::kPointer, at, nullptr, device, 0);
  const Held held(lock);
  if (Holding* holding = table.find(Holds::kPointer, at)) {
    holding->owner = reinterpret_cast<uint64_t>(pool);
    holding->pooled = bytes;
  }
}

void count_pooled(CUmemoryPool pool) {
  const Held held(lock);
  table.for_each([&](Holding& holding) {
    if (holding.pooled == 0 || holding.owner != reinterpret_cast<uint64_t>(pool)) return;
    holding.bytes = std::exchange(holding.pooled, 0);
    holding.owner = 0;
    accounts[holding.device].used += holding.bytes;
    tell_used(holding.device);
  });
}

bool take_memory(Holds kind, uint64_t key, Holding& out) {
  const Held held(lock);
  Holding* holding = table.find(kind, key);
  if (holding == nullptr) return false;
  out = *holding;
  table.remove(holding);
  return true;
}

void put_memory_back(const Holding& holding) {
  const Held held(lock);
  if (Holding* place = table.add(holding.kind, holding.key)) {
    *place = holding;
  } else {
    uncount(holding.device, holding.bytes);
  }
}

// ---- VMM ----

void hold_physical(uint64_t handle, int device, uint64_t bytes) {
  if (!has_account(device)) return;
  const Held held(lock);
  physical.create(handle, device, bytes);
}

void retain_handle(uint64_t handle, uint64_t at) {
  const Held held(lock);
  physical.retain(handle, at);
}

void export_handle(uint64_t handle, int file) {
  const Held held(lock);
  physical.export_as(handle, file);
}

void import_handle(uint64_t handle, int file) {
  const Held held(lock);
  physical.import_from(handle, file);
}

void release_handle(uint64_t handle) {
  const Held held(lock);
  physical.release(handle);
}

void map_handle(uint64_t handle, uint64_t at, uint64_t bytes) {
  const Held held(lock);
  physical.map(handle, at, bytes);
}

void unmap_range(uint64_t at, uint64_t bytes) {
  const Held held(lock);
  physical.unmap(at, bytes);
}

// ---- reserved sizes ----

void settle_reserved(Holds kind, uint64_t key, int device, uint64_t bytes, bool ended) {
  if (!has_account(device)) return;
  const Held held(lock);
  Holding* pool = table.add(kind, key);
  if (pool == nullptr) return;
  pool->device = static_cast<uint8_t>(device);
  const uint64_t before = pool->bytes;
  pool->bytes = ended ? 0 : bytes;
  if (kind == Holds::kGraphs) accounts[device].graphs = pool->bytes;
  accounts[device].used += pool->bytes;
  uncount(device, before);
  if (ended) table.remove(pool);
}

bool fits_beside_graphs(int device, uint64_t bytes) {
  if (!has_account(device)) return true;
  uint64_t limit = seen[device].limit.load(std::memory_order_relaxed), others = 0;
  if (const Inside in; in) {
    const ipc::DeviceTerms& terms = in.session().control->devices[device];
    limit = terms.memory_limit.load(std::memory_order_relaxed);
    others = terms.memory_others.load(std::memory_order_relaxed);
  }
  const uint64_t beside = seen[device].beside_graphs.load(std::memory_order_relaxed) + others;
  return limit == 0 || (beside <= limit && bytes <= limit - beside);
}

size_t pools_of(int device, uint64_t* keys, size_t most) {
  const Held held(lock);
  size_t count = 0;
  table.for_each([&](const Holding& holding) {
    if (holding.kind == Holds::kPool && holding.device == device && count < most) {
      keys[count++] = holding.key;
    }
  });
  return count;
}

void forget_context_memory(CUcontext context) {
  const auto owner = reinterpret_cast<uint64_t>(context);
  const Held held(lock);
  table.remove_if([&](const Holding& holding) {
    if (holding.owner != owner ||
        (holding.kind != Holds::kPointer && holding.kind != Holds::kArray)) {
      return false;
    }
    uncount(holding.device, holding.bytes);
    return true;
  });
}

MemoryView view_memory(int device) {
  if (!has_account(device)) return {};
  const Held held(lock);
  const ipc::DeviceTerms* terms = terms_of(device);
  const uint64_t others =
      terms != nullptr ? terms->memory_others.load(std::memory_order_relaxed) : 0;
  return {limit_of(device), accounts[device].used + others};
}

bool tell_memory_wanted() {
  if (!is_initialized()) return false;  // a forked child has its parent's `session`
  const Held held(lock);
  if (session == nullptr) return false;
  session->client->threads[0].memory_wanted.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// ---- for the helper thread ----

void gather_memory(AttachFacts& facts) {
  for (size_t i = 0; i < facts.gpu_id_count; ++i) {
    size_t total = 0;
    HEDDLE_REAL(cuDeviceTotalMem_v2)(&total, static_cast<CUdevice>(i));
    facts.memory_total[i] = total;
  }
  const char* mps_limit = secure_getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  facts.mps_memory_limit = mps_limit != nullptr && *mps_limit != '\0';
}

void tell_memory_held(AttachFacts& facts) {
  const Held held(lock);
  for (size_t i = 0; i < facts.gpu_id_count; ++i) facts.memory_held[i] = accounts[i].used;
}

void tell_memory_used(ipc::ClientMemory& client) {
  const Held held(lock);
  for (size_t device = 0; device < ipc::kDevices; ++device) {
    client.threads[device].memory_used.store(accounts[device].used, std::memory_order_relaxed);
  }
}

void memory_attached(Session& current) {
  const Held held(lock);
  session = &current;
  for (int device = 0; device < static_cast<int>(ipc::kDevices); ++device) {
    accounts[device].granted =
        current.control->devices[device].memory_granted.load(std::memory_order_relaxed);
    limit_of(device);
    tell_used(device);
  }
}

void memory_detached() {
  const Held held(lock);
  session = nullptr;
}

void give_back_memory() {
  for (int device = 0; device < static_cast<int>(ipc::kDevices); ++device) give_back(device, 0);
}

void forget_memory() {
  lock.forget();
  asking.forget();
  for (Account& account : accounts) account = {};
  for (Seen& one : seen) {
    one.beside_graphs.store(0, std::memory_order_relaxed);
    one.limit.store(0, std::memory_order_relaxed);
  }
  forget_reserved();
  table.clear();
  session = nullptr;
}

}  // namespace heddle::shim
