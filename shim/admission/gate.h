// Decides on the caller's thread when and how a launch goes: shim/HOW_A_LAUNCH_GOES.md has the
// truth table.
//
// A wrapper makes a Turn, whose constructor returns when the launch may go. The wrapper then calls
// the driver, and hands the result to the Turn. Without a session, a free thread slot or a managed
// stream the Turn does nothing, and the launch goes straight to the driver.
#pragma once

#include <optional>

#include "ipc/kernel_id.h"
#include "shim/admission/kernels.h"
#include "shim/admission/post.h"
#include "shim/evidence/completion.h"
#include "shim/sm/contexts.h"
#include "shim/sm/twins.h"

namespace heddle::shim {

struct Launch {
  StreamRef stream;
  void* handle = nullptr;  // CUfunction, CUkernel or CUgraphExec
  ipc::LaunchShape shape;
  bool graph = false;
  bool may_raise = false;  // the shim may choose its launch priority
  bool may_move = false;   // the shim may move it to an SM set
  bool cooperative = false;
  bool exempt = false;  // must not be held back, nor measured
};

// One launch in 127 of a thread is timed, so that durations stay calibrated. 127 is prime: a
// program with a round number of launches in each iteration gets each of its kernels timed.
constexpr bool is_timed(uint32_t launches) { return launches % 127 == 0; }
// One launch in `every` on average, drawn by a hash (MurmurHash3's finalizer). So each launch of an
// iteration is drawn at some time, whatever the iteration's length.
constexpr bool is_drawn(uint32_t launches, uint32_t every) {
  uint32_t x = launches;
  x = (x ^ x >> 16) * 0x85EBCA6B;
  x = (x ^ x >> 13) * 0xC2B2AE35;
  return every != 0 && (x ^ x >> 16) <= UINT32_MAX / every;
}

// A leased thread polls its timed pairs at one launch in 16: a query costs more than the launch's
// own bookkeeping.
constexpr bool is_polled(uint32_t launches) { return launches % 16 == 0; }

// Kernels whose launches the driver refused at another priority than the application's.
extern constinit KernelSet unraised;

// Whether a launch at `at_ns` is worth a marker, while a less important client waits. It is if the
// host paused after this kernel last time, and so much work is queued that a prediction alone would
// not say well enough when the gap begins. `before`: the kernel of the stream's previous launch,
// + 1; 0: that launch had no record.
bool worth_marking(StreamSlot& stream, uint32_t before, uint32_t kernel, int64_t at_ns,
                   float predicted_us);

// The longest time for which a launch may be held, whatever a policy decides.
int64_t starvation_ns(const ipc::ControlMemory& control);
bool is_stale(const ipc::ControlMemory& control, int64_t now);  // the daemon is gone, or stopped

class Turn {
 public:
  explicit Turn(const Launch& launch);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Whether the launch gets another priority or goes to a lane. Graphs: see twin().
  bool changed() const { return priority_ != 0 || lane() != nullptr; }

  // CU_LAUNCH_ATTRIBUTE_PRIORITY for this launch; 0: as the application has it.
  int priority() const { return priority_; }

  // The stream of an SM set to launch into; nullptr: the application's own stream.
  CUstream lane() const { return detour_ ? detour_->stream() : nullptr; }

  // The executable to launch instead of a graph's own; nullptr: the application's own.
  CUgraphExec twin() const { return twin_.exec; }
  // The driver refused the twin, and took the application's own `exec`.
  void twin_refused(CUgraphExec exec);

  // stay(): the driver refused the launch into the lane, and the caller launches into the
  // application's stream. stayed(): the driver took that, so the kernel never moves again.
  void stay();
  void stayed();

  // The driver refused the launch with that priority, and took it without.
  void priority_refused();

  // Called once, with the driver's result. Returns it.
  CUresult launched(CUresult result);

 private:
  bool await_daemon(const Launch& launch);
  void give_up();
  wire::Admission decide(const Launch& launch);
  bool may_move(const Launch& launch) const;
  bool can_move(const Launch& launch) const;  // may_move(), and the stream has lanes now
  bool may_stand_at_gate(const Launch& launch);
  bool stand_at_gate(const Launch& launch);
  bool must_wait(const GateBook& gates);
  bool await_room(GateBook& gates);
  void post_gated(ipc::RecordFields fields);
  bool choose_gates_inside(const Launch& launch);
  void drop_twin(const Launch& launch);
  bool is_long_graph() const;
  TwinPlace gates_inside() const;
  void post(wire::Admission admission, const Launch& launch);
  wire::Admission exempt();
  void admit(const Launch& launch);
  void wait_at_ticket(const Launch& launch);
  void go_from_ticket(const Launch& launch);
  uint32_t slot_key() const;
  wire::Admission await_ticket();
  void take_priority();
  ipc::RecordFields record(wire::Admission admission);
  void take_number();
  bool wants_measure(uint32_t count) const;
  // The stream that the driver launches into.
  StreamRef target() const { return lane() != nullptr ? StreamRef{lane(), false} : ref_; }
  void place(const Launch& launch);
  bool is_placed() const;  // the launch runs on exactly its SM set
  void choose_twin(const Launch& launch);
  void come_back(CUresult result);
  bool wants_marker();
  ipc::SmSet sized_set(const Launch& launch) const;

  Inside in_;
  const StreamRef ref_;
  const bool graph_;
  bool quiet_ = false;
  bool gated_ = false, begins_unit_ = false;
  bool goes_freely_ = false;    // without a lease: the gates stand open
  uint32_t wanted_ = 0;         // GatePage::wanted: kGatesInside and so on
  bool stands_inside_ = false;  // a long graph at a gate: its twin has gates, if it has a place
  int pair_ = -1;
  StreamSlot* stream_ = nullptr;  // nullptr: not managed
  uint64_t seq_ = 0;
  uint32_t ask_seq_ = 0;  // its ticket
  int priority_ = 0;
  ipc::SmSet sm_set_;
  ipc::Special special_;
  std::optional<Held> turn_;  // held if the stream's launches make detours
  std::optional<Detour> detour_;
  Twin twin_;
  // Not initialized before the launch has its admission:
  KernelRef kernel_;
  float predicted_us_;
  bool leased_;
  uint32_t before_;  // the kernel of the stream's previous launch, + 1; 0: it had no record
  int64_t at_ns_;
};

// Records one of several launches that the driver takes in one call. They are never held back.
// Called before the driver.
void note_launch(Launch launch);

// The stream writes a value that others may wait for (cuStreamWriteValue, semaphores). From now on
// none of its launches is held back: the waiting work may keep the GPU busy until the value comes.
void note_signal(StreamRef stream);

// The stream is about to wait, maybe for work that stands at a gate itself. The unit before the
// wait ends here, and the GPU reports its end before the wait. Otherwise the daemon would take the
// unit for stuck.
void note_stream_wait(StreamRef stream);

// The process shares memory with another process or device: its cooperative kernels may be ranks
// that wait for each other. From now on they are exempt.
void note_peer();

// The process shares an event over IPC: another process may wait for its events.
void note_shared_event();
bool shares_events();

// The stream is about to get a host function or callback, for which any thread may wait. The work
// before it must not stand at a gate, so it is let go.
void note_host_function(StreamRef stream);

// Waits until the daemon has let go what is posted on the device by now, for twice the starvation
// bound at most. For a thread whose next call others may wait for: before letting the rest go
// itself (let_all_posted_go), it gives the daemon the time to do so in its own order.
void await_release(Inside& in, int device);

// Around the submission of a copy or memset to `stream`: recorded, never held back.
class Activity {
 public:
  Activity(StreamRef stream, wire::Kind kind);

 private:
  std::optional<Held> turn_;
};

}  // namespace heddle::shim
