// What stands in for the executable of a graph's launch.
#include "ipc/gate_sizes.h"
#include "shim/admission/gate.h"
#include "shim/gate/opener.h"
#include "shim/gate/unit.h"
#include "shim/sm/graph_gates.h"

namespace heddle::shim {

// A graph is where its executable was put: another one goes in its place. With gates inside it has
// no other priority; who may be held some day has that one made ahead of need.
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

// Its record promised gates inside, and what goes instead has none.
void Turn::twin_refused(CUgraphExec exec) {
  if (twin_.gates > 0) let_posted_go(*in_.session().gates);
  stay();  // how long it takes tells nothing of where it was to be
  shim::twin_refused(in_, exec, twin());
  twin_ = {};
}

// A long graph beside somebody else is launched as a twin with gates inside, or whole if it has no
// place for any. Until that is known its thread waits.
bool Turn::choose_gates_inside(const Launch& launch) {
  stands_inside_ = (wanted_ & ipc::kGatesInside) != 0 && is_long_graph();
  if (!stands_inside_) return true;
  const auto twin = twin_at_gate(static_cast<CUgraphExec>(launch.handle), *stream_, gates_inside());
  twin_ = twin.value_or(Twin{});
  return stands_inside_ = twin.has_value();
}

// It stands at no gate after all.
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
