// Stops in virtual time: the driver carries out one call at a time, the core hears of each when it
// is over, and a trace of it gives the same decisions again.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "daemon/sim/virtual.h"
#include "daemon/trace/encoder.h"
#include "daemon/trace/replay.h"
#include "tests/folder.h"

namespace heddle::sim {
namespace {

using core::Decision;
using core::DecisionKind;
using core::Event;
using core::EventKind;

constexpr TimeNs kSecond = 1'000'000'000;

// Keeps what was ordered and told of stops, and the trace of all.
class Kept final : public Witness {
 public:
  void begin(const core::Config& config) {
    bytes = trace::Encoder::header({});
    put(encoder_.device(config, 0, true));
    put(encoder_.policy({}));
  }
  void event(const Event& e) override {
    put(encoder_.event(e));
    if (e.kind == EventKind::kStops) told.push_back(e);
  }
  void decision(const Decision& d) override {
    put(encoder_.decision(d));
    if (d.kind == DecisionKind::kStop) orders.push_back(d);
  }
  std::string end() {
    put(encoder_.end(records_, 0));
    return bytes;
  }

  std::vector<Event> told;
  std::vector<Decision> orders;
  std::string bytes;

 private:
  void put(std::span<const std::byte> record) {
    encoder_.kept();
    bytes.append(reinterpret_cast<const char*>(record.data()), record.size());
    ++records_;
  }
  trace::Encoder encoder_;
  uint64_t records_ = 0;
};

class VirtualStopsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    core::Config core;
    core.mps = mps_;
    core.switch_us = 180;
    GpuConfig gpu;
    gpu.mode = mps_ ? Mode::kMps : Mode::kTimeSlice;
    kept_.begin(core);
    machine_ = std::make_unique<VirtualMachine>(core, gpu);
    machine_->set_witness(&kept_);
    service_ = add("service", 0);
    LoopSpec requests;
    requests.launch = {"request", 1'000, 264};
    requests.gap_us = 9'000;
    machine_->loop(service_, 0, requests);
    machine_->run_until(kSecond / 5);
  }
  size_t add(const std::string& name, int priority) {
    ClientSpec spec;
    spec.name = name;
    spec.priority = priority;
    spec.stops = true;
    return machine_->add_client(spec);
  }
  size_t add_batch(const std::string& name) {
    const size_t client = add(name, 9);
    LoopSpec batch;
    batch.launch = {"batch", 30'000, 264};
    batch.launches = 10;
    machine_->loop(client, machine_->now(), batch);
    return client;
  }
  void pass(TimeNs ns) { machine_->run_until(machine_->now() + ns); }

  bool mps_ = false;
  Kept kept_;
  std::unique_ptr<VirtualMachine> machine_;
  size_t service_ = 0;
};

TEST_F(VirtualStopsTest, WhatRunsStandsAndTheCoreHearsWhenTheCallIsOver) {
  const size_t batch = add_batch("batch");
  pass(kSecond);
  size_t offs = 0, ons = 0;
  for (const Event& e : kept_.told) {
    if (e.stop.took_us <= 0) continue;
    (e.stop.off ? offs : ons) += 1;
    EXPECT_EQ(e.stop.took_us, e.stop.off ? facts::kStopCallNs / 1e3F : facts::kGoOnCallNs / 1e3F);
  }
  EXPECT_GT(offs, 20u);
  EXPECT_GT(ons, 20u);
  EXPECT_GE(machine_->stats(batch).stops, offs);
  EXPECT_GT(machine_->stats(batch).stopped_us, 20 * 1'000);
  EXPECT_GT(machine_->stats(batch).launches, 10u) << "what stood goes on where it was";
}

TEST_F(VirtualStopsTest, TheDriverTakesOneCallAtATime) {
  for (const char* name : {"a", "b", "c"}) add_batch(name);
  pass(kSecond);
  TimeNs before = 0;
  size_t calls = 0;
  for (const Event& e : kept_.told) {
    const auto took_ns = static_cast<TimeNs>(e.stop.took_us * 1e3F);
    if (took_ns == 0) continue;
    EXPECT_GE(e.at - took_ns, before) << "another's call was under way";
    before = e.at;
    ++calls;
  }
  EXPECT_GT(calls, 50u);
}

TEST_F(VirtualStopsTest, OfSeveralOrdersTheNewestIsCarriedOut) {
  class Silent final : public core::Policy {
    std::string_view name() const override { return "says nothing: nobody is stopped"; }
  } silent;
  add_batch("batch");
  size_t orders = 0, calls = 0;
  // One that was not predicted is not stopped again at once.
  for (int i = 0; i < 1'000 && orders != 3; ++i) {
    const size_t before = kept_.orders.size();
    pass(50'000);
    if (kept_.orders.size() == before || !kept_.orders.back().off) continue;
    calls = kept_.told.size();
    EXPECT_TRUE(machine_->set_policy(&silent));  // in the middle of the call
    EXPECT_TRUE(machine_->set_policy(nullptr));
    orders = kept_.orders.size() - before;
  }
  ASSERT_EQ(orders, 3u) << "off, on and off again";
  pass(700'000);
  ASSERT_EQ(kept_.told.size(), calls + 1);
  EXPECT_TRUE(kept_.told.back().stop.off);
}

TEST_F(VirtualStopsTest, WhoIsKilledWhileItStandsHoldsUpNobody) {
  const size_t batch = add_batch("batch");
  size_t stood = 0;
  for (int i = 0; i < 1'000 && stood == 0; ++i) {
    pass(1'000'000);
    stood = machine_->stats(batch).stops;
  }
  ASSERT_GT(stood, 0u);
  machine_->remove_client(batch);
  const size_t next = add_batch("next");
  pass(kSecond);
  EXPECT_GT(machine_->stats(next).launches, 10u);
  EXPECT_GT(machine_->stats(service_).iterations, 100u);
}

TEST_F(VirtualStopsTest, ATraceOfStopsGivesTheSameDecisionsAgain) {
  for (const char* name : {"a", "b"}) add_batch(name);
  pass(kSecond);
  ASSERT_GT(kept_.orders.size(), 50u);
  const TestFolder folder;
  const std::string path = folder.path() + "/stops.trace";
  std::ofstream(path, std::ios::binary) << kept_.end();
  auto reader = trace::Reader::open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto replayed = trace::replay(
      *reader, [](const trace::PolicyRecord&) -> heddle::Result<core::Policy*> { return nullptr; });
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->exact);
  EXPECT_EQ(replayed->differing, 0u) << replayed->first;
}

class UnderMps : public VirtualStopsTest {
 protected:
  UnderMps() { mps_ = true; }
};

TEST_F(UnderMps, NobodySaysThatItCanBeStopped) {
  add_batch("batch");
  pass(kSecond / 2);
  EXPECT_TRUE(kept_.told.empty());
  EXPECT_TRUE(kept_.orders.empty());
}

}  // namespace
}  // namespace heddle::sim
