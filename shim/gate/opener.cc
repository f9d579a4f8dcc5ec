#include "shim/gate/opener.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "ipc/socket.h"
#include "shim/link/session.h"
#include "shim/link/thread.h"

namespace heddle::shim {
namespace {

constexpr int64_t kLookNs = 50'000'000;

constinit std::atomic<uint32_t> sessions_ended{0};
constinit bool started = false;

void* run(void*) {
  for (;;) {
    const uint32_t seen = sessions_ended.load(std::memory_order_acquire);
    look_at_gates(now_ns());
    ipc::futex_wait(&sessions_ended, seen, kLookNs);
  }
  return nullptr;
}

void look(GateBook& book, int64_t now_ns) {
  ipc::GatePage* const page = book.page.load(std::memory_order_acquire);
  if (page == nullptr || !book.on_gpu) return;
  const int64_t beat = std::max(book.since_ns, page->heartbeat_ns.load(std::memory_order_relaxed));
  const bool over = book.detached.load(std::memory_order_relaxed);
  const bool opens = over || now_ns - beat > ipc::kHeartbeatStaleNs;
  if (over) book.left.store(true, std::memory_order_relaxed);
  const bool closes = std::exchange(book.open, opens) && !opens;
  for (size_t device = 0; device < ipc::kDevices; ++device) {
    std::atomic<uint32_t>&floor = page->floor[device], &word = page->word[device];
    if (opens) {
      ipc::gate_open_floor(floor, word, page->running[device], book.posted[device]);
    } else if (closes) {
      ipc::gate_close_floor(floor, word, page->running[device], book.posted[device]);
    }
  }
}

}  // namespace

constinit GateBook gate_books[kGatePages];

bool start_opener() { return started = started || start_thread("heddle-opener", run) == 0; }

GateBook* keep_gates(int descriptor, int64_t now_ns, bool on_gpu) {
  GateBook* const book = std::find_if(std::begin(gate_books), std::end(gate_books), [](auto& b) {
    return b.page.load(std::memory_order_relaxed) == nullptr;
  });
  struct stat file;
  if (book == std::end(gate_books) || descriptor < 0 || fstat(descriptor, &file) != 0 ||
      static_cast<size_t>(file.st_size) < sizeof(ipc::GatePage)) {
    return nullptr;
  }
  void* const memory =
      mmap(nullptr, sizeof(ipc::GatePage), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, sizeof(ipc::GatePage), MADV_DONTFORK);
  book->since_ns = now_ns;
  book->on_gpu = on_gpu;
  book->page.store(static_cast<ipc::GatePage*>(memory), std::memory_order_release);
  return book;
}

void leave_gates(GateBook* book) {
  if (book == nullptr || book->detached.load(std::memory_order_relaxed)) return;
  if (book->detached.exchange(true, std::memory_order_relaxed)) return;
  sessions_ended.fetch_add(1, std::memory_order_release);
  ipc::futex_wake(&sessions_ended);
}

void let_posted_go(GateBook& book) {
  if (!book.on_gpu) return;
  ipc::GatePage* const page = book.page.load(std::memory_order_acquire);
  for (int device = 0; device < static_cast<int>(ipc::kDevices); ++device) {
    const uint32_t posted = book.posted[device].load(std::memory_order_seq_cst);
    if (ipc::gate_lets(page->floor[device].load(std::memory_order_seq_cst), posted)) continue;
    let_ticket_go(book, device, posted);
  }
}

void let_ticket_go(GateBook& book, int device, uint32_t ticket) {
  ipc::GatePage& page = *book.page.load(std::memory_order_acquire);
  ipc::gate_floor(page.floor[device], page.word[device], page.running[device], ticket);
}

void let_all_posted_go() {
  if (!is_initialized()) return;  // a forked child has no pages
  for (GateBook& book : gate_books) {
    if (book.page.load(std::memory_order_acquire) == nullptr) return;
    let_posted_go(book);
  }
}

void forget_gates() {
  started = false;
  for (GateBook& book : gate_books) {
    if (book.page.load(std::memory_order_relaxed) == nullptr) return;
    book.page.store(nullptr, std::memory_order_relaxed);
    book.at.store(0, std::memory_order_relaxed);
    book.registering.forget();
    for (auto& posted : book.posted) posted.store(0, std::memory_order_relaxed);
    book.detached.store(false, std::memory_order_relaxed);
    book.left.store(false, std::memory_order_relaxed);
    book.open = false;
  }
}

void look_at_gates(int64_t now_ns) {
  for (GateBook& book : gate_books) look(book, now_ns);
}

}  // namespace heddle::shim
