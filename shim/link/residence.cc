#include "shim/link/residence.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/link/thread.h"
#include "shim/memory/account.h"

namespace heddle::shim {
namespace {

constexpr int64_t kLookNs = 1'000'000;
constexpr int kTellEach = 50;  // looks

}  // namespace

constinit WordPage word_page{};

// Not forever: when its daemon ends, the page becomes zeros (helper.cc), and who keeps the memory
// brings it back. A forked child reads its parent's page and has no session.
void wait_for_memory() {
  if (is_shims_own_thread()) return;  // the helper must serve the session meanwhile
  const int before = errno;
  for (int look = 0; word_page.header.away.load(std::memory_order_acquire) != 0; ++look) {
    if (look % kTellEach == 0 && !tell_memory_wanted()) break;
    const timespec time{0, kLookNs};
    // Not nanosleep(), which is a cancellation point: the thread may be in a session.
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
  }
  errno = before;
}

// MAP_FIXED replaces the mapping atomically: a reader finds either the old page or the new one.
bool read_word_from(int descriptor) {
  const int flags = descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  return mmap(&word_page, sizeof word_page, PROT_READ, MAP_FIXED | flags, descriptor, 0) !=
         MAP_FAILED;
}

}  // namespace heddle::shim
