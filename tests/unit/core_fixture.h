// Drives one Scheduler with events and remembers what it decided; shared by the core's tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/core/scheduler.h"

namespace heddle::core {

inline constexpr TimeNs kUs = 1'000;
inline constexpr TimeNs kMs = 1'000'000;

// Drives one Scheduler and remembers the last window and grant of every client.
class CoreTest : public ::testing::Test {
 protected:
  CoreTest() { reset({}); }

  void reset(Config config) { core_ = std::make_unique<Scheduler>(config); }

  void take(std::span<const Decision> decisions) {
    for (const Decision& d : decisions) {
      if (d.kind == DecisionKind::kAllowance) {
        allowance_[d.client] = d;
        ++allowances_told_[d.client];
      }
      if (d.kind == DecisionKind::kGrant) grants_.push_back(d);
      if (d.kind == DecisionKind::kStop) stop_[d.client] = d;
      if (d.kind == DecisionKind::kPark) park_[d.client] = d.off;
      if (d.kind == DecisionKind::kHint) hint_[d.kernel] = d.predicted_us;
      if (d.kind == DecisionKind::kHint) measure_[d.kernel] = d.measure;
    }
  }

  void step(const Event& e) { take(core_->step(e)); }

  // nullptr: the built-in policy.
  void use(Policy* policy) {
    bool ok = false;
    take(core_->set_policy(policy, now_, ok));
    EXPECT_TRUE(ok);
  }

  void attach(ClientId id, int priority, bool gates = false) {
    Event e(EventKind::kAttached, now_, id);
    e.attached = {};
    e.attached.task = id;
    e.attached.priority = static_cast<uint8_t>(priority);
    e.attached.share = 1;
    e.attached.gates = gates;
    step(e);
  }

  void kernel(ClientId id, uint32_t index, uint64_t kernel_id) {
    Event e(EventKind::kKernel, now_, id);
    e.kernel = {};
    e.kernel.index = index;
    e.kernel.id = kernel_id;
    e.kernel.grid_blocks = 132;
    e.kernel.block_threads = 128;
    step(e);
  }

  Event launch(EventKind kind, ClientId id, Admission admission, uint16_t thread = 0) {
    Event e(kind, now_, id);
    e.launch = {};
    e.launch.kernel = 0;
    e.launch.stream_seq = ++stream_seq_[id];
    e.launch.thread = thread;
    e.launch.admission = admission;
    if (kind == EventKind::kAsked) e.launch.ask_seq = ++ask_seq_[id];
    return e;
  }

  void post(ClientId id) { step(launch(EventKind::kPosted, id, Admission::kLease)); }
  void ask(ClientId id, uint16_t thread = 0) {
    step(launch(EventKind::kAsked, id, Admission::kAsk, thread));
  }

  void wait(ClientId id) {
    Event e(EventKind::kWaiting, now_, id);
    e.done = {};
    step(e);
  }

  void done(ClientId id, float duration_us = 0, Evidence evidence = Evidence::kSynchronized) {
    Event e(EventKind::kCompleted, now_, id);
    e.done = {stream_seq_[id], duration_us, 0, evidence};
    step(e);
  }

  void tick(TimeNs ns) {
    now_ += ns;
    step(Event(EventKind::kTick, now_, 0));
  }

  // Client 1 (Q0) and client 2 (Q9).
  void attach_both() {
    attach(1, 0);
    attach(2, 9);
  }

  // Client 1 has work on the device, and client 2 waits for a grant.
  void contend() {
    attach_both();
    post(1);
    ask(2);
  }

  Allowance allowed(ClientId id) { return allowance_[id].allowed; }

  // Teaches client `id` that its kernel takes `run_us` and is followed by `gap_us`.
  void teach(ClientId id, double run_us, double gap_us, int rounds = 40) {
    for (int i = 0; i < rounds; ++i) {
      post(id);
      now_ += static_cast<TimeNs>(run_us * 1e3);
      done(id, static_cast<float>(run_us));
      now_ += static_cast<TimeNs>(gap_us * 1e3);
    }
  }

  std::unique_ptr<Scheduler> core_;
  TimeNs now_ = kMs;
  std::map<ClientId, Decision> allowance_;
  std::map<ClientId, uint32_t> allowances_told_;  // how many
  std::map<ClientId, Decision> stop_;
  std::map<ClientId, bool> park_;  // whether it is to leave
  std::vector<Decision> grants_;
  std::map<uint32_t, float> hint_;
  std::map<uint32_t, uint8_t> measure_;
  std::map<ClientId, uint64_t> stream_seq_;
  std::map<ClientId, uint32_t> ask_seq_;  // their newest tickets
};

}  // namespace heddle::core
