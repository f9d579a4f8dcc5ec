#include "shim/gate/page.h"

#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/gate/opener.h"
#include "shim/sm/contexts.h"

namespace heddle::shim {
namespace {

constexpr CUdeviceptr kRefused = 1;
constexpr auto kAlreadyRegistered = static_cast<CUresult>(712);

// The most units whose end the GPU writes in front of one gate. Others wait for a later gate.
constexpr unsigned kToldMost = 16;

// The floor is checked once in so many tickets (gate_follow): far fewer than ipc::kGateAhead.
constexpr uint32_t kFollows = 1u << 20;

// The driver accepted a gate alone after it refused one together with a write.
constinit std::atomic<bool> only_waits{false};

// Registers in the device's primary context if there is one, otherwise in the thread's own.
CUdeviceptr register_page(GateBook& book, int device) {
  const RelaxedCapture relaxed;
  ipc::GatePage* const page = book.page.load(std::memory_order_relaxed);
  const CUcontext primary = primary_of(device);
  CUcontext context = primary != nullptr ? primary : current_context();
  if (context == nullptr || HEDDLE_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
    return kRefused;
  const CUresult result = HEDDLE_REAL(cuMemHostRegister_v2)(
      page, sizeof *page, kHostRegisterPortable | kHostRegisterDeviceMap);
  if (result == CUDA_SUCCESS) {
    book.in_primary.store(primary != nullptr, std::memory_order_relaxed);
    book.context.store(context, std::memory_order_relaxed);
  }
  CUdeviceptr at = 0;
  const bool there = (result == CUDA_SUCCESS || result == kAlreadyRegistered) &&
                     HEDDLE_REAL(cuMemHostGetDevicePointer_v2)(&at, page, 0) == CUDA_SUCCESS;
  HEDDLE_REAL(cuCtxPopCurrent_v2)(&context);
  return there ? at : kRefused;
}

// Whether a gate may be queued in the stream: it must not outlive the page's registration.
bool may_hold(const GateBook& book, const StreamSlot& stream) {
  return book.in_primary.load(std::memory_order_relaxed) ||
         book.context.load(std::memory_order_relaxed) == stream.context;
}

constexpr size_t word_of(int device) {
  return offsetof(ipc::GatePage, word) + sizeof(uint32_t) * static_cast<size_t>(device);
}

// StreamSlot::gate: a stream's newest gate, with its session's book, so that a ticket is never
// written to another session's page. kTold: the GPU has been asked to write that its unit is over.
constexpr uint64_t kTold = uint64_t{1} << 63;
uint64_t gate_of(const GateBook& book, uint32_t ticket) {
  return static_cast<uint64_t>(&book - gate_books + 1) << 32 | ticket;
}
// The gate's ticket; 0: it is of another book, or kTold is set.
uint32_t untold(const GateBook& book, uint64_t gate) {
  const auto ticket = static_cast<uint32_t>(gate);
  return gate == gate_of(book, ticket) ? ticket : 0;
}

CUstreamBatchMemOpParams wait_for(const GateTicket& ticket) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = ticket.word;
  op.waitValue.value = ticket.number;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return op;
}

CUstreamBatchMemOpParams write_done(CUdeviceptr page, int device, uint32_t ticket) {
  const size_t word = static_cast<size_t>(device) * ipc::kGateUnits + ticket % ipc::kGateUnits;
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.waitValue.address = page + offsetof(ipc::GatePage, done) + sizeof(uint32_t) * word;
  op.waitValue.value = ticket;
  return op;
}

bool submit(StreamRef stream, CUstreamBatchMemOpParams* ops, unsigned count) {
  const auto batch = stream.per_thread ? HEDDLE_REAL(cuStreamBatchMemOp_v2_ptsz)
                                       : HEDDLE_REAL(cuStreamBatchMemOp_v2);
  return batch(stream.handle, count, ops, 0) == CUDA_SUCCESS;
}

bool submit_wait(StreamRef stream, const GateTicket& ticket) {
  const auto wait = stream.per_thread ? HEDDLE_REAL(cuStreamWaitValue32_v2_ptsz)
                                      : HEDDLE_REAL(cuStreamWaitValue32_v2);
  return wait(stream.handle, ticket.word, ticket.number, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
}

// Whether the ticket still has its word in GatePage::done: kGateUnits tickets later another unit
// uses that word.
bool has_word(uint32_t ticket, uint32_t newest) {
  return ticket != 0 && newest - ticket < ipc::kGateUnits;
}

// The ticket that a launch behind a new gate in the stream waits for. Another thread may have put a
// gate with a later ticket there before: then the launch needs that one to be let go, too, and has
// its ticket. 0: the unit of that later gate has ended, so the launch needs a gate of its own.
uint32_t stands_behind(const GateBook& book, StreamSlot& stream, uint32_t ticket) {
  uint64_t gate = stream.gate.load(std::memory_order_relaxed);
  do {
    const uint32_t other = untold(book, gate & ~kTold);
    if (other != 0 && ipc::gate_lets(other, ticket)) return untold(book, gate);
  } while (!stream.gate.compare_exchange_weak(gate, gate_of(book, ticket)));
  return ticket;
}

// Fills in writes for the units that are over when the stream reaches the new gate: its own last
// unit, and those that the legacy stream's rules order before it. Those streams would also wait
// behind this gate, or behind the wait, before they could write their units' words themselves.
unsigned tell_before(const GateBook& book, StreamSlot& stream, const GateTicket& ticket,
                     CUstreamBatchMemOpParams* ops) {
  if (only_waits.load(std::memory_order_relaxed)) return 0;
  const CUdeviceptr page = ticket.word - word_of(stream.device);
  unsigned told = 0;
  const auto tell = [&](StreamSlot& slot) {
    uint64_t gate = slot.gate.load(std::memory_order_relaxed);
    const uint32_t before = untold(book, gate);
    if (told == kToldMost || !has_word(before, ticket.number)) return;
    if (&slot != &stream && !slot.gate.compare_exchange_strong(gate, gate | kTold)) return;
    ops[told++] = write_done(page, stream.device, before);
  };
  tell(stream);
  if (!stream.blocking) return told;
  for_each_active([&](StreamSlot& other) {
    const bool ordered = other.blocking && other.legacy != stream.legacy;
    if (ordered && other.context == stream.context) tell(other);
  });
  return told;
}

}  // namespace

CUdeviceptr page_at(GateBook& book, int device) {
  CUdeviceptr at = book.at.load(std::memory_order_acquire);
  if (at == 0) {
    if (!book.registering.try_lock()) return 0;  // another thread is at it
    at = register_page(book, device);
    book.at.store(at, std::memory_order_release);
    book.registering.unlock();
  }
  return at != kRefused ? at : 0;
}

uint32_t draw_ticket(GateBook& book, int device) {
  Sums& sums = book.sums[device];
  uint32_t ticket = 0;
  while (ticket == 0) {  // 0 means no ticket
    ticket = book.posted[device].fetch_add(1, std::memory_order_seq_cst) + 1;
    __atomic_store_n(&sums.before[ticket % ipc::kGateUnits],
                     sums.all.load(std::memory_order_relaxed), __ATOMIC_RELAXED);
  }
  if (ticket % kFollows == 0) {
    ipc::gate_follow(book.page.load(std::memory_order_relaxed)->floor[device], book.posted[device]);
  }
  return ticket;
}

GateTicket take_ticket(GateBook& book, int device) {
  if (book.left.load(std::memory_order_relaxed)) return {};
  const CUdeviceptr at = page_at(book, device);
  return at != 0 ? GateTicket{at + word_of(device), draw_ticket(book, device)} : GateTicket{};
}

uint32_t put_gate(GateBook& book, StreamSlot& stream, StreamRef ref) {
  if (page_at(book, stream.device) == 0 || !may_hold(book, stream)) return 0;
  if (stream_captures(ref)) return 0;  // the shim saw no capture begin; the gate would be a node
  const GateTicket ticket = take_ticket(book, stream.device);
  if (ticket.word == 0) return 0;
  CUstreamBatchMemOpParams ops[kToldMost + 1];
  const unsigned told = tell_before(book, stream, ticket, ops);
  ops[told] = wait_for(ticket);
  bool there = told > 0 && submit(ref, ops, told + 1);
  if (!there) {
    there = submit_wait(ref, ticket);
    if (there && told > 0) only_waits.store(true, std::memory_order_relaxed);
  }
  if (!there) {
    let_posted_go(book);  // no record will have the ticket that was drawn
    book.at.store(kRefused, std::memory_order_release);
    return 0;
  }
  const uint32_t stands = stands_behind(book, stream, ticket.number);
  return stands != 0 ? stands : put_gate(book, stream, ref);
}

uint32_t newest_gate(const GateBook& book, const StreamSlot& stream) {
  return untold(book, stream.gate.load(std::memory_order_relaxed) & ~kTold);
}

bool takes_launches(const GateBook& book, const StreamSlot& stream, uint32_t ticket) {
  return untold(book, stream.gate.load(std::memory_order_relaxed)) == ticket;
}

void put_last_word(StreamSlot& stream, StreamRef ref, uint64_t gate) {
  if (gate == 0 || (gate & kTold) != 0 || only_waits.load(std::memory_order_relaxed)) return;
  const GateBook& book = gate_books[(gate >> 32) - 1];
  const CUdeviceptr page = book.at.load(std::memory_order_acquire);
  const auto ticket = static_cast<uint32_t>(gate);
  const uint32_t newest = book.posted[stream.device].load(std::memory_order_relaxed);
  if (page <= kRefused || !has_word(ticket, newest) || stream_captures(ref)) return;
  if (!stream.gate.compare_exchange_strong(gate, gate | kTold)) return;  // there is a newer gate
  CUstreamBatchMemOpParams op = write_done(page, stream.device, ticket);
  if (!submit(ref, &op, 1)) only_waits.store(true, std::memory_order_relaxed);
}

void forget_registrations(CUcontext context) {
  for (GateBook& book : gate_books) {
    if (book.page.load(std::memory_order_relaxed) == nullptr) return;
    if (book.context.load(std::memory_order_relaxed) != context) continue;
    book.at.store(0, std::memory_order_release);
  }
}

}  // namespace heddle::shim
