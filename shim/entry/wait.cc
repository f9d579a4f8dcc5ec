// Entry points that wait for or query work, and so give evidence of its end; and those of the
// application's events.
#include "shim/entry/wait.h"

#include <utility>

#include "shim/admission/gate.h"
#include "shim/admission/rows.h"
#include "shim/driver/driver.h"
#include "shim/evidence/completion.h"
#include "shim/gate/unit.h"

namespace heddle::shim {
namespace {

ipc::RecordFields wait_record(uint16_t stream, int device, uint64_t seq) {
  ipc::RecordFields fields;
  fields.at_ns = static_cast<uint64_t>(now_ns());
  fields.stream_seq = seq;
  fields.stream = stream;
  fields.kind = wire::Kind::WAIT;
  fields.device = static_cast<uint8_t>(device);
  return fields;
}

bool has_device(const StreamSlot& slot) {
  return slot.device >= 0 && slot.device < static_cast<int>(ipc::kDevices);
}

// Marks that a thread is in a synchronizing call. The thread keeps its slot until it exits, so the
// pointer stays valid outside of a session.
class Blocked {
 public:
  void begin(Inside& in) {
    thread_ = &in.thread();
    in.report_launches();
    thread_->blocked_ns.store(now_ns(), std::memory_order_relaxed);
  }
  void end() {
    if (thread_ != nullptr) thread_->blocked_ns.store(0, std::memory_order_relaxed);
  }

 private:
  ThreadSlot* thread_ = nullptr;
};

// A synchronizing call for one stream. The wait is posted before the call, and the return is
// evidence. A call that failed also ends the wait, without new evidence.
class Wait {
 public:
  explicit Wait(StreamRef stream) {
    note_wait();
    Inside in;
    if (!in || anything_captures()) return;
    StreamSlot* slot = known_stream(in.thread(), stream);
    if (slot == nullptr) return;
    reach_ = reach_of(*slot);
    begin(in, *slot);
  }
  explicit Wait(CUevent event) {
    note_wait();
    Inside in;
    if (!in || anything_captures()) return;
    if (StreamSlot* slot = event_reach(event, reach_)) begin(in, *slot);
  }

  CUresult returned(CUresult result) {
    if (slot_ == nullptr) return result;
    blocked_.end();
    Inside in;
    if (!in) return result;
    const uint64_t reach =
        result == CUDA_SUCCESS ? reach_ : slot_->done.load(std::memory_order_relaxed);
    complete(in, *slot_, reach, wire::Evidence::SYNCHRONIZED, true);
    return result;
  }

 private:
  void begin(Inside& in, StreamSlot& slot) {
    if (!has_device(slot)) return;
    slot_ = &slot;
    ipc::RecordFields record = wait_record(slot.index, slot.device, reach_);
    tell_wait(in, record);
    blocked_.begin(in);
    in.post(record);
  }

  StreamSlot* slot_ = nullptr;
  uint64_t reach_ = 0;
  Blocked blocked_;
};

// A query returned. If it found the work done, that is evidence.
CUresult queried(CUresult result, StreamSlot* slot, uint64_t reach) {
  if (result != CUDA_SUCCESS || slot == nullptr || !has_device(*slot)) return result;
  Inside in;
  if (in) complete(in, *slot, reach, wire::Evidence::SYNCHRONIZED, false);
  telling.stop();
  return result;
}

template <class Real>
CUresult query_stream(StreamRef stream, Real&& real) {
  StreamSlot* slot = nullptr;
  uint64_t reach = 0;
  if (Inside in; in && !anything_captures()) {
    slot = known_stream(in.thread(), stream);
    if (slot != nullptr) reach = reach_of(*slot);
  }
  return queried(real(stream.handle), slot, reach);
}

// Ends a wait without new evidence.
void end_wait(Inside& in, StreamSlot& slot) {
  complete(in, slot, slot.done.load(std::memory_order_relaxed), wire::Evidence::SYNCHRONIZED, true);
}

// A synchronizing call for all streams of a context. One record announces the wait for the device;
// each stream's completion has a record of its own.
template <class Real>
CUresult synchronize_context(CUcontext context, Real&& real) {
  struct Seen {
    StreamSlot* slot;
    uint64_t reach;
  };
  constexpr size_t kSeen = 32;  // further streams are reported by a later call
  Seen seen[kSeen];
  size_t count = 0;
  StreamSlot* first = nullptr;
  Blocked blocked;
  note_wait();
  if (Inside in; in && !anything_captures()) {
    ipc::RecordFields record = wait_record(ipc::kAllStreams, 0, 0);
    tell_wait(in, record);
    blocked.begin(in);
    first = &stream_slot(in, {nullptr, false});
    for_each_active([&](StreamSlot& slot) {
      if (slot.context == context && count < kSeen) seen[count++] = {&slot, reach_of(slot)};
    });
    record.device = static_cast<uint8_t>(first->device);
    if (has_device(*first)) in.post(record);
  }
  const CUresult result = real();
  blocked.end();
  if (first == nullptr || !has_device(*first)) return result;
  if (Inside in; in) {
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i) {
      complete(in, *seen[i].slot, seen[i].reach, wire::Evidence::SYNCHRONIZED, true);
    }
    if (count == 0 || result != CUDA_SUCCESS) end_wait(in, *first);
  }
  return result;
}

// The event covers the work that was submitted before the call; work that another thread submits
// meanwhile may come behind it. The event's earlier place is forgotten first, whatever the driver
// answers. The program may wait for the event next: so the unit before it ends here (end_unit).
template <class Real>
CUresult record_event(CUevent event, StreamRef stream, Real&& real) {
  event_forgotten(event);
  StreamSlot* slot = nullptr;
  uint64_t reach = 0, ended = 0;
  if (Inside in; in && !anything_captures()) {
    slot = known_stream(in.thread(), stream);
    if (slot != nullptr) reach = reach_of(*slot);
    if (slot != nullptr && has_device(*slot)) add_beside_units(*in.session().gates, slot->device);
    if (slot != nullptr) ended = end_unit(*in.session().gates, *slot, in.thread().unit);
    if (slot != nullptr && shares_events()) [[unlikely]] {
      put_last_word(*slot, stream, std::exchange(ended, 0));
      await_release(in, slot->device);
    }
  }
  if (shares_events()) [[unlikely]]
    let_all_posted_go();
  const CUresult result = real();
  if (result == CUDA_SUCCESS && slot != nullptr) {
    put_last_word(*slot, stream, ended);
    event_recorded(event, *slot, reach);
  }
  return result;
}

}  // namespace

ImplicitWait::ImplicitWait() {
  if (!is_initialized()) return;
  Inside in;
  if (!in || !in.session().gates->on_gpu || anything_captures()) return;
  StreamSlot& slot = stream_slot(in, {nullptr, false});
  if (!has_device(slot)) return;
  slot_ = &slot;
  note_wait();
  ipc::RecordFields record = wait_record(ipc::kAllStreams, slot.device, 0);
  tell_wait(in, record);
  in.report_launches();
  in.post(record);
}

ImplicitWait::~ImplicitWait() {
  if (slot_ == nullptr) return;
  if (Inside in; in) end_wait(in, *slot_);
}

}  // namespace heddle::shim

using namespace heddle::shim;

extern "C" {

CUresult cuStreamSynchronize(CUstream stream) noexcept {
  Wait wait(StreamRef{stream, false});
  return wait.returned(HEDDLE_REAL(cuStreamSynchronize)(stream));
}
CUresult cuStreamSynchronize_ptsz(CUstream stream) noexcept {
  Wait wait(StreamRef{stream, true});
  return wait.returned(HEDDLE_REAL(cuStreamSynchronize_ptsz)(stream));
}
CUresult cuEventSynchronize(CUevent event) noexcept {
  Wait wait(event);
  return wait.returned(HEDDLE_REAL(cuEventSynchronize)(event));
}
CUresult cuCtxSynchronize() noexcept {
  return synchronize_context(current_context(), [] { return HEDDLE_REAL(cuCtxSynchronize)(); });
}
CUresult cuCtxSynchronize_v2(CUcontext context) noexcept {
  return synchronize_context(context, [&] { return HEDDLE_REAL(cuCtxSynchronize_v2)(context); });
}

CUresult cuStreamQuery(CUstream stream) noexcept {
  return query_stream({stream, false}, HEDDLE_REAL(cuStreamQuery));
}
CUresult cuStreamQuery_ptsz(CUstream stream) noexcept {
  return query_stream({stream, true}, HEDDLE_REAL(cuStreamQuery_ptsz));
}
CUresult cuEventQuery(CUevent event) noexcept {
  uint64_t reach = 0;
  StreamSlot* slot = event_reach(event, reach);
  return queried(HEDDLE_REAL(cuEventQuery)(event), slot, reach);
}

CUresult cuEventRecord(CUevent event, CUstream stream) noexcept {
  return record_event(event, {stream, false},
                      [&] { return HEDDLE_REAL(cuEventRecord)(event, stream); });
}
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) noexcept {
  return record_event(event, {stream, true},
                      [&] { return HEDDLE_REAL(cuEventRecord_ptsz)(event, stream); });
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) noexcept {
  return record_event(event, {stream, false},
                      [&] { return HEDDLE_REAL(cuEventRecordWithFlags)(event, stream, flags); });
}
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) noexcept {
  return record_event(event, {stream, true}, [&] {
    return HEDDLE_REAL(cuEventRecordWithFlags_ptsz)(event, stream, flags);
  });
}
CUresult cuEventDestroy(CUevent event) noexcept {
  event_forgotten(event);
  return HEDDLE_REAL(cuEventDestroy)(event);
}
CUresult cuEventDestroy_v2(CUevent event) noexcept {
  event_forgotten(event);
  return HEDDLE_REAL(cuEventDestroy_v2)(event);
}

// ---- synchronous copies to or from the host: they return when the default stream is done --------

#define HEDDLE_WAITING_COPY(name, per_thread, parameters, arguments) \
  CUresult name parameters noexcept;                                 \
  CUresult name parameters noexcept {                                \
    Wait wait(StreamRef{nullptr, per_thread});                       \
    return wait.returned(HEDDLE_REAL(name) arguments);               \
  }
// The driver puts the data of a small copy from the host into its commands, and returns before the
// copy is done. So such a copy is activity, and no evidence.
#define HEDDLE_COPY_FROM_HOST(name, per_thread)                                 \
  CUresult name(CUdeviceptr to, const void* from, size_t bytes) noexcept;       \
  CUresult name(CUdeviceptr to, const void* from, size_t bytes) noexcept {      \
    constexpr size_t kInlineBytes = 64 * 1024;                                  \
    if (bytes <= kInlineBytes) {                                                \
      const Activity activity({nullptr, per_thread}, heddle::wire::Kind::COPY); \
      return HEDDLE_REAL(name)(to, from, bytes);                                \
    }                                                                           \
    Wait wait(StreamRef{nullptr, per_thread});                                  \
    return wait.returned(HEDDLE_REAL(name)(to, from, bytes));                   \
  }
// These were not measured. They may wait for running kernels, as frees and loads do.
#define HEDDLE_MAY_WAIT(name, parameters, arguments) \
  CUresult name parameters noexcept;                 \
  CUresult name parameters noexcept {                \
    const ImplicitWait wait;                         \
    return HEDDLE_REAL(name) arguments;              \
  }
#pragma GCC visibility push(default)
HEDDLE_COPY_FROM_HOST(cuMemcpyHtoD_v2, false)
HEDDLE_COPY_FROM_HOST(cuMemcpyHtoD_v2_ptds, true)
// clang-format off
HEDDLE_WAITING_COPY(cuMemcpyDtoH_v2, false, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_WAITING_COPY(cuMemcpyAtoH_v2, false, (void* to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
HEDDLE_WAITING_COPY(cuMemcpyAtoH_v2_ptds, true, (void* to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
HEDDLE_WAITING_COPY(cuMemcpyDtoH_v2_ptds, true, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_MAY_WAIT(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
HEDDLE_MAY_WAIT(cuDestroyExternalMemory, (void* memory), (memory))
HEDDLE_MAY_WAIT(cuIpcCloseMemHandle, (CUdeviceptr at), (at))
HEDDLE_MAY_WAIT(cuLibraryLoadData, (CUlibrary* library, const void* code, void* options, void** values, unsigned count, void* library_options, void** library_values, unsigned library_count), (library, code, options, values, count, library_options, library_values, library_count))
HEDDLE_MAY_WAIT(cuLibraryLoadFromFile, (CUlibrary* library, const char* file, void* options, void** values, unsigned count, void* library_options, void** library_values, unsigned library_count), (library, file, options, values, count, library_options, library_values, library_count))
HEDDLE_MAY_WAIT(cuSurfObjectCreate, (unsigned long long* surface, const void* what), (surface, what))
HEDDLE_MAY_WAIT(cuSurfObjectDestroy, (unsigned long long surface), (surface))
HEDDLE_MAY_WAIT(cuTexObjectCreate, (unsigned long long* texture, const void* what, const void* how, const void* view), (texture, what, how, view))
HEDDLE_MAY_WAIT(cuTexObjectDestroy, (unsigned long long texture), (texture))
// clang-format on
#pragma GCC visibility pop

}  // extern "C"
