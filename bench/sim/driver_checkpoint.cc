// The driver's checkpoint of a process: while it is locked its calls wait, and its work is done.
// Its memory stays where it is, for each client has a heap of its own here.
#include <time.h>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr CUresult kTimeout = static_cast<CUresult>(909);
constexpr int64_t kLookAgainNs = 1'000'000;

// CUprocessState
enum : uint64_t { kRunning, kLocked, kCheckpointed };

struct LockArgs {  // the head of CUcheckpointLockArgs
  unsigned timeout_ms;
};

// What the owner says of a process, once its state is `set`; kOnlyAsk: as it was.
CUresult order(int pid, uint64_t set, uint64_t& answer) {
  Call call;
  if (call.error() != CUDA_SUCCESS) return call.error();
  Link& link = driver().link;
  if (link.region()->mps || pid == getpid()) return CUDA_ERROR_NOT_SUPPORTED;
  Command command;
  command.kind = CommandKind::kCheckpoint;
  command.bytes = static_cast<uint64_t>(pid);
  command.value = set;
  command.dst = allocate(sizeof(uint64_t));
  if (command.dst == kNoHeap) return CUDA_ERROR_OUT_OF_MEMORY;
  call.unlock();
  const bool done = link.order(command);
  call.lock();
  answer = *reinterpret_cast<uint64_t*>(link.heap() + command.dst);
  driver().allocations.erase(command.dst);
  return done && answer != kNobody ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult step(int pid, uint64_t from, uint64_t to) {
  uint64_t state = 0;
  const CUresult error = order(pid, kOnlyAsk, state);
  if (error != CUDA_SUCCESS) return error;
  return (state & ~kBusy) == from ? order(pid, to, state) : CUDA_ERROR_ILLEGAL_STATE;
}

}  // namespace

bool Call::enter() {
  ClientRegion* region = driver().link.region();
  for (;;) {
    region->inside.fetch_add(1);
    const uint32_t state = region->checkpoint.load();
    if (state == kRunning) return true;
    region->inside.fetch_sub(1);
    futex_wait(region->checkpoint, state, 100 * kLookAgainNs);
  }
}

}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuCheckpointProcessGetState(int pid, int* out) {
  uint64_t state = 0;
  const CUresult error = order(pid, kOnlyAsk, state);
  *out = static_cast<int>(state & ~kBusy);
  return error;
}
// Calls that began before go on: it waits for them, and for the process's work.
HEDDLE_SIM_API CUresult cuCheckpointProcessLock(int pid, void* args) {
  const unsigned timeout_ms = args != nullptr ? static_cast<LockArgs*>(args)->timeout_ms : 0;
  const int64_t end = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
  CUresult error = step(pid, kRunning, kLocked);
  for (uint64_t state = kBusy; error == CUDA_SUCCESS && (state & kBusy) != 0;) {
    error = order(pid, kOnlyAsk, state);
    if (error != CUDA_SUCCESS || (state & kBusy) == 0) break;
    if (timeout_ms != 0 && monotonic_ns() > end) {
      order(pid, kRunning, state);
      return kTimeout;
    }
    const timespec again{0, kLookAgainNs};
    nanosleep(&again, nullptr);
  }
  return error;
}
HEDDLE_SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, void*) {
  return step(pid, kLocked, kCheckpointed);
}
HEDDLE_SIM_API CUresult cuCheckpointProcessRestore(int pid, void*) {
  return step(pid, kCheckpointed, kLocked);
}
HEDDLE_SIM_API CUresult cuCheckpointProcessUnlock(int pid, void*) {
  return step(pid, kLocked, kRunning);
}
