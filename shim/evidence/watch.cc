#include "shim/evidence/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/evidence/completion.h"

namespace heddle::shim {
namespace {

constexpr int64_t kLookNs = 20'000;
constexpr int kLooksInARow = 100;      // 2 ms: then the helper looks at its socket
constexpr int kDescriptorsFrom = 500;  // as helper.cc's

// The helper rests: the first thread with a marker for it writes to the descriptor, once.
constinit std::atomic<bool> resting{false};
constinit std::atomic<bool> called{false};  // or the helper will look by itself: no need to call
constinit std::atomic<int> descriptor{-1};
constinit FileId descriptor_id{};

enum class Look : uint8_t { kNothing, kMore, kShutOut };

// Polls once. kMore: events are left to wait for; kShutOut: launching threads hold all thread
// slots.
Look look() {
  // Only this thread retires sessions, so it may look at one from outside. It takes a thread slot
  // only when there is something to poll.
  const Session* session = guard().current.load(std::memory_order_relaxed);
  if (session == nullptr) return Look::kNothing;
  if (session->control->header.contended.load() == 0) return Look::kNothing;
  if (anything_captures()) return Look::kNothing;
  Inside in;
  if (!in) return ~guard().threads.load() == 0 ? Look::kShutOut : Look::kNothing;
  return poll_all(in) ? Look::kMore : Look::kNothing;
}

void settle_in() {
  static constinit __thread bool settled = false;
  if (settled) return;
  settled = true;
  // Sleeps of 20 µs take 70 with the slack that threads have by default.
  prctl(PR_SET_TIMERSLACK, 1'000, 0, 0, 0);
}

void call(int fd) {
  const int before = errno;  // the application's
  const uint64_t one = 1;
  // Not write(), which is a cancellation point: the thread is in the session.
  syscall(SYS_write, fd, &one, sizeof one);
  errno = before;
}

}  // namespace

void watch_soon() {
  if (!resting.load(std::memory_order_relaxed) || anything_captures()) return;
  const int fd = watch_descriptor();
  if (fd >= 0 && resting.exchange(false, std::memory_order_seq_cst)) call(fd);
}

void call_helper() {
  if (called.load(std::memory_order_relaxed) || called.exchange(true)) return;
  if (const int fd = watch_descriptor(); fd >= 0) call(fd);
}

void heed_calls(bool heed) { called.store(!heed); }

void make_watch_descriptor() {
  if (const int old = watch_descriptor(); old >= 0) close(old);  // the parent's, after a fork
  const int low = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int up = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, kDescriptorsFrom);
  if (low >= 0 && up >= 0) close(low);
  const int fd = up >= 0 ? up : low;
  descriptor_id = file_id(fd);
  descriptor.store(fd, std::memory_order_release);
  called.store(false);
  resting.store(true, std::memory_order_seq_cst);
}

int watch_descriptor() {
  const int fd = descriptor.load(std::memory_order_acquire);
  if (fd < 0 || file_id(fd) == descriptor_id) return fd;
  descriptor.store(-1, std::memory_order_relaxed);  // the application closed it
  return -1;
}

void watch() {
  settle_in();
  uint64_t count;
  const int fd = watch_descriptor();
  if (fd >= 0) [[maybe_unused]]
    const ssize_t drained = read(fd, &count, sizeof count);
  const timespec pause{0, kLookNs};
  for (int looks = 0; looks < kLooksInARow; ++looks) {
    const Look found = look();
    if (found == Look::kShutOut) return;  // not resting: launches would call in vain, each time
    if (found == Look::kNothing) {
      resting.store(true, std::memory_order_seq_cst);
      // A thread that placed a marker just before may have seen the helper awake, and not called.
      if (look() != Look::kMore || !resting.exchange(false, std::memory_order_seq_cst)) return;
    }
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
  const uint64_t one = 1;  // poll() returns at once, and this goes on after a look at the socket
  if (fd >= 0) [[maybe_unused]]
    const ssize_t written = write(fd, &one, sizeof one);
}

}  // namespace heddle::shim
