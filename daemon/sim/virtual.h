// Virtual time: clients, the real scheduler core and the GPU model in one thread, no clock, no
// sleeping. The same calls give the same answer to the nanosecond. What it says about speed is the
// model's answer; what it says about who was let go when is the core's own.
//
// Each client behaves as the shim does: it posts what it may and draws tickets for the rest,
// for which its stream waits on the GPU, or its thread; tells the core when it enters a
// synchronizing call and when that returned, and marks held launches and a sample of the others.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "daemon/core/scheduler.h"
#include "daemon/sim/gates.h"
#include "daemon/sim/gpu_model.h"
#include "ipc/sparse.h"
#include "ipc/stop.h"

namespace heddle::sim {

struct HostCosts {
  TimeNs launch_ns = 2'840;      // measured: `cuLaunchKernel`, back to back
  TimeNs round_trip_ns = 3'000;  // from a ticket that goes at once to its thread
  TimeNs marker_ns = 7'000;      // measured: a stream write is seen this much later
  TimeNs gate_ns = 6'500;        // measured: from the store to the first kernel behind the gate
  bool mark_all = false;         // the core hears of every end: for the clairvoyant policy
};

struct ClientSpec {
  std::string name, label;
  int priority = 5;
  double share = 1;
  double slo_ms = 0;                 // 0: none
  int stream_priority = 0;           // CUDA's, of all its streams
  uint32_t sm_limit = 0;             // GpuModel::add_client()'s
  Place place{};                     // where its kernels run
  core::SlowdownMax slowdown_max{};  // promised by its rule
  core::ChannelMax channel_max{};    // by its rule
  core::Compute compute{};           // likewise
  bool gates = false;  // its launches stand at gates on the GPU, and its threads go on
  bool stops = false;  // time-sliced, what runs of it can be stopped in its middle
};

struct LaunchSpec {
  std::string kernel = "kernel";
  double us = 100;  // of one launch alone, its waves included
  uint32_t blocks = 132;
  uint32_t threads = 1024;
  uint32_t nodes = 0;            // of a graph, which the GPU runs as one kernel of that shape
  uint32_t registers = 0;        // per thread
  uint32_t shared_bytes = 0;     // per block
  float saturation = 1;          // KernelShape's
  ipc::KernelMetrics metrics{};  // what a profile knows of it
};

struct LoopSpec {
  LaunchSpec launch;
  uint32_t launches = 1;  // between two synchronizing calls
  double gap_us = 0;      // the application thinks
  uint64_t count = 0;     // iterations; 0: for ever
};

// What a thread of a program does next: `think_ns` of host time, then this.
struct Step {
  enum class Kind : uint8_t { kLaunch, kSynchronize } kind = Kind::kLaunch;
  TimeNs think_ns = 0;
  uint32_t kernel = 0;  // of add_kernel()
  double us = 0;        // of this launch alone, its waves included
};

// A program of one thread, as bench/virtual makes them from scenarios and traces.
class Program {
 public:
  virtual ~Program() = default;
  // The step before this one is over at `now`: a launch is submitted, a synchronizing call has
  // returned. False: the program ends.
  virtual bool next(TimeNs now, Step& step) = 0;
};

// Sees every event and decision, for recordings.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void event(const core::Event& event) = 0;
  virtual void decision(const core::Decision& decision) = 0;
  // `us` of the client's work, as long as it takes alone, are free to run on the GPU from now on.
  virtual void let_go(TimeNs /*now*/, size_t /*client*/, double /*us*/, ipc::SmSet /*set*/,
                      int /*priority*/) {}
};

// What happened to one launch. `granted_by` matters if it was held.
struct LaunchRecord {
  size_t client = 0;
  std::string kernel;
  TimeNs called = 0, started = 0, ended = 0;  // 0: not yet
  bool asked = false;                         // it was held
  ipc::SmCount sms;                           // that its blocks may use,
  ipc::SmSet set;                             // and the groups that these are, empty: all
  core::Decider granted_by = core::Decider::kBuiltin;
};

struct ClientStats {
  uint64_t launches = 0;    // completed
  uint64_t iterations = 0;  // of loops
  double mean_us = 0;       // of an iteration, thinking left out
  double p99_us = 0;
  double max_us = 0;
  double max_wait_us = 0;  // for a ticket
  double gpu_us = 0;       // GpuModel::gpu_ns()
  uint64_t asks = 0;       // units that the core was asked to let go
  uint64_t stops = 0;      // so often what ran was stopped in its middle
  double stopped_us = 0;   // in all, up to the last time that it went on
};

class VirtualMachine {
 public:
  // `managed` false: bare processes, no scheduler takes part.
  VirtualMachine(const core::Config& core, const GpuConfig& gpu, const HostCosts& costs = {},
                 bool managed = true);

  TimeNs now() const { return now_; }
  core::Scheduler& scheduler() { return scheduler_; }

  void set_witness(Witness* witness) { witness_ = witness; }

  // False if its init faulted; the old one stays. The policy must outlive its use.
  bool set_policy(core::Policy* policy);

  // Clients are numbered from 0. Removing one drops its work, as when the process is killed.
  size_t add_client(const ClientSpec& spec);
  void remove_client(size_t client);
  // A thread of the client launches at `at`, and synchronizes afterwards if told so. Launches made
  // this way are of one thread: each waits for the one before it to be let go.
  void launch(size_t client, TimeNs at, const LaunchSpec& spec, bool synchronize);
  // A thread that launches, synchronizes and thinks, over and over, from `at`.
  void loop(size_t client, TimeNs at, const LoopSpec& spec);

  // A program's kernels; then the program itself, from `at`. It must outlive the machine's use.
  uint32_t add_kernel(size_t client, const LaunchSpec& spec);
  void run(size_t client, TimeNs at, Program& program);

  void run_until(TimeNs until);

  size_t clients() const { return clients_.size(); }
  const std::string& name(size_t client) const { return clients_[client].spec.name; }
  core::Allowance allowed(size_t client) const { return clients_[client].allowed; }
  bool running(size_t client) const;  // a launch of it is on the GPU now
  bool waiting(size_t client) const;  // a launch of it is held
  // What only a simulation knows, for a clairvoyant policy (bench/virtual/oracle.h): true if work
  // of the client was submitted and has not ended; when a thread of it will launch next, as far as
  // nobody holds it up, kNever while it only waits; how long what it waits for will run, alone.
  bool on_gpu(size_t client) const { return clients_[client].in_flight > 0; }
  TimeNs next_launch(size_t client) const;
  double asked_us(size_t client) const;

  ClientStats stats(size_t client) const;
  // Of launch() and loop(); programs keep their own account.
  const std::deque<LaunchRecord>& launches() const { return records_; }

 private:
  enum class Doing : uint8_t { kNothing, kAtTicket, kSynchronizing };
  struct Launch {
    uint32_t kernel = 0;  // index into the client's
    double us = 0;
  };
  struct Call {
    TimeNs at = 0;  // not before
    Launch launch;
    bool synchronize = false;
  };
  struct Thread {
    size_t client = 0;
    uint16_t index = 0;  // in its client; also its stream
    StreamIndex stream = 0;
    std::deque<Call> calls;  // scripted
    LoopSpec loop;
    Launch loop_launch;
    bool looping = false;
    Program* program = nullptr;
    Step step;  // of the program, begun when the thread wakes
    uint64_t iterations = 0;
    uint32_t in_iteration = 0;
    TimeNs iteration_start = 0;
    Doing doing = Doing::kNothing;
    TimeNs held_since = 0;
    uint32_t unit = 0;  // that it has on the GPU, and how many launches of that
    uint32_t in_unit = 0;
    bool naps = false;  // it is far ahead of what goes, with `pending` next
    Launch pending;     // of its ticket,
    int priority = 0;   // and where that runs
    ipc::SmSet set;
    bool synchronize_next = false;
    uint64_t seq = 0;                // last submitted, in the stream
    uint64_t done = 0;               // last completed
    uint64_t marked = 0;             // last that carries a marker
    uint32_t last_slot = 0;          // of in_flight_: the last submitted
    size_t last_record = kNoRecord;  // of the last call
    ipc::Telling telling;            // under a lease, as its shim does it
    uint32_t last_kernel = 0;        // launched under a lease
    uint64_t wakeup = 0;             // only the newest one counts ...
    TimeNs wakes_at = kNever;        // ... and comes then
  };
  struct Kernel {
    LaunchSpec spec;
    uint32_t waves = 1;
    bool announced = false;   // to the core, at its first launch
    double predicted_us = 0;  // 0: no hint yet
    uint64_t launches = 0;    // that the core was told of
    bool quiet = false;
    ipc::GroupCount size;  // that the policy keeps it to, 0: all
    bool raised = false;
    int launch_priority = 0;
  };
  struct ClientState {
    ClientSpec spec;
    core::ClientId id = 0;
    ClientIndex gpu = 0;
    bool live = true;
    core::Allowance allowed = core::Allowance::kGated;
    bool gates_inside = false, kernels_ask = false;
    Gates gates;
    TimeNs gate_asked_at = 0;
    ipc::StopOrder stop, stop_wanted;  // as the driver was asked last, and the core's last order
    int launch_priority = 0;
    ipc::SmRing ring;
    ipc::SmSet cut_set;  // empty: its own
    bool sized = false;
    double outstanding_us = 0;  // predicted, as its own shim adds it up
    uint32_t in_flight = 0;     // launches submitted and not ended
    std::vector<Kernel> kernels;
    std::map<std::string, uint32_t> kernel_index;  // of launch() and loop()
    std::vector<size_t> threads;
    size_t script = 0;  // thread of launch(); 0: none yet
    uint32_t waits = 0;
    std::vector<float> iteration_us;
    double max_wait_us = 0;
    uint64_t launches = 0, asks = 0;
    double gpu_us = 0;  // once it is gone
  };
  static constexpr size_t kNoRecord = SIZE_MAX;
  struct InFlight {     // by the tag given to the GPU
    size_t thread = 0;  // 0: the slot is free
    uint64_t seq = 0;
    size_t record = kNoRecord;
    double predicted_us = 0;
    TimeNs started = 0;
    bool marked = false;
    AtGate at_gate;  // unit 0: it stood at none; `left` behind this piece
  };
  struct Alarm {
    enum class Kind : uint8_t { kWake, kTicket, kMarker, kGates, kDriver };
    TimeNs at = 0;
    uint64_t order = 0;
    size_t thread = 0;    // kGates, kDriver: the client
    uint64_t number = 0;  // kWake: the wakeup's; kMarker: the launch's; kDriver: ns that channels
                          // took
    float duration_us = 0;
    Kind kind = Kind::kWake;
    bool operator>(const Alarm& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void set_alarm(TimeNs when, Alarm alarm);
  void ring(const Alarm& alarm);
  void wake_at(size_t thread, TimeNs when);
  void feed(const core::Event& event);
  void take(std::span<const core::Decision> decisions);
  static void on_hint(ClientState& c, Kernel& k, const core::Decision& d);
  ipc::SmSet set_of(const ClientState& c, const Kernel& k) const;
  void on_notice(const Notice& notice);
  void proceed(size_t thread);
  void proceed_loop(size_t thread);
  void proceed_program(size_t thread);
  void go_on(size_t thread, TimeNs when);  // the thread's call is over then
  void call_launch(size_t thread, const Launch& launch, bool synchronize);
  void wait_at_ticket(size_t thread, const Launch& launch);
  void hear_of_ticket(size_t thread, int priority, ipc::SmSet set);
  void go_from_ticket(size_t thread);
  void submit(size_t thread, const Launch& launch, core::Admission admission, int priority,
              ipc::SmSet set);
  void to_gpu(const InFlight& flight, const Kernel& kernel, double us, int priority,
              ipc::SmSet set);
  bool stands_at_gate(size_t thread, const Kernel& kernel) const;
  void stand_at_gate(size_t thread, const Launch& launch);
  void set_gates(ClientState& client);  // as it is allowed now
  void grant_at_gate(ClientState& client, const core::Decision& decision);
  void tend_gates(size_t client);  // lets go what may, and asks for what may not
  void begin(ClientState& client, AtGate launch);
  void withdraw_at_gate(ClientState& client);
  void stop_inside(ClientState& client, AtGate& launch);
  bool over_at_gate(const InFlight& flight);  // false: the graph has another piece
  core::Event gate_event(core::EventKind kind, const AtGate& launch) const;
  void tell_stops(const ClientState& client, TimeNs took_ns);
  void order_stop(ClientState& client, ipc::StopOrder order);
  void call_driver();
  void driver_returned(size_t client, TimeNs took_ns);
  bool sparse(const ClientState& client) const;
  void tell_row(const Thread& thread, const ClientState& client, uint32_t last_kernel);
  void tell(Thread& thread, ClientState& client, uint32_t kernel, core::LaunchBody& launch);
  void mark(size_t thread);
  void set_marker(size_t thread, uint64_t seq, float duration_us);
  void synchronize(size_t thread);
  void synchronized(size_t thread, float duration_us);
  size_t add_thread(size_t client);
  Launch launch_of(size_t client, const LaunchSpec& spec);
  void announce(ClientState& client, uint32_t kernel);
  KernelShape shape(const LaunchSpec& spec, double us, uint32_t waves) const;
  double predict(const Kernel& kernel) const;
  core::Event launch_event(core::EventKind kind, const Thread& thread, uint32_t kernel) const;
  TimeNs next_alarm() const { return alarms_.empty() ? kNever : alarms_.top().at; }
  TimeNs next_tick() const;

  const core::Config config_;
  const core::SmGroups groups_;
  const HostCosts costs_;
  const bool managed_;
  bool hears_stopping_ = false;
  core::Scheduler scheduler_;
  Witness* witness_ = nullptr;
  GpuModel gpu_;
  TimeNs now_ = 0;
  TimeNs ticked_at_ = -1;
  uint64_t order_ = 0;
  std::vector<ClientState> clients_;
  std::deque<Thread> threads_{1};  // 0 stands for none
  std::vector<InFlight> in_flight_;
  std::vector<uint32_t> in_flight_free_;
  std::deque<LaunchRecord> records_;
  std::deque<size_t> levers_;  // clients that want the driver, whose call is the first one's
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  std::vector<Notice> notices_, handling_;
};

}  // namespace heddle::sim
