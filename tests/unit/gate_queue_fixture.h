// The launches of one client that have tickets, without a client.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "daemon/core/decision.h"
#include "daemon/server/gates.h"

namespace heddle::server {

inline constexpr uint16_t kFirstDevice = ipc::kThreads;

class GateQueueTest : public ::testing::Test {
 protected:
  bool add(uint32_t ticket, uint8_t device = 0, float us = 100, uint16_t stream = 0) {
    Claim claim;
    claim.fields.stream = stream;
    claim.fields.ask_seq = ticket;
    claim.fields.device = device;
    claim.fields.admission = wire::Admission::GATED;
    return queue_.add(claim, us);
  }
  bool add_graph(uint32_t ticket, uint16_t gates) {
    Claim claim;
    claim.fields.ask_seq = ticket;
    claim.fields.kind = wire::Kind::GRAPH;
    claim.fields.stream_seq = ticket;
    claim.fields.may_follow = gates;
    claim.fields.admission = wire::Admission::GATED;
    return queue_.add(claim, 5000);
  }
  std::optional<Claim> next(bool all_open = false) { return queue_.next(now_, all_open); }
  // The ticket that the core is asked for; 0: none.
  uint32_t asked() {
    const auto claim = next();
    if (!claim) return 0;
    EXPECT_EQ(claim->source, Claim::Source::kAsk);
    EXPECT_EQ(claim->fields.admission, wire::Admission::GATED);
    EXPECT_EQ(claim->seq, claim->fields.ask_seq);
    return claim->seq;
  }
  // How many launches the core is told have gone.
  int told() {
    int launches = 0;
    for (auto claim = next(); claim; claim = next(), ++launches) {
      EXPECT_EQ(claim->source, Claim::Source::kRecord);
      EXPECT_EQ(claim->fields.admission, wire::Admission::GATED);
    }
    return launches;
  }
  uint32_t released(uint8_t device = 0) { return page_->word[device]; }
  void floor(uint32_t upto) {
    ipc::gate_floor(page_->floor[0], page_->word[0], page_->running[0], upto);
    queue_.look();
  }
  bool running() { return page_->running[0] != 0; }
  void release(uint8_t device = 0) {
    const auto thread = static_cast<uint16_t>(kFirstDevice + device);
    if (queue_.release(thread, now_)) queue_.let_go(thread);
  }
  void open() {  // as OPEN does
    release();
    queue_.set_open(0, true);
  }
  void add_waiting(uint32_t ticket, uint16_t thread, uint8_t device = 0) {
    Claim claim;
    claim.thread = thread;
    claim.fields.ask_seq = ticket;
    claim.fields.device = device;
    claim.fields.admission = wire::Admission::ASK;
    EXPECT_TRUE(queue_.add(claim, 100));
  }
  void end(uint32_t ticket) {
    page_->done[0][ticket % ipc::kGateUnits] = ticket;
    queue_.look();
  }

  core::TimeNs now_ = 1;
  std::unique_ptr<ipc::GatePage> page_ = std::make_unique<ipc::GatePage>();
  GateQueue queue_{*page_};
};

}  // namespace heddle::server
