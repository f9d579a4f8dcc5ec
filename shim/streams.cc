#include "shim/streams.h"

#include "shim/driver.h"

namespace heddle::shim {

constinit std::atomic<uint64_t> active_streams[ipc::kStreams / 64] = {};

namespace {

// The last slot is shared by all streams that found no other.
constexpr uint32_t kOwnSlots = ipc::kStreams - 1;
constexpr uint64_t kFreeKey = 0;
constexpr uint64_t kDeadKey = ~uint64_t{0};  // was taken: a search goes on past it

constinit std::atomic<uint64_t> keys[ipc::kStreams] = {};
constinit StreamSlot slots[ipc::kStreams];
constinit Spin keys_lock;

constexpr uint32_t kCaptures = 64;
constinit std::atomic<uint64_t> captures[kCaptures] = {};
// Read at each launch, so that it has a line to itself; and each thread counts its own permits.
struct alignas(64) Count {
  std::atomic<uint32_t> value{0};
};
constinit Count capture_count;
constinit Count permits[ipc::kThreads];

bool is_legacy(StreamRef stream) {
  return stream.handle == CU_STREAM_LEGACY || (stream.handle == nullptr && !stream.per_thread);
}
bool is_per_thread(StreamRef stream) {
  return stream.handle == CU_STREAM_PER_THREAD || (stream.handle == nullptr && stream.per_thread);
}

CUcontext current_context() {
  CUcontext context = nullptr;
  HEDDLE_REAL(cuCtxGetCurrent)(&context);
  return context;
}

// Handles are aligned pointers of 47 bits, so the low bits tell the three kinds apart and the high
// ones hold the thread.
uint64_t key_of(StreamRef stream, uint32_t thread) {
  if (is_legacy(stream)) return reinterpret_cast<uint64_t>(current_context()) | 1;
  if (is_per_thread(stream)) {
    return reinterpret_cast<uint64_t>(current_context()) | 2 | uint64_t{thread} << 48;
  }
  return reinterpret_cast<uint64_t>(stream.handle);
}

uint32_t home_of(uint64_t key) {
  return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15u) >> 40) % kOwnSlots;
}

StreamSlot* find(uint64_t key) {
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
  slot.marker_head = slot.marker_tail = 0;
  slot.pairs_out.store(0, std::memory_order_relaxed);
}

// A slot for a stream seen for the first time; keys_lock is held.
StreamSlot& take(uint64_t key, StreamRef stream) {
  uint32_t place = home_of(key), probe = 0;
  while (probe < kOwnSlots && keys[place].load(std::memory_order_relaxed) != kFreeKey &&
         keys[place].load(std::memory_order_relaxed) != kDeadKey) {
    if (++place == kOwnSlots) place = 0;
    ++probe;
  }
  const bool shared = probe == kOwnSlots;
  StreamSlot& slot = slots[shared ? kOwnSlots : place];
  const CUcontext current = current_context();
  CUcontext context = current;
  if (!is_legacy(stream) && !is_per_thread(stream)) {
    HEDDLE_REAL(cuStreamGetCtx)(stream.handle, &context);
  }
  CUdevice device = 0;
  HEDDLE_REAL(cuCtxGetDevice)(&device);
  slot.context = context;
  slot.device = device;
  slot.index = static_cast<uint16_t>(&slot - slots);
  slot.markable.store(!shared && context == current, std::memory_order_relaxed);
  if (!shared) keys[place].store(key, std::memory_order_release);
  return slot;
}

void end_slot(uint32_t place, bool gone, void (*ended)(StreamSlot&)) {
  StreamSlot& slot = slots[place];
  slot.markable.store(false, std::memory_order_relaxed);
  {
    const Held held(slot.events);
    destroy_events(slot, gone);
  }
  ended(slot);
  slot.done.store(slot.posted.load(std::memory_order_relaxed), std::memory_order_relaxed);
  slot.done_ns.store(slot.posted_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  clear_active(slot);
  keys[place].store(kDeadKey, std::memory_order_release);
}

bool remove_capture(uint64_t key) {
  if (key == 0) return false;  // a free entry
  for (auto& capture : captures) {
    uint64_t expected = key;
    if (capture.compare_exchange_strong(expected, 0)) {
      capture_count.value.fetch_sub(1, std::memory_order_seq_cst);
      return true;
    }
  }
  return false;
}

}  // namespace

StreamSlot& slot_at(uint32_t index) { return slots[index]; }

StreamSlot& stream_slot(StreamRef stream, uint32_t thread) {
  const uint64_t key = key_of(stream, thread);
  if (StreamSlot* slot = find(key)) [[likely]]
    return *slot;
  const Held held(keys_lock);
  StreamSlot* slot = find(key);
  return slot != nullptr ? *slot : take(key, stream);
}

StreamSlot* known_stream(StreamRef stream, uint32_t thread) { return find(key_of(stream, thread)); }

void end_stream(CUstream stream, void (*ended)(StreamSlot&)) {
  const auto key = reinterpret_cast<uint64_t>(stream);
  if (key == kFreeKey) return;
  const Held held(keys_lock);
  if (const StreamSlot* slot = find(key)) {
    end_slot(static_cast<uint32_t>(slot - slots), false, ended);
  }
}

void end_context(CUcontext context, bool gone, void (*ended)(StreamSlot&)) {
  const Held held(keys_lock);
  for (uint32_t place = 0; place < kOwnSlots; ++place) {
    const uint64_t key = keys[place].load(std::memory_order_relaxed);
    if (key != kFreeKey && key != kDeadKey && slots[place].context == context) {
      end_slot(place, gone, ended);
    }
  }
}

void set_active(StreamSlot& slot) {
  auto& word = active_streams[slot.index / 64];
  const uint64_t bit = uint64_t{1} << (slot.index % 64);
  if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit);
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
    for (Marker& marker : slot.markers) marker = {};
    for (Pair& pair : slot.pairs) {
      pair.begin = pair.end = nullptr;
      pair.state.store(Pair::kFree, std::memory_order_relaxed);
    }
    slot.marker_head = slot.marker_tail = 0;
    slot.pairs_out.store(0, std::memory_order_relaxed);
    slot.done_ns.store(slot.posted_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  for (auto& word : active_streams) word.store(0, std::memory_order_relaxed);
  for (auto& capture : captures) capture.store(0, std::memory_order_relaxed);
  capture_count.value.store(0, std::memory_order_relaxed);
  for (auto& permit : permits) permit.value.store(0, std::memory_order_relaxed);
}

// ---- captures -----------------------------------------------------------------------------------

void capture_begins(StreamRef stream) {
  const uint64_t key = key_of(stream, 0);
  capture_count.value.fetch_add(1, std::memory_order_seq_cst);
  for (auto& capture : captures) {
    uint64_t expected = 0;
    if (capture.compare_exchange_strong(expected, key)) break;
    // With no entry left the count stays raised: markers rest for good, which is safe.
  }
  for (auto& permit : permits) {
    while (permit.value.load(std::memory_order_seq_cst) != 0) sched_yield();
  }
}

void capture_failed(StreamRef stream) { remove_capture(key_of(stream, 0)); }
void capture_ends(StreamRef stream) { remove_capture(key_of(stream, 0)); }
void stream_gone(CUstream stream) { remove_capture(reinterpret_cast<uint64_t>(stream)); }

bool anything_captures() { return capture_count.value.load(std::memory_order_relaxed) != 0; }

bool stream_captures(StreamRef stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto ask =
      stream.per_thread ? HEDDLE_REAL(cuStreamIsCapturing_ptsz) : HEDDLE_REAL(cuStreamIsCapturing);
  // The legacy stream answers with an error while another stream of its context captures; then
  // nothing may be put into it either.
  return ask(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

EventPermit::EventPermit(const Inside& in) : given_(&permits[in.thread().index].value) {
  given_->fetch_add(1, std::memory_order_seq_cst);
  if (capture_count.value.load(std::memory_order_seq_cst) == 0) return;
  given_->fetch_sub(1, std::memory_order_release);
  given_ = nullptr;
}

EventPermit::~EventPermit() {
  if (given_ != nullptr) given_->fetch_sub(1, std::memory_order_release);
}

void return_permits(uint32_t thread) { permits[thread].value.store(0, std::memory_order_release); }

}  // namespace heddle::shim
