#include "shim/partition.h"

#include <algorithm>

#include "ipc/fault.h"
#include "ipc/partition.h"
#include "shim/driver.h"
#include "shim/log.h"
#include "shim/watch.h"

namespace heddle::shim {
namespace {

constexpr unsigned kGroupSms = 8;  // the least that Hopper gives with clusters; others round up
// The last one is what the split left over.
constexpr unsigned kGroups = ipc::kSmGroups;

// The two events that tie a thread's detours together, each recorded anew for every detour: whoever
// waits for one waits for what it stood for at the call. A thread is on one detour at a time.
struct Tie {
  CUevent in = nullptr;   // on the application's stream
  CUevent out = nullptr;  // on the lane
};

// Of one device. Launching threads read `groups` and, through a lane, `ties`; the rest is the
// helper's, under `lock`.
struct Pool {
  std::atomic<uint32_t> groups[StreamSlot::kLanes];  // 0: free; claimed by whoever wants it first
  Tie ties[ipc::kThreads];
  CUgreenCtx contexts[StreamSlot::kLanes];
  CUevent trial;
  CUcontext primary;
  CUdevResource split[kGroups];
  unsigned split_count;
};
constinit Pool pools[ipc::kDevices] = {};
constinit Spin lock;
constinit std::atomic<bool> lanes_due{false};  // some slot's
constinit std::atomic<bool> refused{false};  // the driver has no Green Contexts, or no use for ours

unsigned split(CUdevice device, CUdevResource (&groups)[kGroups]) {
  CUdevResource all{};
  unsigned count = kGroups - 1;
  CUdevResource rest{};
  if (HEDDLE_REAL(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      HEDDLE_REAL(cuDevSmResourceSplitByCount)(groups, &count, &all, &rest, 0, kGroupSms) !=
          CUDA_SUCCESS) {
    return 0;
  }
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount > 0) groups[count++] = rest;
  return count;
}

// The place of a partition in the pool, which it takes at first sight; kLanes if there is none.
uint32_t place_of(Pool& pool, uint32_t groups) {
  for (uint32_t place = 0; place < StreamSlot::kLanes; ++place) {
    uint32_t seen = pool.groups[place].load(std::memory_order_relaxed);
    if (seen == 0) pool.groups[place].compare_exchange_strong(seen, groups);
    if (seen == 0 || seen == groups) return place;
  }
  return StreamSlot::kLanes;
}

// nullptr while there is none; the helper is told to make it, once.
CUstream lane_of(StreamSlot& slot, uint32_t place) {
  const CUstream lane = slot.lanes[place].load(std::memory_order_acquire);
  const uint32_t bit = 1U << place;
  if (lane == nullptr && (slot.lanes_wanted.load(std::memory_order_relaxed) & bit) == 0) {
    slot.lanes_wanted.fetch_or(bit, std::memory_order_relaxed);
    slot.lanes_due.fetch_or(bit, std::memory_order_relaxed);
    lanes_due.store(true, std::memory_order_release);
    call_helper();
  }
  return lane;
}

bool record(CUevent event, StreamRef stream) {
  const auto real =
      stream.per_thread ? HEDDLE_REAL(cuEventRecord_ptsz) : HEDDLE_REAL(cuEventRecord);
  return real(event, stream.handle) == CUDA_SUCCESS;
}

bool await(StreamRef stream, CUevent event) {
  const auto real =
      stream.per_thread ? HEDDLE_REAL(cuStreamWaitEvent_ptsz) : HEDDLE_REAL(cuStreamWaitEvent);
  return real(stream.handle, event, 0) == CUDA_SUCCESS;
}

// ---- the helper's part; `lock` is held ----------------------------------------------------------

bool make_ties(Pool& pool) {
  if (pool.ties[0].in != nullptr) return true;
  if (HEDDLE_REAL(cuCtxPushCurrent_v2)(pool.primary) != CUDA_SUCCESS) return false;
  bool made = HEDDLE_REAL(cuEventCreate)(&pool.trial, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  // The first one last: it says that all are there.
  for (uint32_t i = ipc::kThreads; i-- > 0 && made;) {
    Tie& tie = pool.ties[i];
    made = HEDDLE_REAL(cuEventCreate)(&tie.out, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           HEDDLE_REAL(cuEventCreate)(&tie.in, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  }
  CUcontext popped = nullptr;
  HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  return made;
}

bool make_context(Pool& pool, CUdevice device, uint32_t place) {
  if (pool.contexts[place] != nullptr) return true;
  if (pool.split_count == 0) pool.split_count = split(device, pool.split);
  const uint32_t groups = pool.groups[place].load(std::memory_order_relaxed);
  CUdevResource chosen[kGroups];
  unsigned count = 0;
  for (unsigned i = 0; i < pool.split_count; ++i) {
    if ((groups >> i & 1) != 0) chosen[count++] = pool.split[i];
  }
  CUdevResourceDesc description = nullptr;
  CUgreenCtx context = nullptr;
  if (count == 0 ||
      HEDDLE_REAL(cuDevResourceGenerateDesc)(&description, chosen, count) != CUDA_SUCCESS ||
      HEDDLE_REAL(cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM) !=
          CUDA_SUCCESS) {
    return false;
  }
  pool.contexts[place] = context;
  log_line("device %d: partition %08x of %u groups", device, groups, count);
  return true;
}

// False if the driver would not.
bool make_lane(StreamSlot& slot, uint32_t place) {
  Pool& pool = pools[slot.device];
  if (pool.primary == nullptr) pool.primary = primary_of(slot.device);
  if (slot.context != pool.primary || slot.lanes[place].load(std::memory_order_relaxed) != nullptr)
    return true;
  CUstream lane = nullptr;
  if (!make_context(pool, slot.device, place) || !make_ties(pool) ||
      HEDDLE_REAL(cuGreenCtxStreamCreate)(&lane, pool.contexts[place], CU_STREAM_NON_BLOCKING,
                                          slot.priority) != CUDA_SUCCESS ||
      !record(pool.trial, {lane, false})) {
    return false;
  }
  HEDDLE_FAULT_POINT("lane: made, not known");
  slot.lanes[place].store(lane, std::memory_order_release);
  return true;
}

void await_lanes(const StreamSlot& slot) {
  for (const auto& lane : slot.lanes) {
    const CUstream stream = lane.load(std::memory_order_relaxed);
    if (stream != nullptr) HEDDLE_REAL(cuStreamSynchronize)(stream);
  }
}

}  // namespace

bool primary_is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return HEDDLE_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

CUcontext primary_of(CUdevice device) {
  CUcontext context = nullptr;
  if (!is_initialized() || !primary_is_active(device) ||
      HEDDLE_REAL(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  HEDDLE_REAL(cuDevicePrimaryCtxRelease_v2)(device);
  return context;
}

size_t read_groups(CUdevice device, std::span<uint16_t> sms) {
  CUdevResource groups[kGroups];
  const size_t count = std::min<size_t>(split(device, groups), sms.size());
  for (size_t i = 0; i < count; ++i) sms[i] = static_cast<uint16_t>(groups[i].sm.smCount);
  return count;
}

// ---- launching threads --------------------------------------------------------------------------

bool has_lanes(StreamSlot& slot) {
  if (!slot.markable.load(std::memory_order_relaxed)) return false;
  for (uint32_t place = 0; place < StreamSlot::kLanes; ++place) {
    if (pools[slot.device].groups[place].load(std::memory_order_relaxed) == 0) return true;
    if (lane_of(slot, place) == nullptr) return false;
  }
  return true;
}

Detour::Detour(const Inside& in, StreamSlot& slot, StreamRef from, uint32_t groups)
    : permit_(in), slot_(slot), from_(from) {
  if (!permit_ || !slot.markable.load(std::memory_order_relaxed)) return;
  Pool& pool = pools[slot.device];
  place_ = place_of(pool, groups);
  if (place_ == StreamSlot::kLanes) return;
  const CUstream lane = lane_of(slot, place_);
  if (lane == nullptr) return;
  const Tie& tie = pool.ties[in.thread().index];
  if (!record(tie.in, from)) return;
  HEDDLE_FAULT_POINT("detour: left, not awaited");
  if (!await({lane, false}, tie.in)) return;
  out_ = tie.out;
  lane_ = lane;
}

bool Detour::back() {
  HEDDLE_FAULT_POINT("detour: launched, not back");
  const bool recorded = record(out_, {lane_, false});
  HEDDLE_FAULT_POINT("detour: back, not awaited");
  if (recorded && await(from_, out_)) return true;
  slot_.lanes[place_].store(nullptr, std::memory_order_relaxed);
  HEDDLE_REAL(cuStreamSynchronize)(lane_);
  return false;
}

// ---- making and ending --------------------------------------------------------------------------

void make_lanes() {
  if (!lanes_due.load(std::memory_order_relaxed) || anything_captures()) return;
  lanes_due.exchange(false, std::memory_order_acq_rel);
  const Held held(lock);
  for (uint32_t i = 0; i < ipc::kStreams; ++i) {
    StreamSlot& slot = slot_at(i);
    if (slot.lanes_due.load(std::memory_order_relaxed) == 0) continue;
    uint32_t bits = slot.lanes_due.exchange(0, std::memory_order_relaxed);
    for (; bits != 0 && !refused.load(std::memory_order_relaxed); bits &= bits - 1) {
      if (make_lane(slot, static_cast<uint32_t>(__builtin_ctz(bits)))) continue;
      refused.store(true, std::memory_order_relaxed);
      log_line("the driver makes no Green Contexts; launches keep the whole device");
    }
  }
}

void end_lanes(StreamSlot& slot, bool gone) {
  if (slot.lanes_wanted.load(std::memory_order_relaxed) == 0) return;
  const Held held(lock);
  slot.lanes_wanted.store(0, std::memory_order_relaxed);
  slot.lanes_due.store(0, std::memory_order_relaxed);
  for (auto& lane : slot.lanes) {
    const CUstream stream = lane.exchange(nullptr);
    if (stream != nullptr) HEDDLE_FAULT_POINT("lane: forgotten, not destroyed");
    if (stream != nullptr && !gone) HEDDLE_REAL(cuStreamDestroy_v2)(stream);
  }
}

void end_partitions(CUdevice device) {
  if (device < 0 || device >= static_cast<int>(ipc::kDevices)) return;
  Pool& pool = pools[device];
  for (uint32_t i = 0; i < ipc::kStreams; ++i) {
    if (slot_at(i).device != device) continue;
    await_lanes(slot_at(i));
    end_lanes(slot_at(i), false);
  }
  const Held held(lock);
  for (CUgreenCtx& context : pool.contexts) {
    if (context != nullptr) HEDDLE_REAL(cuGreenCtxDestroy)(context);
    context = nullptr;
  }
  for (Tie& tie : pool.ties) {
    if (tie.in != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(tie.in);
    if (tie.out != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(tie.out);
    tie = {};
  }
  if (pool.trial != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(pool.trial);
  pool.trial = nullptr;
  pool.primary = nullptr;
}

void forget_partitions() {
  lock.forget();
  for (Pool& pool : pools) {
    for (auto& groups : pool.groups) groups.store(0, std::memory_order_relaxed);
    for (Tie& tie : pool.ties) tie = {};
    for (CUgreenCtx& context : pool.contexts) context = nullptr;
    pool.trial = nullptr;
    pool.primary = nullptr;
    pool.split_count = 0;
  }
  lanes_due.store(false, std::memory_order_relaxed);
  refused.store(false, std::memory_order_relaxed);
}

}  // namespace heddle::shim
