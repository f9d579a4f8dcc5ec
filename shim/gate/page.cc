#include "shim/gate/page.h"

#include "ipc/socket.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/gate/opener.h"
#include "shim/link/spin.h"

namespace heddle::shim {
namespace {

constexpr CUdeviceptr kRefused = 1;
// Far below the driver's own bound, 510 launches of a stream with a gate each, where other threads'
// allocations would wait as well.
constexpr int32_t kUnitsAhead = 200;
constexpr int64_t kNapNs = 200'000;
constexpr auto kAlreadyRegistered = static_cast<CUresult>(712);

constinit Spin registering;

CUdeviceptr register_page(ipc::GatePage* page) {
  const RelaxedCapture relaxed;
  const CUresult result = HEDDLE_REAL(cuMemHostRegister_v2)(
      page, sizeof *page, kHostRegisterPortable | kHostRegisterDeviceMap);
  CUdeviceptr at = 0;
  const bool there = (result == CUDA_SUCCESS || result == kAlreadyRegistered) &&
                     HEDDLE_REAL(cuMemHostGetDevicePointer_v2)(&at, page, 0) == CUDA_SUCCESS;
  return there ? at : kRefused;
}

const std::atomic<uint32_t>& released(const GateBook& book, int device) {
  return book.page.load(std::memory_order_relaxed)->released[device];
}

}  // namespace

CUdeviceptr page_at(GateBook& book) {
  CUdeviceptr at = book.at.load(std::memory_order_acquire);
  if (at == 0) {
    if (!registering.try_lock()) return 0;  // another thread is at it
    at = register_page(book.page.load(std::memory_order_relaxed));
    book.at.store(at, std::memory_order_release);
    registering.unlock();
  }
  return at != kRefused ? at : 0;
}

GateTicket take_ticket(GateBook& book, int device) {
  if (book.left.load(std::memory_order_relaxed)) return {};
  const CUdeviceptr at = page_at(book);
  if (at == 0) return {};
  uint32_t before = book.posted[device].fetch_add(1, std::memory_order_relaxed);
  if (before == UINT32_MAX) before = book.posted[device].fetch_add(1, std::memory_order_relaxed);
  const size_t word =
      offsetof(ipc::GatePage, released) + sizeof(uint32_t) * static_cast<size_t>(device);
  return {at + word, before + 1};
}

uint32_t put_gate(GateBook& book, int device, StreamRef stream) {
  const GateTicket ticket = take_ticket(book, device);
  if (ticket.word == 0) return 0;
  const auto wait = stream.per_thread ? HEDDLE_REAL(cuStreamWaitValue32_v2_ptsz)
                                      : HEDDLE_REAL(cuStreamWaitValue32_v2);
  const CUresult result = wait(stream.handle, ticket.word, ticket.number, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS) return ticket.number;
  leave_gates(&book);  // nobody will tell of that ticket
  return 0;
}

bool is_far_ahead(const GateBook& book, int device) {
  const uint32_t posted = book.posted[device].load(std::memory_order_relaxed);
  return static_cast<int32_t>(posted - released(book, device).load()) >= kUnitsAhead;
}

// The daemon wakes nobody: a thread that is so far ahead has time.
void nap_at_gate(const GateBook& book, int device) {
  const std::atomic<uint32_t>& word = released(book, device);
  ipc::futex_wait(&word, word.load(), kNapNs);
}

void forget_registrations() {
  for (GateBook& book : gate_books) book.at.store(0, std::memory_order_release);
}

}  // namespace heddle::shim
