#include "shim/evidence/streams.h"

#include <pthread.h>

#include "shim/driver/driver.h"
#include "shim/gate/page.h"
#include "shim/sm/contexts.h"

namespace heddle::shim {

constinit std::atomic<uint64_t> active_streams[ipc::kStreams / 64] = {};
constinit Counts counts;
constinit std::atomic<bool> any_detours{false};

namespace {

// The last slot is shared by all streams that found no slot of their own.
constexpr uint32_t kOwnSlots = ipc::kStreams - 1;
constexpr uint64_t kFreeKey = 0;
constexpr uint64_t kDeadKey = ~uint64_t{0};    // was taken: a search goes on past it
constexpr uint64_t kEndingKey = kDeadKey - 4;  // the same, but still being cleaned up

constinit std::atomic<uint64_t> keys[ipc::kStreams] = {};
constinit StreamSlot slots[ipc::kStreams];
constinit Spin keys_lock;  // held to take a slot; no driver call is made with it

// One capture that is going on. The thread that took the entry by `key` writes the rest of it.
struct Capturing {
  std::atomic<uint64_t> key{0};  // 0: free
  std::atomic<CUcontext> context{nullptr};
  std::atomic<const void*> thread{nullptr};  // of a per-thread default stream: its thread
};
constinit Capturing captures[64];
constexpr uint64_t kTakenKey = ~uint64_t{0};           // being written; no stream's
constinit std::atomic<uint32_t> captures_unlisted{0};  // captures that found no entry
constinit __thread char this_thread = 0;               // its address names the thread
constinit pthread_key_t capture_key = 0;
constinit bool capture_key_made = false;

struct alignas(64) Permits {
  std::atomic<uint32_t> value{0};
};
constinit Permits permits[ipc::kThreads];  // each thread counts its own

bool is_legacy(StreamRef stream) {
  return stream.handle == CU_STREAM_LEGACY || (stream.handle == nullptr && !stream.per_thread);
}
bool is_per_thread(StreamRef stream) {
  return stream.handle == CU_STREAM_PER_THREAD || (stream.handle == nullptr && stream.per_thread);
}

// Handles are aligned pointers of 47 bits. So the low bits of a key tell the three kinds of streams
// apart, and the high bits hold a thread: its slot, and a count of the threads that had that slot.
constexpr int kPlaceShift = 48;
constexpr int kOwnerShift = 54;
static_assert(ipc::kThreads <= 1 << (kOwnerShift - kPlaceShift));

[[gnu::always_inline]] inline uint64_t key_of(StreamRef stream, uint64_t thread) {
  if (is_legacy(stream)) return reinterpret_cast<uint64_t>(current_context()) | 1;
  if (is_per_thread(stream)) return reinterpret_cast<uint64_t>(current_context()) | 2 | thread;
  return reinterpret_cast<uint64_t>(stream.handle);
}

[[gnu::always_inline]] inline uint64_t key_of(StreamRef stream, const ThreadSlot& thread) {
  return key_of(stream,
                uint64_t{thread.index} << kPlaceShift | uint64_t{thread.owners} << kOwnerShift);
}

// The key without a session. All threads beyond the pool have the same one.
uint64_t own_key_of(StreamRef stream) {
  const ThreadSlot* thread = own_slot();
  return thread != nullptr ? key_of(stream, *thread) : key_of(stream, 0);
}

// `other` is the default stream of an earlier thread in the slot of the thread of `key`.
bool is_predecessor(uint64_t other, uint64_t key) {
  return (other & 3) == 2 && (other >> kPlaceShift) != (key >> kPlaceShift) &&
         (((other ^ key) >> kPlaceShift) & (ipc::kThreads - 1)) == 0;
}

// Fibonacci hashing, scaled to the number of slots.
uint32_t home_of(uint64_t key) {
  return static_cast<uint32_t>(((key * 0x9e3779b97f4a7c15u) >> 32) * kOwnSlots >> 32);
}

[[gnu::always_inline]] inline StreamSlot* find(uint64_t key) {
  uint32_t place = home_of(key);
  for (uint32_t probe = 0; probe < kOwnSlots; ++probe) {
    const uint64_t seen = keys[place].load(std::memory_order_acquire);
    if (seen == key) return &slots[place];
    if (seen == kFreeKey) return nullptr;
    if (++place == kOwnSlots) place = 0;
  }
  return nullptr;
}

void destroy_events(StreamSlot& slot, bool gone) {
  const auto destroy = [gone](CUevent event) {
    if (event != nullptr && !gone) HEDDLE_REAL(cuEventDestroy_v2)(event);
  };
  for (Marker& marker : slot.markers) {
    destroy(marker.event);
    marker = {};
  }
  for (Pair& pair : slot.pairs) {
    destroy(pair.begin);
    destroy(pair.end);
    pair.begin = pair.end = nullptr;
    pair.state.store(Pair::kFree, std::memory_order_relaxed);
  }
  slot.marker_head.store(0, std::memory_order_relaxed);
  slot.marker_tail.store(0, std::memory_order_relaxed);
  slot.pairs_out.store(0, std::memory_order_relaxed);
}

// The device of a context that need not be the current one.
CUdevice device_of(CUcontext context, CUcontext current) {
  const bool foreign = context != current;
  if (foreign && HEDDLE_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return -1;
  const CUdevice device = current_device();
  CUcontext popped = nullptr;
  if (foreign) HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  return device;
}

// Asks the driver: cuStreamGetCtx answers with the Green Context's own context, but its newer
// variant with the primary one, so that neither tells.
bool is_green(CUstream stream) {
  CUgreenCtx green = nullptr;
  return driver_has(kEntry_cuStreamGetGreenCtx) &&
         HEDDLE_REAL(cuStreamGetGreenCtx)(stream, &green) == CUDA_SUCCESS && green != nullptr;
}

bool is_blocking(CUstream stream) {
  unsigned flags = CU_STREAM_NON_BLOCKING;
  return HEDDLE_REAL(cuStreamGetFlags)(stream, &flags) == CUDA_SUCCESS &&
         (flags & CU_STREAM_NON_BLOCKING) == 0;
}

// Tells the daemon that a stream's slot is free, unless the stream had gates: the daemon may hear
// of launches at those only later. The slot's next stream continues their numbers.
void post_end(Inside& in, const StreamSlot& slot) {
  if (!in || slot.device < 0 || slot.device >= static_cast<int>(ipc::kDevices)) return;
  if (newest_gate(*in.session().gates, slot) != 0) return;
  ipc::RecordFields fields;
  fields.at_ns = static_cast<uint64_t>(now_ns());
  fields.stream_seq = slot.posted.load(std::memory_order_relaxed);
  fields.stream = slot.index;
  fields.kind = wire::Kind::STREAM_END;
  fields.device = static_cast<uint8_t>(slot.device);
  in.post(fields);
}

// Ends the stream of the slot, if the slot still has that key: only one thread does this.
void end_slot(Inside& in, uint32_t place, uint64_t key, bool gone) {
  if (!keys[place].compare_exchange_strong(key, kEndingKey)) return;
  StreamSlot& slot = slots[place];
  slot.markable.store(false, std::memory_order_relaxed);
  {
    const Held held(slot.events);
    destroy_events(slot, gone);
  }
  end_lanes(slot, gone);
  post_end(in, slot);
  slot.done.store(slot.posted.load(std::memory_order_relaxed), std::memory_order_relaxed);
  clear_active(slot);
  keys[place].store(kDeadKey, std::memory_order_release);
}

// What the driver says of a stream.
struct Facts {
  CUcontext context;
  int priority = 0;
  bool legacy, blocking, green;
  CUdevice device;
};

Facts facts_of(StreamRef stream) {
  Facts facts;
  const CUcontext current = facts.context = current_context();
  facts.legacy = is_legacy(stream);
  const bool is_default = facts.legacy || is_per_thread(stream);
  if (!is_default) {
    HEDDLE_REAL(cuStreamGetCtx)(stream.handle, &facts.context);
    HEDDLE_REAL(cuStreamGetPriority)(stream.handle, &facts.priority);
  }
  facts.blocking = is_default || is_blocking(stream.handle);
  facts.green = !is_default && is_green(stream.handle);
  facts.device = device_of(facts.context, current);
  return facts;
}

// A slot for a stream seen for the first time; keys_lock is held.
StreamSlot& take(uint64_t key, const Facts& facts) {
  uint32_t place = home_of(key), probe = 0;
  const auto is_free = [](uint64_t seen) { return seen == kFreeKey || seen == kDeadKey; };
  while (probe < kOwnSlots && !is_free(keys[place].load(std::memory_order_acquire))) {
    if (++place == kOwnSlots) place = 0;
    ++probe;
  }
  const bool shared = probe == kOwnSlots;
  StreamSlot& slot = slots[shared ? kOwnSlots : place];
  slot.context = facts.context;
  slot.priority = facts.priority;
  slot.legacy = facts.legacy;
  slot.blocking = facts.blocking;
  slot.green = facts.green;
  slot.device = facts.device;
  slot.index = static_cast<uint16_t>(&slot - slots);
  slot.rest.store(0, std::memory_order_relaxed);
  slot.next_rest = 0;
  slot.gate.store(0, std::memory_order_relaxed);
  slot.detoured.store(false, std::memory_order_relaxed);
  // `signals` of the shared slot stays set: the slot is taken anew at each launch of its streams.
  if (!shared) slot.signals.store(false, std::memory_order_relaxed);
  slot.spared_ns.store(0, std::memory_order_relaxed);
  slot.markable.store(!shared, std::memory_order_relaxed);
  if (!shared) keys[place].store(key, std::memory_order_release);
  return slot;
}

[[gnu::noinline]] StreamSlot& find_or_take(Inside& in, uint64_t key, StreamRef stream) {
  if (StreamSlot* slot = find(key)) return *slot;
  for (uint32_t i = 0; is_per_thread(stream) && i < kOwnSlots; ++i) {
    const uint64_t other = keys[i].load(std::memory_order_relaxed);
    if (is_predecessor(other, key)) end_slot(in, i, other, false);
  }
  const Facts facts = facts_of(stream);
  if (facts.green) in.count(&ipc::ClientMemory::Counters::green_streams);
  const Held held(keys_lock);
  StreamSlot* slot = find(key);
  return slot != nullptr ? *slot : take(key, facts);
}

// Waits until no thread holds a permit; no new one is given meanwhile. A permit lasts for a few
// driver calls. A thread that was cancelled in them would never give it back: hence the time limit.
void await_permits() {
  constexpr int64_t kPatienceNs = 1'000'000'000;
  const int64_t until = now_ns() + kPatienceNs;
  for (auto& permit : permits) {
    while (permit.value.load(std::memory_order_seq_cst) != 0 && now_ns() < until) sched_yield();
  }
}

// Removes up to `most` captures for which `ended` is true. Returns how many there were.
template <class Ended>
uint32_t remove_captures(uint32_t most, Ended&& ended) {
  uint32_t removed = 0;
  for (Capturing& capture : captures) {
    uint64_t key = capture.key.load(std::memory_order_acquire);
    if (removed == most) break;
    // An entry that is being written is a new capture, and its other fields may be the old one's.
    if (key != 0 && key != kTakenKey && ended(key, capture) &&
        capture.key.compare_exchange_strong(key, 0)) {
      ++removed;
    }
  }
  counts.captures.fetch_sub(removed, std::memory_order_seq_cst);
  return removed;
}

// The per-thread default streams of all threads share a key here: `thread` tells them apart.
bool remove_capture(uint64_t key) {
  return remove_captures(1, [key](uint64_t seen, const Capturing& capture) {
           const void* thread = capture.thread.load(std::memory_order_relaxed);
           return seen == key && (thread == nullptr || thread == &this_thread);
         }) != 0;
}

void thread_gone(void* thread) {
  remove_captures(~0u, [thread](uint64_t, const Capturing& capture) {
    return capture.thread.load(std::memory_order_relaxed) == thread;
  });
}

}  // namespace

bool is_spared(StreamSlot& stream) {
  const int64_t since_ns = stream.spared_ns.load(std::memory_order_relaxed);
  if (since_ns == 0) [[likely]]
    return false;
  if (anyone_blocked(since_ns)) return true;
  stream.spared_ns.store(0, std::memory_order_relaxed);
  return false;
}

StreamSlot& slot_at(uint32_t index) { return slots[index]; }

[[gnu::hot]] StreamSlot& stream_slot(Inside& in, StreamRef stream) {
  const uint64_t key = key_of(stream, in.thread());
  if (StreamSlot* slot = find(key)) [[likely]]
    return *slot;
  return find_or_take(in, key, stream);
}

void set_signals(StreamRef stream) {
  Inside in;
  find_or_take(in, own_key_of(stream), stream).signals.store(true, std::memory_order_relaxed);
}

bool signals(StreamRef stream) {
  const StreamSlot* slot = find(own_key_of(stream));
  return slot != nullptr && slot->signals.load(std::memory_order_relaxed);
}

[[gnu::hot]] StreamSlot* known_stream(const ThreadSlot& thread, StreamRef stream) {
  return find(key_of(stream, thread));
}

void end_stream(CUstream stream) {
  const auto key = reinterpret_cast<uint64_t>(stream);
  if (key == kFreeKey) return;
  Inside in;
  // No lock is held: the driver makes this call wait if the stream's queue is full at a closed
  // gate.
  StreamSlot* const slot = find(key);
  if (slot != nullptr && !anything_captures()) {
    put_last_word(*slot, {stream, false}, slot->gate.load(std::memory_order_relaxed));
  }
  if (slot != nullptr) end_slot(in, static_cast<uint32_t>(slot - slots), key, false);
}

void end_context(CUcontext context, bool gone) {
  Inside in;
  for (uint32_t place = 0; place < kOwnSlots; ++place) {
    const uint64_t key = keys[place].load(std::memory_order_acquire);
    const bool taken = key != kFreeKey && key != kDeadKey && key != kEndingKey;
    if (taken && slots[place].context == context) end_slot(in, place, key, gone);
  }
}

void clear_active(StreamSlot& slot) {
  active_streams[slot.index / 64].fetch_and(~(uint64_t{1} << (slot.index % 64)));
}

void forget_streams() {
  keys_lock.forget();
  for (uint32_t place = 0; place < ipc::kStreams; ++place) {
    StreamSlot& slot = slots[place];
    keys[place].store(kFreeKey, std::memory_order_relaxed);
    slot.events.forget();
    slot.turn.forget();
    slot.detoured.store(false, std::memory_order_relaxed);
    for (Marker& marker : slot.markers) marker = {};
    for (Pair& pair : slot.pairs) {
      pair.begin = pair.end = nullptr;
      pair.state.store(Pair::kFree, std::memory_order_relaxed);
    }
    slot.marker_head.store(0, std::memory_order_relaxed);
    slot.marker_tail.store(0, std::memory_order_relaxed);
    slot.pairs_out.store(0, std::memory_order_relaxed);
    for (auto& lane : slot.lanes) lane.store(nullptr, std::memory_order_relaxed);
    slot.lanes_again_ns.store(0, std::memory_order_relaxed);
    slot.lanes_rest_ns.store(0, std::memory_order_relaxed);
    slot.done.store(slot.posted.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  for (auto& word : active_streams) word.store(0, std::memory_order_relaxed);
  for (auto& capture : captures) capture.key.store(0, std::memory_order_relaxed);
  captures_unlisted.store(0, std::memory_order_relaxed);
  counts.captures.store(0, std::memory_order_relaxed);
  for (auto& permit : permits) permit.value.store(0, std::memory_order_relaxed);
}

// ---- captures -----------------------------------------------------------------------------------

void capture_begins(StreamRef stream) {
  const uint64_t key = key_of(stream, 0);
  CUcontext context = current_context();
  if (!is_per_thread(stream)) HEDDLE_REAL(cuStreamGetCtx)(stream.handle, &context);
  counts.captures.fetch_add(1, std::memory_order_seq_cst);
  bool listed = false;
  for (Capturing& capture : captures) {
    uint64_t expected = 0;
    listed = capture.key.compare_exchange_strong(expected, kTakenKey);
    if (!listed) continue;
    capture.context.store(context, std::memory_order_relaxed);
    capture.thread.store(is_per_thread(stream) ? &this_thread : nullptr, std::memory_order_relaxed);
    capture.key.store(key, std::memory_order_release);
    break;
  }
  if (!listed) captures_unlisted.fetch_add(1, std::memory_order_relaxed);
  if (is_per_thread(stream) && capture_key_made) pthread_setspecific(capture_key, &this_thread);
}

// A capture without an entry was counted in `captures_unlisted`.
void capture_ends(StreamRef stream) {
  if (remove_capture(key_of(stream, 0))) return;
  uint32_t unlisted = captures_unlisted.load(std::memory_order_relaxed);
  while (unlisted != 0 && !captures_unlisted.compare_exchange_weak(unlisted, unlisted - 1)) {
  }
  if (unlisted != 0) counts.captures.fetch_sub(1, std::memory_order_seq_cst);
}

void capture_failed(StreamRef stream) { capture_ends(stream); }

void stream_gone(CUstream stream) { remove_capture(reinterpret_cast<uint64_t>(stream)); }

void context_gone(CUcontext context) {
  remove_captures(~0u, [context](uint64_t, const Capturing& capture) {
    return capture.context.load(std::memory_order_relaxed) == context;
  });
}

void create_capture_key() {
  if (!capture_key_made) capture_key_made = pthread_key_create(&capture_key, thread_gone) == 0;
}

bool stream_captures(StreamRef stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto ask =
      stream.per_thread ? HEDDLE_REAL(cuStreamIsCapturing_ptsz) : HEDDLE_REAL(cuStreamIsCapturing);
  // The legacy stream answers with an error while another stream of its context captures. Nothing
  // may be put into it then, so that counts as capturing.
  return ask(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

EventPermit::EventPermit(const Inside& in) : given_(&permits[in.thread().index].value) {
  given_->fetch_add(1, std::memory_order_seq_cst);
  if (counts.captures.load(std::memory_order_seq_cst) == 0) return;
  given_->fetch_sub(1, std::memory_order_release);
  given_ = nullptr;
}

EventPermit::~EventPermit() {
  if (given_ != nullptr) given_->fetch_sub(1, std::memory_order_release);
}

RelaxedCapture::RelaxedCapture() { HEDDLE_REAL(cuThreadExchangeStreamCaptureMode)(&mode_); }

RelaxedCapture::~RelaxedCapture() { HEDDLE_REAL(cuThreadExchangeStreamCaptureMode)(&mode_); }

void return_permits(uint32_t thread) { permits[thread].value.store(0, std::memory_order_release); }

EventsRest::EventsRest() {
  counts.captures.fetch_add(1, std::memory_order_seq_cst);
  await_permits();
}

EventsRest::~EventsRest() { counts.captures.fetch_sub(1, std::memory_order_seq_cst); }

extern "C" int __cxa_atexit(void (*call)(void*), void* argument, void* object);

// Registered after the driver was loaded, so that it runs before the driver's own exit handlers.
void rest_events_at_exit() {
  static constinit bool registered = false;
  if (registered) return;
  const auto rest = [](void*) {
    if (!is_initialized()) return;
    counts.captures.fetch_add(1, std::memory_order_seq_cst);
    await_permits();
  };
  registered = __cxa_atexit(rest, nullptr, nullptr) == 0;
}

}  // namespace heddle::shim
