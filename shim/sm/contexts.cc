#include "shim/sm/contexts.h"

#include <stdlib.h>

#include <algorithm>

#include "ipc/fault.h"
#include "ipc/sm_set.h"
#include "shim/driver/driver.h"
#include "shim/link/log.h"

namespace heddle::shim {
namespace {

constexpr unsigned kGroupSms = 8;  // Hopper's smallest group with clusters; others round up
// The last group has the SMs that the split left over.
constexpr unsigned kGroups = ipc::kSmGroups;

// The two events of a thread's detours. Each detour records them anew: a stream that waits for an
// event waits for its state at the time of the call. A thread makes one detour at a time.
struct Tie {
  CUevent in = nullptr;   // on the application's stream
  CUevent out = nullptr;  // on the lane
};

// The family of one device, the smaller sets first. Written only while no other thread can launch
// (make_family) or make a detour (end_sm_sets).
struct Pool {
  Spin primary_lock;
  std::atomic<uint32_t> count{0};  // groups of the device, while it has a family
  std::atomic<uint32_t> members{0};
  std::atomic<uint64_t> made{0};  // ipc::pack_made
  std::atomic<CUcontext> primary{nullptr};
  std::atomic<ipc::SmSet> sets[StreamSlot::kLanes] = {};
  CUgreenCtx contexts[StreamSlot::kLanes] = {};
  CUcontext plain[StreamSlot::kLanes] = {};  // the same, for graph nodes; nullptr: not to be had
  Tie ties[ipc::kThreads];                   // by thread slot, used by its thread alone
  // Lanes that ended streams left, by place: a handle of 47 bits, and above it the priority.
  std::atomic<uint64_t> spares[StreamSlot::kLanes][ipc::kStreams] = {};
  std::atomic<uint32_t> small_lanes{0};  // existing lanes in all members but the last, largest one
};
constinit Pool pools[ipc::kDevices] = {};

// The most lanes in members smaller than the largest one, which is the rule's set. Each lane takes
// up to 0.1 MiB of device memory (H100), and 256 streams with twelve sizes would have 3 072.
constexpr uint32_t kSmallLanesMost = 128;

// After a lane failed, its stream stays on the whole device for this time, twice as long each time.
constexpr int64_t kLaneRestMinNs = 10'000'000;
constexpr int64_t kLaneRestMaxNs = 10'000'000'000;

constinit bool enough_queues = false;  // written once, before the first context

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

// Kernels of the application update nodes of its graphs (keep_whole_device).
std::atomic<bool> keeps_whole_device{false};

uint32_t members_in_use(const Pool& pool) {
  return keeps_whole_device.load(std::memory_order_relaxed)
             ? 0
             : pool.members.load(std::memory_order_acquire);
}

// The smallest member that holds the set; kLanes if there is none.
uint32_t place_of(const Pool& pool, ipc::SmSet set) {
  const uint32_t members = members_in_use(pool);
  for (uint32_t place = 0; place < members; ++place) {
    if ((set - pool.sets[place].load(std::memory_order_relaxed)).empty()) return place;
  }
  return StreamSlot::kLanes;
}

void rest_lanes(StreamSlot& slot) {
  const int64_t rest_ns = std::clamp(2 * slot.lanes_rest_ns.load(std::memory_order_relaxed),
                                     kLaneRestMinNs, kLaneRestMaxNs);
  slot.lanes_rest_ns.store(rest_ns, std::memory_order_relaxed);
  slot.lanes_again_ns.store(now_ns() + rest_ns, std::memory_order_relaxed);
}

constexpr int kPriorityShift = 48;

CUstream lane_in(uint64_t spare) {
  return reinterpret_cast<CUstream>(spare & ((uint64_t{1} << kPriorityShift) - 1));
}

bool is_small(const Pool& pool, uint32_t place) {
  return place + 1 < pool.members.load(std::memory_order_relaxed);
}

// Makes a lane. nullptr: there are too many already, or the driver refused, and the stream rests.
CUstream make_lane(StreamSlot& slot, Pool& pool, uint32_t place) {
  const bool small = is_small(pool, place);
  if (small && pool.small_lanes.fetch_add(1) >= kSmallLanesMost) {
    pool.small_lanes.fetch_sub(1);
    return nullptr;
  }
  CUstream made = nullptr;
  if (HEDDLE_REAL(cuGreenCtxStreamCreate)(&made, pool.contexts[place], CU_STREAM_NON_BLOCKING,
                                          slot.priority) == CUDA_SUCCESS) {
    return made;
  }
  if (small) pool.small_lanes.fetch_sub(1);
  rest_lanes(slot);
  return nullptr;
}

void end_lane(Pool& pool, uint32_t place, CUstream lane) {
  if (is_small(pool, place)) pool.small_lanes.fetch_sub(1);
  HEDDLE_REAL(cuStreamDestroy_v2)(lane);
}

// Keeps the lane of an ended stream for the next stream of the same priority. Drivers never free
// all memory of a Green Context's stream: 12 000 streams left some 100 MiB on an H100.
void leave_lane(Pool& pool, uint32_t place, CUstream lane, int priority) {
  const uint64_t word = reinterpret_cast<uint64_t>(lane) | uint64_t{static_cast<uint16_t>(priority)}
                                                               << kPriorityShift;
  for (auto& spare : pool.spares[place]) {
    uint64_t expected = 0;
    if (spare.load(std::memory_order_relaxed) == 0 &&
        spare.compare_exchange_strong(expected, word)) {
      return;
    }
  }
  end_lane(pool, place, lane);
}

// Takes a kept lane in which nothing runs: work in a lane may wait for what the new stream is about
// to launch. nullptr: there is none.
CUstream take_lane(Pool& pool, uint32_t place, int priority) {
  int looks_left = 8;  // each is a call to the driver
  for (auto& spare : pool.spares[place]) {
    uint64_t word = spare.load(std::memory_order_relaxed);
    if (word == 0 || static_cast<int16_t>(word >> kPriorityShift) != priority ||
        !spare.compare_exchange_strong(word, 0)) {
      continue;
    }
    const CUstream lane = lane_in(word);
    if (HEDDLE_REAL(cuStreamQuery)(lane) == CUDA_SUCCESS) return lane;
    leave_lane(pool, place, lane, priority);
    if (--looks_left == 0) break;
  }
  return nullptr;
}

CUstream lane_of(StreamSlot& slot, Pool& pool, uint32_t place) {
  CUstream lane = slot.lanes[place].load(std::memory_order_acquire);
  if (lane != nullptr) [[likely]]
    return lane;
  CUstream made = take_lane(pool, place, slot.priority);
  if (made == nullptr) made = make_lane(slot, pool, place);
  if (made == nullptr) return nullptr;
  HEDDLE_FAULT_POINT("lane: made, not known");
  if (slot.lanes[place].compare_exchange_strong(lane, made)) return made;
  leave_lane(pool, place, made, slot.priority);  // another thread was sooner
  return lane;
}

// Makes the tie's events in the primary context: an event belongs to the context that is current
// when it is made.
bool has_tie(Tie& tie, CUcontext primary) {
  if (tie.out != nullptr) [[likely]]
    return true;
  if (HEDDLE_REAL(cuCtxPushCurrent_v2)(primary) != CUDA_SUCCESS) return false;
  const auto make = [](CUevent& event) {
    return event != nullptr ||
           HEDDLE_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  };
  const bool made = make(tie.in) && make(tie.out);
  CUcontext popped = nullptr;
  HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  return made;
}

// ---- making -------------------------------------------------------------------------------------

ipc::MadeSets wanted_sets(const ipc::DeviceTerms& terms) {
  return {ipc::SetSizes(terms.set_sizes.load(std::memory_order_relaxed)),
          ipc::unpack_ring(terms.ring.load(std::memory_order_relaxed))};
}

// The members that a client with these terms is to have on a device of `count` groups, the smaller
// ones first.
uint32_t members_of(const ipc::DeviceTerms& terms, ipc::GroupCount count,
                    ipc::SmSet (&members)[StreamSlot::kLanes]) {
  const ipc::SmSet all = ipc::SmSet::first(count);
  const ipc::SmSet rule = ipc::SmSet(terms.sm_set.load(std::memory_order_relaxed)) & all;
  const auto [sizes, ring] = wanted_sets(terms);
  uint32_t found = 0;
  const auto add = [&](ipc::SmSet set) {
    const auto end = members + found;
    if (set.empty() || set == all || found == StreamSlot::kLanes) return;
    if (std::find(members, end, set) == end) members[found++] = set;
  };
  for (ipc::GroupCount n(1); n <= count; ++n) {
    if (!sizes.has(n)) continue;
    for (uint32_t p = 0; p < std::max<uint32_t>(1, ring.positions); ++p) {
      add(ipc::ring_groups(n, ring, p, rule, count));
    }
  }
  if (found == StreamSlot::kLanes) --found;  // room for the rule's set, which is always needed
  add(rule);
  return found;
}

CUgreenCtx make_context(CUdevice device, const CUdevResource (&groups)[kGroups], unsigned count,
                        ipc::SmSet members) {
  CUdevResource chosen[kGroups];
  unsigned number = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (members.has(i)) chosen[number++] = groups[i];
  }
  CUdevResourceDesc description = nullptr;
  CUgreenCtx context = nullptr;
  if (HEDDLE_REAL(cuDevResourceGenerateDesc)(&description, chosen, number) != CUDA_SUCCESS ||
      HEDDLE_REAL(cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM) !=
          CUDA_SUCCESS) {
    return nullptr;
  }
  return context;
}

void await_lanes(const StreamSlot& slot) {
  for (const auto& lane : slot.lanes) {
    const CUstream stream = lane.load(std::memory_order_relaxed);
    if (stream != nullptr) HEDDLE_REAL(cuStreamSynchronize)(stream);
  }
}

}  // namespace

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

size_t read_groups(CUdevice device, std::span<uint16_t> widths) {
  CUdevResource groups[kGroups];
  const size_t count = std::min<size_t>(split(device, groups), widths.size());
  for (size_t i = 0; i < count; ++i) widths[i] = static_cast<uint16_t>(groups[i].sm.smCount);
  return count;
}

Spin& primary_lock(CUdevice device) {
  return pools[static_cast<uint32_t>(device) % ipc::kDevices].primary_lock;
}

void count_queues(bool mps) {
  constexpr int kQueuesMin = 4;
  const char* asked = secure_getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  enough_queues = asked != nullptr && *asked != '\0' ? atoi(asked) >= kQueuesMin : !mps;
}

void make_family(CUdevice device, CUcontext primary) {
  if (static_cast<uint32_t>(device) >= ipc::kDevices) return;
  CUdevResource groups[kGroups];
  ipc::SmSet members[StreamSlot::kLanes];
  unsigned count = 0;
  uint32_t wanted = 0;
  ipc::MadeSets sets;
  {
    const Inside in;
    if (!in) return;
    const ipc::DeviceTerms& terms = in.control().devices[device];
    if ((terms.sm_set.load(std::memory_order_relaxed) |
         terms.set_sizes.load(std::memory_order_relaxed)) == 0) {
      return;
    }
    if (!enough_queues) {
      log_line("device %d: no SM sets: set CUDA_DEVICE_MAX_CONNECTIONS=4", device);
      return;
    }
    count = split(device, groups);
    wanted = members_of(terms, ipc::GroupCount(count), members);
    sets = wanted_sets(terms);
  }
  const RelaxedCapture relaxed;
  Pool& pool = pools[device];
  uint32_t made = 0;
  for (uint32_t i = 0; i < wanted; ++i) {
    const CUgreenCtx context = make_context(device, groups, count, members[i]);
    if (context == nullptr) continue;  // the next larger member stands in for it
    pool.contexts[made] = context;
    if (!driver_has(kEntry_cuCtxFromGreenCtx) ||
        HEDDLE_REAL(cuCtxFromGreenCtx)(&pool.plain[made], context) != CUDA_SUCCESS) {
      pool.plain[made] = nullptr;
    }
    pool.sets[made++].store(members[i], std::memory_order_relaxed);
  }
  if (made != wanted) {
    log_line("device %d: the driver made %u of %u SM sets; launches for the others keep more",
             device, made, wanted);
  }
  pool.primary.store(primary, std::memory_order_relaxed);
  pool.count.store(count, std::memory_order_relaxed);
  pool.made.store(ipc::pack_made(sets), std::memory_order_relaxed);
  pool.small_lanes.store(0, std::memory_order_relaxed);
  pool.members.store(made, std::memory_order_release);
}

// ---- launching threads --------------------------------------------------------------------------

ipc::SmSet size_set(int device, ipc::GroupCount size, const ipc::DeviceTerms& terms,
                    ipc::SmSet within) {
  const ipc::GroupCount count(pools[device].count.load(std::memory_order_relaxed));
  if (size >= count) return within;
  const ipc::SmRing ring = ipc::unpack_ring(terms.ring.load(std::memory_order_relaxed));
  return ipc::ring_groups(size, ring, 0, within, count);
}

bool has_family(int device, CUcontext context) {
  const Pool& pool = pools[static_cast<uint32_t>(device) % ipc::kDevices];
  return static_cast<uint32_t>(device) < ipc::kDevices && members_in_use(pool) != 0 &&
         context == pool.primary.load(std::memory_order_relaxed);
}

void keep_whole_device() { keeps_whole_device.store(true, std::memory_order_relaxed); }

uint64_t made_sets(int device) {
  const Pool& pool = pools[device];
  return pool.members.load(std::memory_order_acquire) != 0
             ? pool.made.load(std::memory_order_relaxed)
             : 0;
}

ipc::SmSet member_for(int device, ipc::SmSet set) {
  const Pool& pool = pools[device];
  const uint32_t place = set.empty() ? StreamSlot::kLanes : place_of(pool, set);
  if (place == StreamSlot::kLanes) return {};
  return pool.sets[place].load(std::memory_order_relaxed);
}

CUcontext context_of(int device, ipc::SmSet member) {
  const Pool& pool = pools[device];
  if (member.empty()) return pool.primary.load(std::memory_order_relaxed);
  const uint32_t place = place_of(pool, member);
  return place != StreamSlot::kLanes ? pool.plain[place] : nullptr;
}

bool has_lanes(const StreamSlot& slot) {
  const Pool& pool = pools[slot.device];
  const int64_t again_ns = slot.lanes_again_ns.load(std::memory_order_relaxed);
  return members_in_use(pool) != 0 &&
         slot.context == pool.primary.load(std::memory_order_relaxed) && !slot.green &&
         slot.markable.load(std::memory_order_relaxed) && (again_ns == 0 || now_ns() >= again_ns);
}

Detour::Detour(const Inside& in, StreamSlot& slot, StreamRef from, ipc::SmSet set)
    : permit_(in), slot_(slot), from_(from) {
  if (!permit_ || !has_lanes(slot)) return;
  Pool& pool = pools[slot.device];
  place_ = place_of(pool, set);
  if (place_ == StreamSlot::kLanes) return;
  const RelaxedCapture relaxed;
  Tie& tie = pool.ties[in.thread().index];
  const CUstream lane = lane_of(slot, pool, place_);
  if (lane == nullptr) return;
  bool left = has_tie(tie, slot.context) && record(tie.in, from);
  HEDDLE_FAULT_POINT("detour: left, not awaited");
  left = left && await({lane, false}, tie.in);
  if (left) {
    out_ = tie.out;
    lane_ = lane;
  } else {
    rest_lanes(slot);
  }
}

bool Detour::back() {
  HEDDLE_FAULT_POINT("detour: launched, not back");
  const RelaxedCapture relaxed;
  const bool recorded = record(out_, {lane_, false});
  HEDDLE_FAULT_POINT("detour: back, not awaited");
  if (recorded && await(from_, out_)) return true;
  rest_lanes(slot_);
  look_until([&] { return HEDDLE_REAL(cuStreamQuery)(lane_) != CUDA_ERROR_NOT_READY; });
  return false;
}

// ---- ending -------------------------------------------------------------------------------------

void end_lanes(StreamSlot& slot, bool gone) {
  slot.lanes_rest_ns.store(0, std::memory_order_relaxed);
  slot.lanes_again_ns.store(0, std::memory_order_relaxed);
  for (uint32_t place = 0; place < StreamSlot::kLanes; ++place) {
    const CUstream lane = slot.lanes[place].exchange(nullptr);
    if (lane == nullptr) continue;
    HEDDLE_FAULT_POINT("lane: forgotten, not left");
    if (!gone) leave_lane(pools[slot.device], place, lane, slot.priority);
  }
}

// Waits for the work in the lanes, as the end of the primary context would.
void end_sm_sets(CUdevice device) {
  if (static_cast<uint32_t>(device) >= ipc::kDevices) return;
  Pool& pool = pools[device];
  if (pool.members.load(std::memory_order_acquire) == 0) return;
  pool.members.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < ipc::kStreams; ++i) {
    if (slot_at(i).device != device) continue;
    await_lanes(slot_at(i));
    end_lanes(slot_at(i), false);
  }
  for (auto& spares : pool.spares) {
    for (auto& spare : spares) {
      const CUstream lane = lane_in(spare.exchange(0));
      if (lane == nullptr) continue;
      HEDDLE_REAL(cuStreamSynchronize)(lane);
      HEDDLE_REAL(cuStreamDestroy_v2)(lane);
    }
  }
  for (CUgreenCtx& context : pool.contexts) {
    if (context != nullptr) HEDDLE_REAL(cuGreenCtxDestroy)(context);
    context = nullptr;
  }
  for (Tie& tie : pool.ties) {
    if (tie.in != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(tie.in);
    if (tie.out != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(tie.out);
    tie = {};
  }
  pool.primary.store(nullptr, std::memory_order_relaxed);
}

void forget_sm_sets() {
  for (Pool& pool : pools) {
    pool.primary_lock.forget();
    for (auto& spares : pool.spares) {
      if (pool.members.load(std::memory_order_relaxed) == 0) break;  // then there are none
      for (auto& spare : spares) spare.store(0, std::memory_order_relaxed);
    }
    pool.members.store(0, std::memory_order_relaxed);
    pool.primary.store(nullptr, std::memory_order_relaxed);
    for (Tie& tie : pool.ties) tie = {};
    for (CUgreenCtx& context : pool.contexts) context = nullptr;
  }
}

}  // namespace heddle::shim
