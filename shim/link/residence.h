// Whether the process's memory is on the GPU, or parked on the host (daemon/server/parking.h).
//
// While it is parked, the driver lets no call of the process go on, and tells nobody. So each call
// waits here before it goes to the driver (HEDDLE_REAL, trampolines.S), and heddled, which hears of
// it, brings the memory back. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "ipc/layout.h"

namespace heddle::shim {

inline constexpr size_t kPageBytes = 4096;

// The head of the control memory, at a fixed address that is always mapped, so that its readers
// need no session (read_word_from).
struct alignas(kPageBytes) WordPage {
  ipc::ControlMemory::Header header;
};
static_assert(sizeof(WordPage) == kPageBytes && offsetof(ipc::ControlMemory, header) == 0);
extern WordPage word_page asm("heddle_word_page");
static_assert(offsetof(ipc::ControlMemory::Header, away) == 40, "trampolines.S");

void wait_for_memory();
inline void await_memory() {
  if (word_page.header.away.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wait_for_memory();
}

// Maps the control memory `descriptor` at `word_page`; -1: a page of zeros. False: the mapping
// failed, and the page is what it was before.
[[nodiscard]] bool read_word_from(int descriptor);

}  // namespace heddle::shim
