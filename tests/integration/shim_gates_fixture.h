// A program whose launches stand at gates under the built shim: what they do is noted by the fake
// driver.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <string>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {

using ipc::RecordFields;
using wire::Admission;
using wire::Kind;

class ShimGates : public Shim {
 protected:
  ShimGates() : app_(gated()) {
    start(app_, kGate);
    // At first sight of a kernel its thread waits: nothing is known of it.
    for (const char* command : {"launch", "second"}) expect_asks(command);
    predict(20);
    EXPECT_EQ(app_("set fake_noting 1"), "1");
    daemon_.records();
  }
  std::vector<std::string> gated() {
    daemon_.has_gates = true;
    return environment();
  }

  void expect_asks(const std::string& command) { Shim::expect_asks(app_, command); }
  RecordFields launch(const std::string& command) {
    EXPECT_EQ(app_(command), "0") << command;
    const auto seen = records(Kind::KERNEL);
    EXPECT_EQ(seen.size(), 1u) << command;
    return seen.empty() ? RecordFields{} : seen[0];
  }
  // Tickets of device 0, counted from behind those two.
  static constexpr uint32_t kFirst = 2;
  void expect_gated(const std::string& command, uint32_t ticket, uint32_t first = kFirst) {
    const RecordFields seen = launch(command);
    EXPECT_EQ(seen.admission, Admission::GATED) << command;
    EXPECT_EQ(seen.ask_seq, first + ticket) << command;
    EXPECT_EQ(app_("get fake_ticket"), std::to_string(first + ticket));
  }
  void let_go(uint32_t ticket) { daemon_.gates->word[0] = kFirst + ticket; }
  bool stands_at(uint32_t ticket) const { return daemon_.gates->word[0] == kFirst + ticket; }
  // What was posted before the call goes.
  void expect_floor(const std::string& call) {
    expect_gated("launch", 1);
    app_(call);
    EXPECT_EQ(floor(), kFirst + 1);
    EXPECT_TRUE(stands_at(1));
    daemon_.records();
  }
  // And what is posted behind it is held.
  void expect_held_again() {
    expect_gated("launch", 2);
    EXPECT_TRUE(stands_at(1));
  }
  static std::string word_of(int device, uint32_t ticket) {
    const size_t first = offsetof(ipc::GatePage, done) / sizeof(uint32_t);
    return std::to_string(first + ipc::kGateUnits * static_cast<size_t>(device) +
                          (kFirst + ticket) % ipc::kGateUnits);
  }
  uint32_t floor() const { return daemon_.gates->floor[0]; }
  bool open() const { return ipc::gate_is_open(daemon_.gates->word[0], 1'000); }
  static bool soon(const std::function<bool()>& what) {
    for (int i = 0; i < 5'000 && !what(); ++i) poll(nullptr, 0, 1);
    return what();
  }

  Application app_;
};

}  // namespace heddle::shim_test
