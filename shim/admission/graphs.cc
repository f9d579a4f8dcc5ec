// Turn's part for graphs: which twin is launched in the executable's place.
#include "ipc/gate_sizes.h"
#include "shim/admission/gate.h"
#include "shim/gate/opener.h"
#include "shim/gate/unit.h"
#include "shim/sm/graph_gates.h"

namespace heddle::shim {

// An executable graph runs where it was instantiated, so a twin is launched to run elsewhere or at
// another priority. A launch that chose gates inside keeps the graph's own priority. A long graph
// that may be held later has its twin with gates made ahead of need.
void Turn::choose_twin(const Launch& launch) {
  if (quiet_ || stands_inside_) return;
  const auto exec = static_cast<CUgraphExec>(launch.handle);
  const GateBook& gates = *in_.session().gates;
  if ((!sm_set_.empty() || priority_ != 0) && has_lanes(*stream_)) {
    twin_ = twin_of(exec, stream_->device, {sm_set_, priority_});
  } else if (gates.on_gpu && !gates.left.load(std::memory_order_relaxed) &&
             (wanted(gates, stream_->device) & ipc::kGatesSoon) != 0 && is_long_graph()) {
    want_twin(exec, stream_->device, gates_inside());
  }
}

// The twin's record promised gates inside, and the executable that goes instead has none: nothing
// can stop it, so everything posted is let go.
void Turn::twin_refused(CUgraphExec exec) {
  if (twin_.gates > 0) let_posted_go(*in_.session().gates);
  stay();  // the executable's duration says nothing about the twin
  shim::twin_refused(in_, exec, twin());
  twin_ = {};
}

// A long graph is launched as a twin with gates inside while the daemon wants that, or as it is if
// the graph has no place for a gate. False: the helper has not found out yet, and the thread waits.
bool Turn::choose_gates_inside(const Launch& launch) {
  stands_inside_ = (wanted_ & ipc::kGatesInside) != 0 && is_long_graph();
  if (!stands_inside_) return true;
  const auto twin = twin_at_gate(static_cast<CUgraphExec>(launch.handle), *stream_, gates_inside());
  twin_ = twin.value_or(Twin{});
  return stands_inside_ = twin.has_value();
}

// The launch could not be put behind a gate: the twin that was chosen is not launched.
void Turn::drop_twin(const Launch& launch) {
  if (twin() != nullptr) twin_unused(static_cast<CUgraphExec>(launch.handle));
  twin_ = {};
  stands_inside_ = false;
}

bool Turn::is_long_graph() const { return graph_ && predicted_us_ > ipc::kGatesInsideFromUs; }

TwinPlace Turn::gates_inside() const {
  const auto page = static_cast<uint32_t>(in_.session().gates - gate_books) + 1;
  return {.set = sm_set_, .page = page, .span_us = predicted_us_};
}

}  // namespace heddle::shim
