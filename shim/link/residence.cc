#include "shim/link/residence.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "shim/link/inside.h"
#include "shim/link/thread.h"

namespace heddle::shim {
namespace {

constexpr int64_t kLookNs = 1'000'000;
constexpr int kTellEach = 50;  // looks

// Tells the session's daemon. False: there is none, or the thread has no slot.
bool tell_wanted() {
  const auto tell = [](const Session& session) {
    session.client->threads[0].memory_wanted.fetch_add(1, std::memory_order_relaxed);
  };
  if (my_slot != nullptr) {
    // Inside of a stay that a wrapper began.
    if (const Session* session = my_slot->inside.load(std::memory_order_relaxed)) {
      return tell(*session), true;
    }
  }
  const Inside in;
  if (in) tell(in.session());
  return static_cast<bool>(in);
}

}  // namespace

constinit WordPage word_page{};

// Not forever: when its daemon ends, the page becomes zeros (helper.cc), and who keeps the memory
// brings it back. A forked child reads its parent's page and has no session.
void wait_for_memory() {
  if (is_shims_own_thread()) return;  // the helper must serve the session meanwhile
  const int before = errno;
  for (int look = 0; word_page.header.away.load(std::memory_order_acquire) != 0; ++look) {
    if (look % kTellEach == 0 && !tell_wanted()) break;
    const timespec time{0, kLookNs};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
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
