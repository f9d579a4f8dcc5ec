// What a decision costs inside the daemon: one hook call, and the whole way of an ask from its slot
// through core and policy to its grant. One thread, virtual time.
#include <chrono>
#include <memory>
#include <stdexcept>

#include "bench/micro.h"
#include "daemon/core/scheduler.h"
#include "daemon/policy/lua_policy.h"
#include "ipc/record.h"
#include "ipc/ring.h"
#include "ipc/slot.h"

namespace heddle::bench {
namespace {

using core::Event;
using core::EventKind;

constexpr core::ClientId kImportant = 1, kBatch = 2;
constexpr core::TimeNs kMicrosecond = 1'000;
constexpr uint16_t kThreads = 8;

double now_ns() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<policy::LuaPolicy> shipped(const std::string& name) {
  auto loaded = policy::load_policy_file(dist() + "/share/heddle/policies/" + name + ".lua");
  if (!loaded) throw std::runtime_error(loaded.error().message);
  return std::move(*loaded);
}

// Hands every hook on, and times those calls of dispatch that are asked for.
class TimedDispatch final : public core::Policy {
 public:
  explicit TimedDispatch(core::Policy& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  core::HookResult init(core::Gpu& gpu) override { return inner_.init(gpu); }
  core::AllowanceVerdict client_init(core::Gpu& gpu, core::ClientId c) override {
    return inner_.client_init(gpu, c);
  }
  core::AllowanceVerdict client_active(core::Gpu& gpu, core::ClientId c) override {
    return inner_.client_active(gpu, c);
  }
  core::AllowanceVerdict client_idle(core::Gpu& gpu, core::ClientId c) override {
    return inner_.client_idle(gpu, c);
  }
  core::EnqueueVerdict enqueue(core::Gpu& gpu, core::LaunchId launch) override {
    return inner_.enqueue(gpu, launch);
  }
  core::DispatchVerdict dispatch(core::Gpu& gpu) override {
    const double start = now_ns();
    const core::DispatchVerdict verdict = inner_.dispatch(gpu);
    last_ns = now_ns() - start;
    return verdict;
  }
  core::HookResult stopping(core::Gpu& gpu, const core::LaunchView& launch) override {
    return inner_.stopping(gpu, launch);
  }
  bool hears_stopping() const override { return inner_.hears_stopping(); }

  double last_ns = 0;

 private:
  core::Policy& inner_;
};

// A core with one important and one best-effort client, driven by events in virtual time.
class Bench {
 public:
  explicit Bench(core::Policy& policy, uint32_t dispatch_max) : scheduler_(config(dispatch_max)) {
    bool ok = false;
    scheduler_.set_policy(&policy, now_, ok);
    if (!ok) throw std::runtime_error(std::string(policy.name()) + ": init failed");
    attach(kImportant, 0);
    attach(kBatch, core::kPriorityLowest);
  }

  void pass(core::TimeNs time) { now_ += time; }

  std::span<const core::Decision> important_launches() {
    return launch(EventKind::kPosted, kImportant, 0, ++important_seq_, 0);
  }
  std::span<const core::Decision> important_completes(float us) {
    return complete(kImportant, 0, important_seq_, us);
  }
  std::span<const core::Decision> ask(uint16_t thread, uint32_t ask_seq) {
    return launch(EventKind::kAsked, kBatch, thread, ask_seq, ask_seq);
  }
  std::span<const core::Decision> complete(core::ClientId client, uint16_t stream, uint64_t seq,
                                           float us) {
    Event event(EventKind::kCompleted, now_, client);
    event.done = {seq, us, stream, core::Evidence::kSynchronized};
    return scheduler_.step(event);
  }

 private:
  static core::Config config(uint32_t dispatch_max) {
    core::Config config;
    config.mps = true;
    config.switch_us = 10;
    config.dispatch_max = dispatch_max;
    return config;
  }

  void attach(core::ClientId id, int priority) {
    Event event(EventKind::kAttached, now_, id);
    event.attached = {};
    event.attached.task = id;
    event.attached.share = 1;
    event.attached.priority = static_cast<uint8_t>(priority);
    scheduler_.step(event);
    Event kernel(EventKind::kKernel, now_, id);
    kernel.kernel = {};
    kernel.kernel.id = id;
    kernel.kernel.grid_blocks = 132;
    kernel.kernel.block_threads = 256;
    scheduler_.step(kernel);
  }

  std::span<const core::Decision> launch(EventKind kind, core::ClientId client, uint16_t thread,
                                         uint64_t seq, uint32_t ask_seq) {
    Event event(kind, now_, client);
    event.launch = {};
    event.launch.stream_seq = seq;
    event.launch.ask_seq = ask_seq;
    event.launch.stream = thread;
    event.launch.thread = thread;
    event.launch.admission = ask_seq != 0 ? core::Admission::kAsk : core::Admission::kLease;
    return scheduler_.step(event);
  }

  core::TimeNs now_ = 1'000'000'000;
  core::Scheduler scheduler_;
  uint64_t important_seq_ = 0;
};

double clock_ns() {
  std::vector<double> pairs;
  for (int i = 0; i < 1000; ++i) {
    const double start = now_ns();
    pairs.push_back(now_ns() - start);
  }
  return percentile(pairs, 0.5);
}

}  // namespace

std::vector<double> measure_hook_ns(const MicroOptions& options) {
  constexpr uint32_t kWarm = 200;  // rounds in which the core learns kernels and gaps
  const auto gapfill = shipped("gapfill");
  TimedDispatch timed(*gapfill);
  Bench bench(timed, 1);  // one dispatch an event: the timed call finds all eight queued
  const double overhead = clock_ns();
  std::vector<double> samples;
  std::vector<uint32_t> asked(kThreads, 0);
  std::vector<bool> runs(kThreads, true);
  const auto grants = [&](std::span<const core::Decision> decisions) {
    uint32_t count = 0;
    for (const core::Decision& decision : decisions) {
      if (decision.kind != core::DecisionKind::kGrant) continue;
      runs[decision.thread] = true;
      ++count;
    }
    return count;
  };
  for (uint32_t round = 0; round < scaled(options, 20'000) + kWarm; ++round) {
    // While the important client has work little is granted: what ran completes and asks again.
    grants(bench.important_launches());
    for (uint16_t t = 0; t < kThreads; ++t) {
      if (!runs[t]) continue;
      runs[t] = false;
      if (asked[t] != 0) grants(bench.complete(kBatch, t, asked[t], 200));
      grants(bench.ask(t, ++asked[t]));
    }
    bench.pass(1'000 * kMicrosecond);
    if (grants(bench.important_completes(1'000)) > 0 && round >= kWarm) {
      samples.push_back(timed.last_ns - overhead);
    }
    bench.pass(5'000 * kMicrosecond);
  }
  if (samples.empty()) throw std::runtime_error("hook_ns: gapfill.lua granted nothing");
  return samples;
}

std::vector<double> measure_decisions_per_s(const MicroOptions& options) {
  constexpr uint32_t kAsksPerRound = 4'000;
  const auto priority = shipped("priority");
  Bench bench(*priority, 32);
  const auto memory = std::make_unique<ipc::ClientMemory>();
  const auto control = std::make_unique<ipc::ControlMemory>();
  std::vector<uint32_t> asked(kThreads, 0), seen(kThreads, 0), tails(kThreads, 0);
  uint32_t granted = 0, by_others = 0;
  std::vector<double> rates;

  const auto answer = [&](std::span<const core::Decision> decisions) {
    for (const core::Decision& decision : decisions) {
      if (decision.kind != core::DecisionKind::kGrant) continue;
      if (decision.decider != core::Decider::kPolicy) ++by_others;
      ipc::slot_answer(control->grants[decision.thread], decision.ask_seq,
                       {decision.sm_set, decision.launch_priority});
      ++granted;
    }
  };
  const auto client_side = [&](uint16_t t) {
    if (asked[t] != 0) {
      if (!ipc::slot_granted(control->grants[t], asked[t])) return;
      answer(bench.complete(kBatch, t, asked[t], 0));
    }
    ipc::ThreadBlock& block = memory->threads[t];
    ++asked[t];
    ipc::ring_push(block.ring_head, control->grants[t].ring_tail, tails[t], block.ring,
                   [&](std::byte* slot) {
                     ipc::build_record(slot, {.stream_seq = asked[t],
                                              .kernel = 0,
                                              .stream = t,
                                              .ask_seq = asked[t],
                                              .admission = wire::Admission::ASK});
                   });
  };
  const auto daemon_side = [&](uint16_t t) {
    ipc::ThreadBlock& block = memory->threads[t];
    ipc::ring_drain(block.ring_head, control->grants[t].ring_tail, seen[t], block.ring,
                    [&](const std::byte* copy) {
                      ipc::RecordFields fields;
                      if (ipc::read_record(copy, fields)) answer(bench.ask(t, fields.ask_seq));
                    });
  };
  for (uint32_t round = 0; round < scaled(options, 200); ++round) {
    const uint32_t before = granted;
    const double start = now_ns();
    uint32_t turn = 0;
    while (granted - before < kAsksPerRound) {
      if (turn++ % 100 == 0) {  // the important client stays active: all others must ask
        answer(bench.important_launches());
        answer(bench.important_completes(10));
      }
      for (uint16_t t = 0; t < kThreads; ++t) client_side(t);
      for (uint16_t t = 0; t < kThreads; ++t) daemon_side(t);
      bench.pass(10 * kMicrosecond);
      if (now_ns() - start > 5e9) throw std::runtime_error("decisions_per_s: asks go unanswered");
    }
    rates.push_back((granted - before) / ((now_ns() - start) / 1e9));
  }
  if (by_others > granted / 100) {
    throw std::runtime_error("decisions_per_s: priority.lua did not decide");
  }
  return rates;
}

}  // namespace heddle::bench
