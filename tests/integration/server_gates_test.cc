// The daemon's side of the gate page.
#include <fcntl.h>
#include <sys/stat.h>

#include <memory>

#include "ipc/slot.h"
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

TEST_F(ServerTest, AClientGetsAGatePageThatNobodyCanResize) {
  start();
  FakeClient client(config_.socket, {.gates = true});
  ASSERT_GE(client.gates_descriptor(), 0);
  struct stat file;
  ASSERT_EQ(fstat(client.gates_descriptor(), &file), 0);
  EXPECT_EQ(static_cast<size_t>(file.st_size), sizeof(ipc::GatePage));
  EXPECT_EQ(fcntl(client.gates_descriptor(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(ServerTest, AGatePageHasAHeartbeat) {
  start();
  FakeClient client(config_.socket, {.gates = true});
  const int64_t first = client.gates().heartbeat_ns;
  EXPECT_GT(first, 0);
  EXPECT_TRUE(eventually([&] { return client.gates().heartbeat_ns != first; }));
}

TEST_F(ServerTest, AClientIsToldWhetherItsStreamsMayWait) {
  start();
  for (const bool can : {false, true}) {
    FakeClient client(config_.socket, {.gates = can});
    EXPECT_EQ(client.attached().flags, can ? ipc::kStreamsWait : 0);
  }
}

TEST_F(ServerTest, NoStreamMayWaitWhereTheConfigurationSaysNo) {
  config_.gates = false;
  start();
  FakeClient client(config_.socket, {.gates = true});
  EXPECT_EQ(client.attached().flags, 0u);
}

// A client all of whose launches the valve holds, and its gates.
class Gates : public ServerTest {
 protected:
  void begin() {
    start("valve");
    client_ = std::make_unique<FakeClient>(config_.socket, FakeClient::Options{.gates = true});
  }
  void post(uint32_t ticket, uint16_t thread = 0) {
    ipc::RecordFields fields;
    fields.ask_seq = ticket;
    fields.admission = wire::Admission::GATED;
    ASSERT_TRUE(client_->post(thread, fields));
    client_->ring();
  }
  uint32_t released() { return client_->gates().word[0]; }
  bool open(uint32_t posted) { return ipc::gate_is_open(released(), posted); }
  void set_bypass(bool on) {
    Request r;
    r.kind = Request::Kind::kBypass;
    r.bypass = on;
    EXPECT_TRUE(request(config_.socket, r).ok);
  }

  std::unique_ptr<FakeClient> client_;
};

TEST_F(Gates, AHeldLaunchStandsUntilThePolicyLetsItGo) {
  begin();
  for (const uint32_t ticket : {1, 2, 3}) post(ticket);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  EXPECT_EQ(status()["devices"].at(0)["waiting"], 1) << "the core knows the oldest";
  EXPECT_EQ(released(), 0u);
  valve_.open = true;
  EXPECT_TRUE(eventually([&] { return released() == 3; }));
  EXPECT_EQ(stats()["granted"], 3);
}

TEST_F(Gates, AStarvedLaunchIsLetGoAlone) {
  config_.core.starvation_us = 50'000;
  begin();
  post(1);
  post(2);
  EXPECT_TRUE(eventually([&] { return released() == 1; }));
  EXPECT_TRUE(eventually([&] { return released() == 2; }));
}

TEST_F(Gates, ATicketThatIsReadLateClosesNothing) {
  begin();
  valve_.open = true;
  post(2, 1);
  ASSERT_TRUE(eventually([&] { return released() == 2; }));
  post(1, 0);
  ASSERT_TRUE(eventually([&] { return stats()["posted"] == 1; })) << "it runs already";
  EXPECT_EQ(released(), 2u);
}

// The core has to look again at once, which it says as the deadline 0.
TEST_F(Gates, TheHeartbeatGoesOnWhenAWaitingClientTurnsOutToBeAlone) {
  config_.core.starvation_us = 60e6;
  begin();
  const int64_t begun = client_->gates().heartbeat_ns;  // the loop turns each second in any case
  ASSERT_TRUE(eventually([&] { return client_->gates().heartbeat_ns - begun > 300'000'000; }));
  FakeClient(config_.socket, FakeClient::Options{});  // from its end on it is counted
  post(1);
  ASSERT_EQ(client_->gates().wanted[0], ipc::kGatesSoon | ipc::kGatesInside);
  ASSERT_TRUE(eventually([&] { return client_->gates().wanted[0] == 0; }));
  const int64_t last = client_->gates().heartbeat_ns;
  ASSERT_TRUE(eventually([&] { return client_->gates().heartbeat_ns != last; }));
  EXPECT_LT(client_->gates().heartbeat_ns - last, ipc::kHeartbeatStaleNs);
}

TEST_F(Gates, BypassOpensThemAndItsEndClosesThemBehindWhatWent) {
  begin();
  post(1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  set_bypass(true);
  EXPECT_TRUE(eventually([&] { return open(1); }));
  ASSERT_TRUE(eventually([&] { return status()["devices"].at(0)["waiting"] == 0; }));
  set_bypass(false);
  EXPECT_TRUE(eventually([&] { return released() == 1; }));
}

TEST_F(Gates, PsSaysWhereLaunchesWait) {
  begin();
  EXPECT_EQ(ps().at(0)["held"], "device");
  FakeClient without(config_.socket, FakeClient::Options{});
  EXPECT_TRUE(eventually([&] { return ps().size() == 2; }));
  EXPECT_NE(ps().at(1)["threads_wait_because"], "");
}

TEST_F(Gates, TimeSlicedThreadsOfARuleWithComputeWait) {
  server::Rule rule;
  rule.terms.compute.limit = 0.5F;
  config_.rules = {rule};
  config_.gpu_mode = server::GpuMode::kTimeslice;
  begin();
  EXPECT_EQ(ps().at(0)["held"], "thread");
  EXPECT_EQ(ps().at(0)["threads_wait_because"], "its rule has compute, time-sliced");
}

TEST_F(Gates, PsSaysThatThePolicyChoosesPerLaunch) {
  valve_.chooses = true;
  begin();
  EXPECT_TRUE(eventually([&] { return ps().at(0)["held"] == "thread"; }));
  EXPECT_EQ(client_->gates().wanted[0] & ipc::kKernelsAsk, ipc::kKernelsAsk);
}

TEST_F(Gates, AClientThatKeepsToSomeSmsIsHeldOnTheDevice) {
  begin();
  FakeClient on_set(config_.socket, {.sms = "25%", .gates = true});
  ASSERT_TRUE(eventually([&] { return ps().size() == 2; }));
  EXPECT_EQ(ps().at(1)["held"], "device");
}

// A thread waits among gates: the tickets are one order, and it hears when its own goes.
TEST_F(Gates, AThreadsTicketGoesInItsTurn) {
  begin();
  post(1);
  ipc::RecordFields fields;
  fields.ask_seq = 2;
  fields.admission = wire::Admission::ASK;
  ASSERT_TRUE(client_->post(3, fields));
  post(3);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  EXPECT_FALSE(ipc::slot_granted(client_->control().grants[3], ipc::slot_key(2, 0)));
  valve_.open = true;
  EXPECT_TRUE(eventually(
      [&] { return ipc::slot_granted(client_->control().grants[3], ipc::slot_key(2, 0)); }));
  EXPECT_TRUE(eventually([&] { return released() == 3; }));
}

// It may all be read at once: that it went, and that it is done.
TEST_F(Gates, WorkOfAThreadWhoseTicketWentIsDoneWhenItSaysSo) {
  config_.core.default_kernel_us = 60e6;
  begin();
  ipc::GatePage& page = client_->gates();
  for (uint32_t ticket = 1; ticket <= 50; ++ticket) {
    ipc::gate_floor(page.floor[0], page.word[0], page.running[0], ticket);
    ipc::RecordFields fields;
    fields.ask_seq = ticket;
    fields.admission = wire::Admission::ASK;
    ASSERT_TRUE(client_->post(0, fields));
    client_->complete_all(0);
    client_->ring();
    ASSERT_TRUE(eventually([&] { return stats()["posted"] == ticket; }));
    EXPECT_TRUE(eventually([&] { return !ps().at(0)["devices"].at(0)["active"].get<bool>(); }));
  }
}

TEST_F(Gates, AThreadsTicketThatTheFloorLetGoIsAnswered) {
  begin();
  ipc::RecordFields fields;
  fields.ask_seq = 1;
  fields.admission = wire::Admission::ASK;
  ASSERT_TRUE(client_->post(0, fields));
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  ipc::GatePage& page = client_->gates();
  ipc::gate_floor(page.floor[0], page.word[0], page.running[0], 1);
  EXPECT_TRUE(eventually(
      [&] { return ipc::slot_granted(client_->control().grants[0], ipc::slot_key(1, 0)); }));
  EXPECT_EQ(client_->control().grants[0].launch_priority, ipc::kNoVerdict);
  EXPECT_EQ(stats()["granted"], 0) << "it went by itself";
  EXPECT_EQ(stats()["posted"], 1);
}

TEST_F(Gates, UnderAnOpenFloorLaunchesAreHeldNoMoreAndBehindItTheyAre) {
  begin();
  post(1);
  post(2);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  std::atomic<uint32_t> posted{2};
  ipc::GatePage& page = client_->gates();
  ipc::gate_open_floor(page.floor[0], page.word[0], page.running[0], posted);
  post(3);
  EXPECT_TRUE(eventually([&] { return stats()["posted"] == 3; }));
  EXPECT_EQ(status()["devices"].at(0)["waiting"], 0);
  posted = 3;
  ipc::gate_close_floor(page.floor[0], page.word[0], page.running[0], posted);
  EXPECT_TRUE(eventually([&] { return released() == 3; }));
  post(4);
  EXPECT_TRUE(eventually([&] { return stats()["asked"] == 2; }));
  EXPECT_EQ(released(), 3u);
  EXPECT_EQ(ps().at(0)["held"], "device");
}

TEST_F(Gates, WhatAFloorLetsGoIsToldAndTheRestIsHeld) {
  begin();
  post(1);
  post(2);
  post(3);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  ipc::GatePage& page = client_->gates();
  ipc::gate_floor(page.floor[0], page.word[0], page.running[0], 2);
  EXPECT_TRUE(eventually([&] { return stats()["posted"] == 2; }));
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(status()["devices"].at(0)["waiting"], 1);
}

TEST_F(Gates, AClientThatIsLetGoHasThemOpen) {
  begin();
  post(1);
  client_->memory().threads[0].ring_head += 10 * ipc::kRingRecords;
  client_->ring();
  EXPECT_TRUE(eventually([&] { return open(1); }));
}

TEST_F(Gates, ALaunchWithoutATicketIsMalformed) {
  begin();
  post(0);
  EXPECT_TRUE(eventually([&] { return ps().at(0)["counters"]["malformed"] == 1; }));
}

TEST_F(Gates, ALaunchThatCannotBeTakenStandsBehindNoClosedGate) {
  begin();
  post(1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  ipc::RecordFields fields;
  fields.kind = wire::Kind::COPY;
  fields.ask_seq = 2;
  fields.admission = wire::Admission::GATED;
  ASSERT_TRUE(client_->post(0, fields));
  client_->ring();
  EXPECT_TRUE(eventually([&] { return open(2); }));
}

}  // namespace
}  // namespace heddle::testing
