#include "shim/gate/unit.h"

#include "ipc/socket.h"

namespace heddle::shim {
namespace {

// How far ahead of the gates a device's launches may be, by predicted time. Not further: memory
// that is freed in stream order behind a gate cannot be used again. Not less: when the gates open,
// the GPU has work until a napping thread has woken up.
constexpr uint32_t kAheadUs = 5'000;
// The driver's queue of a stream has 1 020 entries. When it is full the driver makes the thread
// wait, and other threads' allocations with it. A launch, copy or event takes one entry, a gate
// two.
constexpr uint32_t kEntriesAhead = 400;
constexpr uint32_t kUnitsAhead = 190;
static_assert(kUnitsAhead + ipc::kThreads < ipc::kGateUnits, "each has its word");
constexpr int64_t kNapNs = 200'000;

// A sum in one word: the number of entries above, and their predicted time in 1/16 µs below. Both
// wrap around; a carry from the time counts as one entry more.
constexpr uint32_t kTicksOfUs = 16;
constexpr uint64_t sum_of(float us) {
  return uint64_t{1} << 32 | static_cast<uint32_t>(us * kTicksOfUs);
}

const std::atomic<uint32_t>& released(const GateBook& book, int device) {
  return book.page.load(std::memory_order_relaxed)->word[device];
}

}  // namespace

bool goes_on(const GateBook& book, const StreamSlot& stream, const Unit& unit, float us,
             int64_t now_ns) {
  if (unit.stream != &stream || !takes_launches(book, stream, unit.ticket) ||
      book.posted[stream.device].load(std::memory_order_relaxed) != unit.ticket ||
      unit.us + us > ipc::kGateUnitUs) {
    return false;
  }
  return now_ns - unit.begun_ns < kUnitNs || !is_released(book, stream.device, unit.ticket);
}

void add_to_unit(GateBook& book, int device, Unit& unit, float us) {
  unit.us += us;
  book.sums[device].all.fetch_add(sum_of(us), std::memory_order_relaxed);
}

uint64_t end_unit(const GateBook& book, const StreamSlot& stream, Unit& unit) {
  const uint64_t gate = stream.gate.load(std::memory_order_relaxed);
  const auto ticket = static_cast<uint32_t>(gate);
  if (ticket == 0 || !takes_launches(book, stream, ticket)) return 0;
  const bool own = unit.stream == &stream && unit.ticket == ticket;
  if (own) unit = {};
  const bool last = own || book.posted[stream.device].load(std::memory_order_relaxed) != ticket;
  return last ? gate : 0;
}

void add_beside_units(GateBook& book, int device, uint32_t places) {
  book.sums[device].all.fetch_add(places * sum_of(0), std::memory_order_relaxed);
}

bool is_released(const GateBook& book, int device, uint32_t ticket) {
  return ipc::gate_lets(released(book, device).load(std::memory_order_relaxed), ticket);
}

bool gates_stand_open(const GateBook& book, int device) {
  return ipc::gate_is_open(released(book, device).load(std::memory_order_acquire),
                           book.posted[device].load(std::memory_order_relaxed));
}

uint32_t wanted(const GateBook& book, int device) {
  return book.page.load(std::memory_order_relaxed)->wanted[device].load(std::memory_order_relaxed);
}

bool is_far_ahead(const GateBook& book, int device) {
  const uint32_t let = released(book, device).load(std::memory_order_relaxed);
  const uint32_t posted = book.posted[device].load(std::memory_order_relaxed);
  if (ipc::gate_lets(let, posted)) return false;
  if (posted - let >= kUnitsAhead) return true;
  const Sums& sums = book.sums[device];
  const uint64_t ahead =
      sums.all.load(std::memory_order_relaxed) -
      __atomic_load_n(&sums.before[(let + 1) % ipc::kGateUnits], __ATOMIC_RELAXED);
  return ahead >> 32 >= kEntriesAhead || static_cast<uint32_t>(ahead) >= kAheadUs * kTicksOfUs;
}

// The daemon does not wake this futex: a thread so far ahead can wait for its timeout.
void nap_at_gate(const GateBook& book, int device) {
  const std::atomic<uint32_t>& word = released(book, device);
  ipc::futex_wait(&word, word.load(), kNapNs);
}

}  // namespace heddle::shim
