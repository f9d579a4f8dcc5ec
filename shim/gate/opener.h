// The opener: a thread that opens the gates when the daemon cannot. It never calls the driver,
// because a driver call may stand at a closed gate itself, and then holds up the process's other
// calls.
//
// It watches the daemon's heartbeat, and opens the gates while that is too old. When a session
// ends, its gates stay open for good: launches of the next session stand at that one's own page. A
// page stays mapped for as long as the process lives, because queued work reads it, and because a
// daemon that was stopped may go on at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/gate.h"
#include "shim/driver/driver_api.h"
#include "shim/link/spin.h"

namespace heddle::shim {

// Sessions that a process may have. After that many it stays unmanaged.
inline constexpr size_t kGatePages = 256;

// Sums of a device (unit.cc): of everything posted so far that takes a place in the driver's
// queues, and of what was posted before each of the newest units.
struct Sums {
  std::atomic<uint64_t> all{0};
  uint64_t before[ipc::kGateUnits]{};  // by ticket % kGateUnits; read and written as atomics are
};

// What the shim keeps of one session's tickets.
struct GateBook {
  std::atomic<ipc::GatePage*> page{nullptr};      // set last
  bool on_gpu = false;                            // streams may wait; constant with the page
  std::atomic<CUdeviceptr> at{0};                 // the page's device address; 0: not registered
  Spin registering;                               // only ever tried
  std::atomic<CUcontext> context{nullptr};        // where it is registered; it ends with that
  std::atomic<bool> in_primary{false};            // `context` is a device's primary one
  std::atomic<uint32_t> posted[ipc::kDevices]{};  // the newest ticket
  Sums sums[ipc::kDevices];
  std::atomic<bool> detached{false};  // the session is over
  std::atomic<bool> left{false};      // the opener has seen that, and the gates stand open
  bool open = false;                  // for the opener alone: it has opened the gates
  int64_t since_ns = 0;               // when the page was kept, in place of a first heartbeat
};
extern constinit GateBook gate_books[kGatePages];
// Whether the process had a session so far.
inline bool any_gates() { return gate_books[0].page.load(std::memory_order_relaxed) != nullptr; }

// Helper thread: starts the opener, before a page is kept. False: no stream may wait.
bool start_opener();
// Helper thread: keeps the page that came with a session. nullptr: none came, or there are too
// many. `on_gpu`: streams may wait.
GateBook* keep_gates(int descriptor, int64_t now_ns, bool on_gpu);

// Any thread: the session is over. nullptr does nothing.
void leave_gates(GateBook* book);
// Any thread: others may wait for what is posted by now. It is let go, whatever the daemon says.
void let_posted_go(GateBook& book);
// The same up to that ticket.
void let_ticket_go(GateBook& book, int device, uint32_t ticket);
// The same for all sessions. The calling thread may be in none.
void let_all_posted_go();

// In a forked child, which has neither the thread nor the pages.
void forget_gates();

// What the opener does every 50 ms and when a session ends.
void look_at_gates(int64_t now_ns);

}  // namespace heddle::shim
