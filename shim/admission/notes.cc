// What is recorded, and never held back: several launches in one call, signals, copies.
#include "shim/admission/gate.h"
#include "shim/gate/unit.h"

namespace heddle::shim {

void note_launch(Launch launch) {
  launch.exempt = true;
  Turn(launch).launched(CUDA_SUCCESS);
}

void note_signal(StreamRef stream) {
  if (!is_initialized() || (anything_captures() && stream_captures(stream))) return;
  leave_all_gates();  // what the stream has before it must not stand at a closed one either
  set_signals(stream);
}

Activity::Activity(StreamRef ref, wire::Kind kind) {
  Inside in;
  if (!in || (anything_captures() && stream_captures(ref))) return;
  StreamSlot& stream = stream_slot(in, ref);
  if (stream.device < 0 || stream.device >= static_cast<int>(ipc::kDevices)) return;
  ipc::RecordFields fields;
  fields.at_ns = static_cast<uint64_t>(now_ns());
  fields.stream_seq = stream.posted.fetch_add(1, std::memory_order_seq_cst) + 1;
  fields.stream = stream.index;
  fields.kind = kind;
  fields.device = static_cast<uint8_t>(stream.device);
  in.post(fields);
  add_beside_units(in.session().gates, stream.device);
  if (stream.detoured.load(std::memory_order_relaxed)) turn_.emplace(stream.turn);
}

}  // namespace heddle::shim
