// What stands in for the executable of a graph's launch.
#include "ipc/gate_sizes.h"
#include "shim/admission/gate.h"
#include "shim/gate/opener.h"
#include "shim/sm/graph_gates.h"

namespace heddle::shim {

// A graph is where its executable was put: another one goes in its place. With gates inside it has
// no other place and priority.
void Turn::choose_twin(const Launch& launch) {
  const bool elsewhere = (!sm_set_.empty() || priority_ != 0) && has_lanes(*stream_);
  if (quiet_ || (!elsewhere && !has_gates_inside())) return;
  const TwinPlace at = has_gates_inside() ? gates_inside() : TwinPlace{sm_set_, priority_};
  twin_ = twin_of(static_cast<CUgraphExec>(launch.handle), stream_->device, at);
}

// Its record promised gates inside, and what goes instead has none.
void Turn::twin_refused(CUgraphExec exec) {
  if (twin_.gates > 0) leave_gates(in_.session().gates);
  shim::twin_refused(in_, exec, twin());
  twin_ = {};
}

// A long graph is launched as a twin with gates inside, or whole if it has no place for any. Until
// that is known it asks.
bool Turn::graph_may_stand(const Launch& launch) const {
  return predicted_us_ <= ipc::kGatesInsideFromUs ||
         has_gates(static_cast<CUgraphExec>(launch.handle), *stream_, gates_inside());
}

bool Turn::has_gates_inside() const {
  return gated_ && graph_ && predicted_us_ > ipc::kGatesInsideFromUs;
}

TwinPlace Turn::gates_inside() const {
  const auto page = static_cast<uint32_t>(in_.session().gates - gate_books) + 1;
  return {.page = page, .span_us = predicted_us_};
}

}  // namespace heddle::shim
