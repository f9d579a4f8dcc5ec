// Client 1 has gaps, and client 2 work for them, under a policy that lets it go: what the tests of
// SM sets and of the bound share.
#pragma once

#include "tests/unit/core_fixture.h"

namespace heddle::core {

constexpr double kDefaultUs = 100;  // what a kernel is predicted to take that was never measured

// Runs whatever waits while nobody above has work, as its verdict says.
struct Giving : Policy {
  std::string_view name() const override { return "giving"; }
  AllowanceVerdict client_init(Gpu& g, ClientId c) override {
    if (c == 1) g.set_launch_priority(c, launch_priority);
    return {};
  }
  EnqueueVerdict enqueue(Gpu& g, LaunchId k) override {
    g.launch(k, asked);
    g.queue_insert(g.queue_create("q"), k, 0);
    return {HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu& g) override {
    gpu = g.gpu();
    fit = {};
    g.launch(g.queue_best_fit(g.queue_create("q"), kUnlimitedUs), fit);
    DispatchVerdict v = verdict;
    v.result = HookResult::kDecided;
    if (open && !g.busy(kPriorityLowest)) v.run = g.queue_peek(g.queue_create("q"));
    return v;
  }

  DispatchVerdict verdict;
  int launch_priority = kBuiltinPriority;  // of client 1
  bool open = true;
  LaunchView asked, fit;
  GpuView gpu;
};

class GapTest : public CoreTest {
 protected:
  // Client 1 (Q0) has gaps of 1 500 µs, and one has just begun; client 2 (Q9) has work for it.
  void begin(Config config = {}, uint32_t sm_set = 0, bool splits = true) {
    reset(config);
    policy_.open = true;
    use(&policy_);
    attach(1, 0);
    Event e(EventKind::kAttached, now_, 2);
    e.attached = {};
    e.attached.task = 2;
    e.attached.priority = 9;
    e.attached.sm_set = SmSet(sm_set);
    if (splits) {  // an H200
      e.attached.groups = {GroupCount(16), {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 12}};
    }
    step(e);
    kernel(1, 0, 11);
    kernel(2, 0, 22);
    teach(1, 500, 1500);
    post(1);
    now_ += 500 * kUs;
    done(1, 500);
    gap_start_ = now_;
    grants_.clear();
  }
  void begin_mps() {
    Config config;
    config.mps = true;
    config.switch_us = 10;
    begin(config);
  }
  // The gap ends, and client 2 looks for the end of what it launched, since it must wait.
  void end_gap_and_look() {
    post(1);
    policy_.open = false;
    ask(2);
  }
  uint32_t granted_set(uint32_t sm) {
    policy_.verdict.sm = SmCount(sm);
    ask(2);
    return grants_.back().sm_set.bits();
  }
  // The marker behind what client 2 was granted, but the last so many, is seen, while a thread of
  // it waits, or none.
  void seen(float duration_us = 0, uint64_t but = 0) {
    Event e(EventKind::kCompleted, now_, 2);
    e.done = {stream_seq_[2] - core_->waiting() - but, duration_us, 0, Evidence::kMarker};
    step(e);
  }
  ClientStatus important() const { return core_->view().clients().front(); }

  Giving policy_;
  TimeNs gap_start_ = 0;
};

}  // namespace heddle::core
