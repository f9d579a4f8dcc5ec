// Who may launch, decided on the caller's thread: shim/HOW_A_LAUNCH_GOES.md has the truth table.
//
// A wrapper makes a Turn, which returns when the launch may go, calls the driver, and tells the
// Turn what came of it. Without a session, a free thread slot or a managed stream the Turn does
// nothing, and the launch goes straight to the driver.
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
  bool may_raise = false;  // its launch priority may be chosen
  bool may_move = false;   // to an SM set
  bool cooperative = false;
  bool exempt = false;  // must not be held back, nor measured
};

// Every so many launches of a thread one is timed, so that durations stay calibrated. A prime:
// a program whose iterations have a round number of launches gets each of its kernels timed.
constexpr bool is_timed(uint32_t launches) { return launches % 127 == 0; }
// One in so many as well, drawn by a hash (MurmurHash3's last step): whatever the length of an
// iteration, each of its launches has its turn.
constexpr bool is_drawn(uint32_t launches, uint32_t every) {
  uint32_t x = launches;
  x = (x ^ x >> 16) * 0x85EBCA6B;
  x = (x ^ x >> 13) * 0xC2B2AE35;
  return every != 0 && (x ^ x >> 16) <= UINT32_MAX / every;
}

// A leased client looks at its timed pairs this often: a query costs more than the launch's own
// bookkeeping.
constexpr bool is_polled(uint32_t launches) { return launches % 16 == 0; }

// Kernels whose launches the driver takes at no priority but the application's.
extern constinit KernelSet unraised;

// Of a launch at `at_ns` while somebody less important waits: whether it is worth a marker. It is
// if the host paused behind this kernel last time, and so much is queued that no prediction says
// well enough when the pause's gap begins. `before`: the kernel of the stream's launch before it, +
// 1; 0: that was not told.
bool worth_marking(StreamSlot& stream, uint32_t before, uint32_t kernel, int64_t at_ns,
                   float predicted_us);

// The longest that a launch may be held, whatever a policy says.
int64_t starvation_ns(const ipc::ControlMemory& control);
bool is_stale(const ipc::ControlMemory& control, int64_t now);  // the daemon is gone, or stopped

class Turn {
 public:
  explicit Turn(const Launch& launch);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False: the launch goes as the application made it.
  bool changed() const { return priority_ != 0 || lane() != nullptr; }

  // CU_LAUNCH_ATTRIBUTE_PRIORITY for this launch; 0: as the application has it.
  int priority() const { return priority_; }

  // The stream of an SM set, which launches instead; nullptr: the application's own.
  CUstream lane() const { return detour_ ? detour_->stream() : nullptr; }

  // What a graph's launch launches instead; nullptr: the application's own.
  CUgraphExec twin() const { return twin_.exec; }
  // The driver refused that, and took the application's own `exec`.
  void twin_refused(CUgraphExec exec);

  // The driver refused the launch into the lane: it goes into the application's stream. If that was
  // better, its kernel stays there.
  void stay();
  void stayed();

  // The driver refused the launch with that priority, and took it without.
  void priority_refused();

  // Called once, with what the driver said. Returns it.
  CUresult launched(CUresult result);

 private:
  bool await_daemon(const Launch& launch);
  void give_up();
  wire::Admission decide(const Launch& launch);
  bool may_move(const Launch& launch) const;
  bool can_move(const Launch& launch) const;  // may, and would now
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
  // Where the launch itself goes.
  StreamRef target() const { return lane() != nullptr ? StreamRef{lane(), false} : ref_; }
  void place(const Launch& launch);
  bool is_placed() const;  // on its SM set
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
  uint32_t wanted_ = 0;         // by the daemon: kGatesInside and its like
  bool stands_inside_ = false;  // as a twin with gates, or whole for want of a place for them
  int pair_ = -1;
  StreamSlot* stream_ = nullptr;  // nullptr: not managed
  uint64_t seq_ = 0;
  uint32_t ask_seq_ = 0;  // its ticket
  int priority_ = 0;
  ipc::SmSet sm_set_;
  ipc::Special special_;
  std::optional<Held> turn_;  // at a stream whose launches make detours
  std::optional<Detour> detour_;
  Twin twin_;
  // What follows is set when the launch has its admission.
  KernelRef kernel_;
  float predicted_us_;
  bool leased_;
  uint32_t before_;  // the kernel of the stream's launch before this one, + 1; 0: not told
  int64_t at_ns_;
};

// One of several launches that the driver takes in one call: recorded, never held back. Called
// before the driver.
void note_launch(Launch launch);

// The stream writes what others may wait for (cuStreamWriteValue, semaphores): from now on none of
// its launches is held back, because what waits may keep the GPU from the launch itself.
void note_signal(StreamRef stream);

// The stream is about to wait, maybe for what stands at a gate itself: the unit that ends here is
// told to be over before that, so that the daemon does not take it for stuck.
void note_stream_wait(StreamRef stream);

// The process shares memory with another process or device: its cooperative kernels may be ranks
// that wait for each other.
void note_peer();

// Another process may wait for the events of this one.
void note_shared_event();
bool shares_events();

// The stream has the host do something that anybody may wait for: what is before it must not stand
// at a gate then.
void note_host_function(StreamRef stream);

// Until the daemon has let go what is posted on the device by now, or has had twice the time that a
// launch may be held: others may wait for what the thread does next, and what is before it must go
// then (let_all_posted_go).
void await_release(Inside& in, int device);

// Around the submission of a copy or memset to `stream`: recorded, never held back.
class Activity {
 public:
  Activity(StreamRef stream, wire::Kind kind);

 private:
  std::optional<Held> turn_;
};

}  // namespace heddle::shim
