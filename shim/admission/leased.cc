#include "shim/admission/leased.h"

#include "shim/admission/rows.h"
#include "shim/evidence/watch.h"

namespace heddle::shim {

[[gnu::hot]] bool Leased::post(KernelRef kernel) {
  if (!in_.enter_known()) return false;
  ThreadSlot& thread = in_.thread();
  ipc::ring_prefetch(thread.block->ring_head, thread.block->ring);
  StreamSlot* const stream = known_stream(thread, ref_);
  if (kernel.index >= ipc::kKernels || stream == nullptr ||
      static_cast<uint32_t>(stream->device) >= ipc::kDevices || anything_captures() ||
      stream->detoured.load(std::memory_order_relaxed)) {
    return false;
  }
  const ipc::ControlMemory& control = in_.control();
  const ipc::DeviceTerms& terms = control.devices[stream->device];
  const ipc::KernelHint& hint = in_.hints(stream->device).kernels[kernel.index];
  const bool leased = terms.leased.load(std::memory_order_acquire) != 0;
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  // Everything that needs a Turn.
  const uint32_t more = get(terms.sm_set) | get(control.header.bypass) |
                        get(control.header.unobserved) | get(control.header.away) |
                        get(guard().fail_closed) | get(hint.special) | kernel.exempt;
  predicted_us_ = get(hint.predicted_us);
  if (!leased || more != 0 || !(predicted_us_ > 0) || is_timed(thread.launches + 1) ||
      (get(stream->pairs_out) > 0 && is_polled(thread.launches))) {
    return false;
  }

  priority_ = get(terms.launch_priority);
  if (priority_ != 0 && unraised.has(kernel.index)) priority_ = 0;
  stream_ = stream;
  kernel_ = kernel.index;
  before_ = get(stream->kernel);
  ++thread.launches;
  seq_ = take_number(thread, *stream, kernel_);
  at_ns_ = now_ns();
  in_.post_silently([&](ipc::RecordFields& record) {
    fill_record(record, *stream, seq_, kernel_, at_ns_);
    tell_launch(in_, before_, record);
  });
  in_.count(wire::Admission::LEASE);
  HEDDLE_FAULT_POINT("gate: admitted, not launched");
  return true;
}

// Called while a less important client waits for this launch's end.
void Leased::mark() {
  if (worth_marking(*stream_, before_, kernel_, at_ns_, predicted_us_)) {
    place_marker(in_, *stream_, ref_);
  }
  if (has_markers(*stream_)) watch_soon();
}

}  // namespace heddle::shim
