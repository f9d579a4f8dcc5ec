// Streams and events.
#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  HEDDLE_SIM_CALL(call);
  Context* context = call.context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  stand_back(call, false);
  Stream* stream = make_stream(context, flags, priority, false);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

CUresult synchronize(CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  error = check_not_capturing(stream);
  if (error != CUDA_SUCCESS) return error;
  if (stream->legacy) order_against_legacy(stream);
  return wait_for(call, stream->slot, stream->issued);
}

CUresult query(CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  error = check_not_capturing(stream);
  if (error != CUDA_SUCCESS) return error;
  bool busy = outstanding(stream);
  if (stream->legacy) {
    for (const Stream* other : stream->context->streams) {
      busy = busy || (other->blocking && outstanding(other));
    }
  }
  return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult wait_event(CUstream handle, CUevent event_handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  Event* event = live<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr || event->capture_id != 0) return capture_wait(stream, event);
  if (!event->recorded || driver().link.done(event->slot) >= event->seq) return CUDA_SUCCESS;
  Command wait;
  wait.after_stream = event->slot;
  wait.after_seq = event->seq;
  return issue(call, stream, wait);
}

CUresult record(CUevent event_handle, CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  stand_back(call, false);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  Event* event = live<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return capture_record(stream, event);
  // An untimed record is the stream's number of the moment, which must cover what the stream waits
  // for. A timed one is work of its own, since the owner must write the time down.
  if (event->timing != kNoTiming || stream->legacy) {
    Command marker;
    marker.timing = event->timing;
    error = issue(call, stream, marker);
    if (error != CUDA_SUCCESS) return error;
  } else {
    order_against_legacy(stream);
  }
  event->capture_id = 0;
  event->recorded = true;
  event->slot = stream->slot;
  event->seq = stream->issued;
  return CUDA_SUCCESS;
}

CUresult elapsed(float* ms, CUevent from, CUevent to) {
  HEDDLE_SIM_CALL(call);
  const Event* start = live<Event>(from);
  const Event* end = live<Event>(to);
  if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Link& link = driver().link;
  for (const Event* event : {start, end}) {
    if (!event->recorded || event->timing == kNoTiming) return CUDA_ERROR_INVALID_HANDLE;
  }
  for (const Event* event : {start, end}) {
    if (link.done(event->slot) < event->seq) return CUDA_ERROR_NOT_READY;
  }
  *ms = static_cast<float>(link.timing(end->timing) - link.timing(start->timing)) / 1e6F;
  return CUDA_SUCCESS;
}

// One property of a stream, read under the lock.
template <class T, class Read>
CUresult property(CUstream handle, NullStream null, T* out, Read read) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = read(*stream);
  return CUDA_SUCCESS;
}

int priority_of(const Stream& stream) { return stream.priority; }
unsigned flags_of(const Stream& stream) { return stream.flags; }
unsigned long long id_of(const Stream& stream) { return stream.id; }
CUgreenCtx green_of(const Stream& s) {
  return reinterpret_cast<CUgreenCtx>(const_cast<Green*>(s.green));
}
CUcontext context_of(const Stream& s) {
  if (s.green != nullptr) return reinterpret_cast<CUcontext>(const_cast<Green*>(s.green));
  return reinterpret_cast<CUcontext>(s.context);
}

}  // namespace
}  // namespace heddle::sim

using namespace heddle::sim;

// Both forms of an entry point that takes a stream: NULL is the legacy stream, or the thread's own.
#define HEDDLE_BOTH(name, params, function, ...)                                             \
  HEDDLE_SIM_API CUresult name params { return function(__VA_ARGS__, NullStream::kLegacy); } \
  HEDDLE_SIM_API CUresult name##_ptsz params {                                               \
    return function(__VA_ARGS__, NullStream::kPerThread);                                    \
  }

HEDDLE_BOTH(cuStreamSynchronize, (CUstream stream), synchronize, stream)
HEDDLE_BOTH(cuStreamQuery, (CUstream stream), query, stream)
HEDDLE_BOTH(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned), wait_event, stream,
            event)
HEDDLE_BOTH(cuEventRecord, (CUevent event, CUstream stream), record, event, stream)
HEDDLE_BOTH(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned), record, event,
            stream)

#define HEDDLE_PROPERTY(name, type, read)                           \
  HEDDLE_SIM_API CUresult name(CUstream stream, type* out) {        \
    return property(stream, NullStream::kLegacy, out, read);        \
  }                                                                 \
  HEDDLE_SIM_API CUresult name##_ptsz(CUstream stream, type* out) { \
    return property(stream, NullStream::kPerThread, out, read);     \
  }

HEDDLE_PROPERTY(cuStreamGetPriority, int, priority_of)
HEDDLE_PROPERTY(cuStreamGetFlags, unsigned, flags_of)
HEDDLE_PROPERTY(cuStreamGetId, unsigned long long, id_of)
HEDDLE_PROPERTY(cuStreamGetCtx, CUcontext, context_of)

HEDDLE_SIM_API CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* green) {
  return property(stream, NullStream::kLegacy, green, green_of);
}

HEDDLE_SIM_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return create_stream(stream, flags, 0);
}
HEDDLE_SIM_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}

HEDDLE_SIM_API CUresult cuStreamDestroy_v2(CUstream handle) {
  HEDDLE_SIM_CALL(call);
  Stream* stream = live<Stream>(handle);
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  destroy_stream(stream);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuEventCreate(CUevent* out, unsigned flags) {
  HEDDLE_SIM_CALL(call);
  Context* context = call.context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  uint32_t timing = kNoTiming;
  if ((flags & CU_EVENT_DISABLE_TIMING) == 0) {
    if (!d.free_timings.empty()) {
      timing = d.free_timings.back();
      d.free_timings.pop_back();
    } else if (d.timing_slots < kWireTimings) {
      timing = d.timing_slots++;
    } else {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  auto* event = new Event;
  event->context = context;
  event->flags = flags;
  event->timing = timing;
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuEventDestroy_v2(CUevent handle) {
  HEDDLE_SIM_CALL(call);
  Event* event = live<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->timing != kNoTiming) driver().free_timings.push_back(event->timing);
  event->tag = 0;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuEventQuery(CUevent handle) {
  HEDDLE_SIM_CALL(call);
  const Event* event = live<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  if (event->capture_id != 0) return kCapturedEvent;
  const bool busy = event->recorded && driver().link.done(event->slot) < event->seq;
  return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuEventSynchronize(CUevent handle) {
  HEDDLE_SIM_CALL(call);
  const Event* event = live<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  if (event->capture_id != 0) return kCapturedEvent;
  return event->recorded ? wait_for(call, event->slot, event->seq) : CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  return elapsed(ms, start, end);
}
HEDDLE_SIM_API CUresult cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) {
  return elapsed(ms, start, end);
}
HEDDLE_SIM_API CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, void** green) {
  if (green != nullptr) *green = nullptr;
  return property(stream, NullStream::kLegacy, context, context_of);
}
HEDDLE_SIM_API CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, void** green) {
  if (green != nullptr) *green = nullptr;
  return property(stream, NullStream::kPerThread, context, context_of);
}
