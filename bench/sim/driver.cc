#include "bench/sim/driver.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace heddle::sim {
namespace {

// CUDA_MPS_CLIENT_PRIORITY=1, read once as MPS does: all of this client's streams below those of
// normal clients. Time-sliced it changes nothing, since clients are never on the GPU together.
int client_priority() {
  static const int kOffset = [] {
    const char* named = getenv("CUDA_MPS_CLIENT_PRIORITY");
    return named != nullptr && *named == '1' ? facts::kPriorityLeast - facts::kPriorityGreatest + 1
                                             : 0;
  }();
  return kOffset;
}

}  // namespace

Driver& driver() {
  static Driver* const state = new Driver;
  return *state;
}

Thread& this_thread() {
  thread_local Thread thread;
  if (thread.id == 0) thread.id = static_cast<int>(syscall(SYS_gettid));
  return thread;
}

Thread::~Thread() {
  if (default_streams.empty() || !driver().initialized) return;
  std::lock_guard lock(driver().mutex);
  for (auto& [context, stream] : default_streams) {
    if (stream->tag == Stream::kTag) destroy_stream(stream);
  }
}

// In a child of fork the mutex may be held by a thread that does not exist: it is not touched
// there.
Call::Call()
    : entered_(driver().initialized && enter()),
      lock_(driver().mutex, std::defer_lock),
      error_(CUDA_ERROR_NOT_INITIALIZED) {
  if (!entered_) return;
  lock_.lock();
  error_ = CUDA_SUCCESS;
}

Call::~Call() {
  if (entered_) driver().link.region()->inside.fetch_sub(1);
}

Context* Thread::current() const {
  return contexts.empty() || contexts.back() == nullptr || contexts.back()->tag != Context::kTag
             ? nullptr
             : contexts.back();
}

Context* make_context(bool primary, unsigned flags) {
  std::vector<rm::Handle> groups;
  if (!make_channel_groups(groups)) return nullptr;
  auto* context = new Context;
  context->primary = primary;
  context->flags = flags;
  context->legacy = make_stream(context, 0, 0, true);
  context->groups = std::move(groups);
  if (context->legacy == nullptr) {
    free_channel_groups(context->groups);
    return nullptr;
  }
  driver().contexts.push_back(context);
  return context;
}

void destroy_context(Context* context) {
  while (!context->streams.empty()) destroy_stream(context->streams.back());
  release_context_memory(context);
  free_channel_groups(context->groups);
  context->tag = 0;
  std::erase(driver().contexts, context);
}

Stream* make_stream(Context* context, unsigned flags, int priority, bool legacy) {
  uint16_t slot;
  uint64_t issued;
  priority = std::clamp(priority, facts::kPriorityGreatest, facts::kPriorityLeast);
  if (!open_slot(priority + client_priority(), slot, issued)) return nullptr;
  auto* stream = new Stream;
  stream->context = context;
  stream->slot = slot;
  stream->issued = issued;
  stream->flags = flags;
  stream->priority = priority;
  stream->legacy = legacy;
  stream->blocking = (flags & 1) == 0;  // CU_STREAM_NON_BLOCKING
  stream->id = driver().next_id++;
  context->streams.push_back(stream);
  return stream;
}

bool open_slot(int priority, uint16_t& slot, uint64_t& issued) {
  Driver& d = driver();
  const auto drained = std::find_if(d.free_streams.begin(), d.free_streams.end(), [&](auto& free) {
    return d.link.done(free.first) >= free.second;
  });
  if (drained != d.free_streams.end()) {
    slot = drained->first;
    issued = drained->second;
    d.free_streams.erase(drained);
  } else if (d.stream_slots < kWireStreams) {
    slot = static_cast<uint16_t>(d.stream_slots++);
    issued = 0;
  } else {
    return false;
  }
  Command open;
  open.kind = CommandKind::kOpenStream;
  open.stream = slot;
  open.seq = issued;
  open.priority = priority;
  d.link.push(open);
  return true;
}

void destroy_stream(Stream* stream) {
  if (stream->capture != nullptr) stream->capture->invalidated = true;
  stream->tag = 0;
  if (stream->lane != nullptr) driver().mem_ops.give_back(stream->lane);
  driver().free_streams.emplace_back(stream->slot, stream->issued);
  std::erase(stream->context->streams, stream);
}

Stream* find_stream(Call& call, CUstream handle, NullStream null, CUresult& error) {
  const bool per_thread =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && null == NullStream::kPerThread);
  const bool legacy = handle == CU_STREAM_LEGACY || (handle == nullptr && !per_thread);
  error = CUDA_ERROR_INVALID_CONTEXT;
  if (!per_thread && !legacy) {
    Stream* stream = live<Stream>(handle);
    error = stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    return stream;
  }
  Context* context = call.context();
  if (context == nullptr) return nullptr;
  error = CUDA_SUCCESS;
  if (legacy) return context->legacy;
  Stream*& mine = this_thread().default_streams[context];
  if (mine == nullptr) mine = make_stream(context, 0, 0, false);
  if (mine == nullptr) error = CUDA_ERROR_OUT_OF_MEMORY;
  return mine;
}

bool outstanding(const Stream* stream) { return driver().link.done(stream->slot) < stream->issued; }

void push(Stream* stream, Command& command) {
  command.stream = stream->slot;
  command.seq = ++stream->issued;
  driver().link.push(command);
}

namespace {

void push_wait(Stream* stream, uint16_t slot, uint64_t seq) {
  Command wait;
  wait.after_stream = slot;
  wait.after_seq = seq;
  push(stream, wait);
}

// What stands at a word itself is behind it already.
void order_against_stop(Stream* stream) {
  Driver& d = driver();
  if (!d.mem_ops.pending()) return;
  if (stream->lane != nullptr && d.mem_ops.pending(*stream->lane)) return;
  const uint64_t behind = d.mem_ops.stopped(*d.stop);
  if (behind != 0) push_wait(stream, d.stop->slot, behind);
}

}  // namespace

// The rule: the legacy stream's work waits for all earlier work of the blocking streams of its
// context, and theirs for it.
void order_against_legacy(Stream* stream) {
  Context* context = stream->context;
  if (!stream->legacy) {
    if (stream->blocking && outstanding(context->legacy)) {
      push_wait(stream, context->legacy->slot, context->legacy->issued);
    }
    return;
  }
  for (Stream* other : context->streams) {
    if (other != stream && other->blocking && outstanding(other)) {
      push_wait(stream, other->slot, other->issued);
    }
  }
}

void order(Stream* stream) {
  order_against_legacy(stream);
  order_against_stop(stream);
}

void stand_back(Call& call, bool allocates) {
  constexpr unsigned kLookUs = 50;
  Driver& d = driver();
  while (d.mem_ops.pending() &&
         (d.calls_standing != 0 || (allocates && d.launches_standing != 0))) {
    call.unlock();
    usleep(kLookUs);
    call.lock();
  }
}

CUresult make_room(Call& call, Stream* stream) {
  if (stream->legacy) {
    const CUresult error = check_legacy(stream->context);
    if (error != CUDA_SUCCESS) return error;
  }
  Driver& d = driver();
  stand_back(call, false);
  while (stream->tag == Stream::kTag &&
         stream->issued - d.link.done(stream->slot) >= kStreamDepth) {
    ++d.launches_standing;
    const CUresult error = wait_for(call, stream->slot, stream->issued - kStreamDepth + 1);
    --d.launches_standing;
    if (error != CUDA_SUCCESS) return error;
  }
  return stream->tag == Stream::kTag ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult issue(Call& call, Stream* stream, Command& command) {
  if (stream->capture != nullptr) return capture_node(stream, command);
  const CUresult error = make_room(call, stream);
  if (error != CUDA_SUCCESS) return error;
  order(stream);
  push(stream, command);
  return CUDA_SUCCESS;
}

CUresult wait_for(Call& call, uint16_t slot, uint64_t seq) {
  call.unlock();
  const bool ok = driver().link.wait(slot, seq);
  call.lock();
  return ok ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult drain(Call& call, Context* context) {
  std::vector<std::pair<uint16_t, uint64_t>> targets;
  for (const Stream* stream : context->streams) targets.emplace_back(stream->slot, stream->issued);
  // Destroyed streams still finish what they had.
  for (const auto& free : driver().free_streams) targets.push_back(free);
  for (const auto& [slot, seq] : targets) {
    const CUresult error = wait_for(call, slot, seq);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult drain_holding_up(Call& call, Context* context) {
  ++driver().calls_standing;
  const CUresult error = drain(call, context);
  --driver().calls_standing;
  return error;
}

CUresult drain_words(Call& call, Context* context) {
  return driver().mem_ops.pending() ? drain_holding_up(call, context) : CUDA_SUCCESS;
}

}  // namespace heddle::sim
