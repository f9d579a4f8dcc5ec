// A launch that stands at a gate on the GPU instead of asking: its thread goes on.
#include "shim/admission/gate.h"
#include "shim/gate/page.h"

namespace heddle::shim {

// Where the daemon has nothing to choose but when, and the driver nothing to load first.
bool Turn::stand_at_gate(const Launch& launch) {
  GateBook* const gates = in_.session().gates;
  if (gates == nullptr || gates->left.load(std::memory_order_relaxed) ||
      window_us_ != ipc::kWindowGate || launch.cooperative || !sm_set_.empty() ||
      special_.changes() || kernel_.index >= ipc::kKernels || fails_closed() ||
      stream_->detoured.load(std::memory_order_relaxed)) {
    return false;
  }
  const ipc::KernelHint& hint = in_.hints(stream_->device).kernels[kernel_.index];
  if (!(hint.predicted_us.load(std::memory_order_relaxed) > 0)) return false;
  if (graph_ && !graph_may_stand(launch)) return false;
  const int64_t until = now_ns() + 2 * starvation_ns(in_.control());  // the daemon's is sooner
  while (is_far_ahead(*gates, stream_->device)) {
    if (now_ns() > until) leave_gates(gates);
    if (gates->left.load(std::memory_order_relaxed)) return false;
    poll_all(in_);
    nap_at_gate(*gates, stream_->device);
  }
  ask_seq_ = put_gate(*gates, stream_->device, ref_);
  return gated_ = ask_seq_ != 0;
}

// A daemon that does not hear of it cannot let it go.
void Turn::post_gated(const ipc::RecordFields& fields) {
  const auto& dropped = in_.block().dropped;
  const uint32_t before = dropped.load(std::memory_order_relaxed);
  in_.post(fields, true);
  if (dropped.load(std::memory_order_relaxed) != before) leave_gates(in_.session().gates);
  in_.count(wire::Admission::ASK);
}

}  // namespace heddle::shim
