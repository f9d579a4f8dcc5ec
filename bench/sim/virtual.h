// Virtual time: clients, the real scheduler core and the GPU model in one thread, no clock, no
// sleeping. The same calls give the same answer to the nanosecond. What it says about speed is the
// model's answer; what it says about who was let go when is the core's own.
//
// Each client behaves as the shim does: it posts what its window admits, asks for the rest and
// waits, tells the core when it enters a synchronizing call and when that returned, marks gated
// launches and a sample of the others, and leaves by itself after the starvation bound.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "bench/sim/gpu_model.h"
#include "daemon/core/scheduler.h"

namespace heddle::sim {

struct HostCosts {
  TimeNs launch_ns = 2'840;      // FACTS, Costs: `cuLaunchKernel`, back to back
  TimeNs round_trip_ns = 3'000;  // DESIGN's target for an ask that is granted at once
  TimeNs marker_ns = 7'000;      // FACTS, Costs: a stream write is seen this much later
};

struct ClientSpec {
  std::string name, label;
  int priority = 5;
  double share = 1;
};

struct LaunchSpec {
  std::string kernel = "kernel";
  double us = 100;  // of one launch alone, its waves included
  uint32_t blocks = 132;
  uint32_t threads = 1024;
};

struct LoopSpec {
  LaunchSpec launch;
  uint32_t launches = 1;  // between two synchronizing calls
  double gap_us = 0;      // the application thinks
  uint64_t count = 0;     // iterations; 0: for ever
};

// What happened to one launch. `granted_by` matters if it asked.
struct LaunchRecord {
  size_t client = 0;
  std::string kernel;
  TimeNs called = 0, started = 0, ended = 0;  // 0: not yet
  bool asked = false;
  bool self = false;  // the starvation bound let it go
  core::Decider granted_by = core::Decider::kBuiltin;
};

struct ClientStats {
  uint64_t launches = 0;    // completed
  uint64_t iterations = 0;  // of loops
  double mean_us = 0;       // of an iteration, thinking left out
  double p99_us = 0;
  double max_us = 0;
  double max_wait_us = 0;  // of an ask
  double gpu_us = 0;       // sum of run times
};

class VirtualMachine {
 public:
  VirtualMachine(const core::Config& core, const GpuConfig& gpu, const HostCosts& costs = {});

  TimeNs now() const { return now_; }
  core::Scheduler& scheduler() { return scheduler_; }

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

  void run_until(TimeNs until);

  size_t clients() const { return clients_.size(); }
  const std::string& name(size_t client) const { return clients_[client].spec.name; }
  uint32_t window_us(size_t client) const { return clients_[client].window_us; }
  bool running(size_t client) const;  // a launch of it is on the GPU now
  bool waiting(size_t client) const;  // a thread of it waits for a grant
  ClientStats stats(size_t client) const;
  const std::deque<LaunchRecord>& launches() const { return records_; }

 private:
  enum class Doing : uint8_t { kNothing, kAsking, kSynchronizing };
  struct Call {
    TimeNs at = 0;  // not before
    LaunchSpec launch;
    bool synchronize = false;
  };
  struct Thread {
    size_t client = 0;
    uint16_t index = 0;  // in its client; also its stream
    StreamIndex stream = 0;
    std::deque<Call> calls;  // scripted
    LoopSpec loop;
    bool looping = false;
    uint64_t iterations = 0;
    uint32_t in_iteration = 0;
    bool thinking = false;
    TimeNs iteration_start = 0;
    Doing doing = Doing::kNothing;
    uint32_t ask_seq = 0;
    TimeNs asked_at = 0;
    LaunchSpec pending;  // what it asked for
    bool synchronize_next = false;
    uint64_t seq = 0;          // last submitted, in the stream
    uint64_t done = 0;         // last completed
    uint64_t last_record = 0;  // of the last submitted
    uint64_t wakeup = 0;       // only the newest one counts ...
    TimeNs wakes_at = kNever;  // ... and comes then
  };
  struct KernelState {
    uint32_t index = 0;
    double predicted_us = 0;  // 0: no hint yet
    uint64_t launches = 0;
  };
  struct ClientState {
    ClientSpec spec;
    core::ClientId id = 0;
    ClientIndex gpu = 0;
    bool live = true;
    uint32_t window_us = core::kWindowGated;
    uint32_t epoch = 0;
    int launch_priority = 0;
    double outstanding_us = 0;  // predicted, as its own shim adds it up
    double credit_us = 0;
    std::map<std::string, KernelState> kernels;
    std::vector<size_t> threads;
    size_t script = 0;  // thread of launch(); 0: none yet
    std::vector<float> iteration_us;
    double max_wait_us = 0;
  };
  struct InFlight {  // by the tag given to the GPU
    size_t thread;
    uint64_t seq;
    size_t record;
    double predicted_us;
    bool marked;
  };
  struct Alarm {
    TimeNs at;
    uint64_t order;
    std::function<void()> ring;
    bool operator>(const Alarm& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void at(TimeNs when, std::function<void()> ring);
  void wake_at(size_t thread, TimeNs when);
  void feed(const core::Event& event);
  void take(std::span<const core::Decision> decisions);
  void on_grant(const core::Decision& decision);
  void on_notice(const Notice& notice);
  void proceed(size_t thread);
  void proceed_loop(size_t thread);
  void call_launch(size_t thread, const LaunchSpec& spec, bool synchronize);
  void ask(size_t thread, const LaunchSpec& spec, uint32_t kernel);
  void self(size_t thread, uint32_t ask_seq);
  void submit(size_t thread, const LaunchSpec& spec, core::Admission admission, int priority);
  void synchronize(size_t thread);
  void synchronized(size_t thread, float duration_us);
  size_t add_thread(size_t client);
  KernelState& kernel(ClientState& client, const LaunchSpec& spec);
  KernelShape shape(const LaunchSpec& spec) const;
  double predict(const KernelState& kernel) const;
  core::Event launch_event(core::EventKind kind, const Thread& thread, uint32_t kernel) const;
  TimeNs next_alarm() const { return alarms_.empty() ? kNever : alarms_.top().at; }

  const core::Config config_;
  const HostCosts costs_;
  core::Scheduler scheduler_;
  GpuModel gpu_;
  TimeNs now_ = 0;
  TimeNs ticked_at_ = -1;
  uint64_t order_ = 0;
  std::vector<ClientState> clients_;
  std::deque<Thread> threads_{1};  // 0 stands for none
  std::map<uint64_t, InFlight> in_flight_;
  uint64_t tags_ = 0;
  std::deque<LaunchRecord> records_;
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  std::vector<Notice> notices_;
};

}  // namespace heddle::sim
