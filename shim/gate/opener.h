// Who opens the gates when the daemon cannot: a thread that never calls the driver, for a call may
// stand at a closed gate itself, and holds up other calls of the process.
//
// It watches the daemon's heartbeat, and opens the gates while that is too old. What a session has
// left when it ends stays open: launches of a later one stand at that one's page. A page stays
// mapped for as long as the process lives, because queued work reads it, and because a daemon that
// was stopped may go on at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/gate.h"
#include "shim/driver/driver_api.h"
#include "shim/link/spin.h"

namespace heddle::shim {

// Sessions that a process may have; after so many it stays unmanaged.
inline constexpr size_t kGatePages = 256;

// All that takes a place in the queues of a device so far, and that before each of its newest units
// (unit.h).
struct Sums {
  std::atomic<uint64_t> all{0};
  uint64_t before[ipc::kGateUnits]{};  // by ticket % kGateUnits; read and written as atomics are
};

// What the shim keeps of one session's tickets.
struct GateBook {
  std::atomic<ipc::GatePage*> page{nullptr};      // set last
  bool on_gpu = false;                            // streams may wait; constant with the page
  std::atomic<CUdeviceptr> at{0};                 // where it is on the GPU; 0: not registered
  Spin registering;                               // only ever tried
  std::atomic<CUcontext> context{nullptr};        // where it is registered, and ends with
  std::atomic<bool> in_primary{false};            // that lives as long as the others
  std::atomic<uint32_t> posted[ipc::kDevices]{};  // the newest ticket
  Sums sums[ipc::kDevices];
  std::atomic<bool> detached{false};  // the session is over
  std::atomic<bool> left{false};      // and its gates stand open
  bool open = false;                  // the opener's: they stand open
  int64_t since_ns = 0;
};
extern constinit GateBook gate_books[kGatePages];
// There was a session.
inline bool any_gates() { return gate_books[0].page.load(std::memory_order_relaxed) != nullptr; }

// Both are called by the helper thread. Before a page is kept; false: no stream may wait.
bool start_opener();
// Keeps the page that came with a session; nullptr if none came, or there are too many. `on_gpu`:
// streams may wait.
GateBook* keep_gates(int descriptor, int64_t now_ns, bool on_gpu);

// By any thread: the session is over. nullptr: it has none.
void leave_gates(GateBook* book);
// By any thread: others may wait for what is posted by now. It goes, whatever the daemon says.
void let_posted_go(GateBook& book);
// The same up to that ticket.
void let_ticket_go(GateBook& book, int device, uint32_t ticket);
// The same of all sessions, by a thread that may be in none.
void let_all_posted_go();

// In a forked child: the thread is not there, and neither are the pages.
void forget_gates();

// What the thread does, every 50 ms and when a session ends.
void look_at_gates(int64_t now_ns);

}  // namespace heddle::shim
