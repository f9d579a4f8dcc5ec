// Calls that are recorded and never held back: several launches in one call, signals, waits of a
// stream, copies.
#include "shim/admission/gate.h"
#include "shim/gate/unit.h"

namespace heddle::shim {

void note_launch(Launch launch) {
  launch.exempt = true;
  Turn(launch).launched(CUDA_SUCCESS);
}

void note_signal(StreamRef stream) {
  if (!is_initialized() || (anything_captures() && stream_captures(stream))) return;
  let_all_posted_go();  // the work before the signal must not stand at a closed gate
  set_signals(stream);
}

// Writing the word into the legacy stream orders no other stream more than the program's own wait
// does: that wait is a command in the legacy stream, too.
void note_stream_wait(StreamRef ref) {
  if (!any_gates()) return;
  StreamSlot* stream = nullptr;
  uint64_t ended = 0;
  if (Inside in; in && !anything_captures()) {
    GateBook& gates = *in.session().gates;
    stream = known_stream(in.thread(), ref);
    if (stream == nullptr || newest_gate(gates, *stream) == 0) return;
    add_beside_units(gates, stream->device);
    ended = end_unit(gates, *stream, in.thread().unit);
  }
  if (ended != 0) put_last_word(*stream, ref, ended);
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
  add_beside_units(*in.session().gates, stream.device);
  if (stream.detoured.load(std::memory_order_relaxed)) turn_.emplace(stream.turn);
}

}  // namespace heddle::shim
