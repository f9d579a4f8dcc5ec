// A client that lies with its gates: its own page, its own tickets. Nobody else's gates notice, and
// the daemon goes on.
#include <cstring>
#include <iostream>
#include <memory>
#include <random>

#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

class LyingGates : public ServerTest {
 protected:
  static constexpr uint32_t kLies = 2'000;

  void SetUp() override {
    ServerTest::SetUp();
    const char* const wanted = std::getenv("HEDDLE_SEED");
    const auto seed = wanted != nullptr ? static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10))
                                        : std::random_device()();
    std::cout << "HEDDLE_SEED=" << seed << std::endl;
    random_.seed(seed);
    config_.gates = true;
    start("valve");
    honest_ = std::make_unique<FakeClient>(config_.socket, FakeClient::Options{.gates = true});
    liar_ = std::make_unique<FakeClient>(config_.socket, FakeClient::Options{.gates = true});
    ASSERT_TRUE(post(*honest_, 1));
    ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  }
  // What the liar tells is looked at, and neither opens nor closes the honest client's gates.
  void TearDown() override {
    EXPECT_TRUE(eventually([&] { return status()["devices"].at(0)["waiting"] >= 1; }));
    EXPECT_EQ(honest_->gates().word[0], 0u) << "opened by another's lies";
    valve_.open = true;
    EXPECT_TRUE(eventually([&] { return lets(*honest_, 1); }));
    ASSERT_TRUE(post(*honest_, 2));
    EXPECT_TRUE(eventually([&] { return lets(*honest_, 2); }));
    EXPECT_EQ(honest_->gates().floor[0], 0u);
    liar_.reset();
    EXPECT_TRUE(eventually([&] { return ps().size() == 1; }));
    ServerTest::TearDown();
  }

  static bool lets(FakeClient& client, uint32_t ticket) {
    return ipc::gate_lets(client.gates().word[0], ticket);
  }
  static bool post(FakeClient& client, uint32_t ticket, uint16_t stream = 0, uint16_t thread = 0) {
    ipc::RecordFields fields;
    fields.ask_seq = ticket;
    fields.stream = stream;
    fields.admission = wire::Admission::GATED;
    const bool there = client.post(thread, fields);
    client.ring();
    return there;
  }
  // While the daemon reads.
  void lie(uint32_t ticket, uint16_t stream = 0, uint16_t thread = 0) {
    ASSERT_TRUE(eventually([&] { return post(*liar_, ticket, stream, thread) || let_go(); }));
  }
  bool let_go() { return status()["counters"]["let_go"] != 0; }

  std::mt19937 random_;
  std::unique_ptr<FakeClient> honest_, liar_;
};

TEST_F(LyingGates, NonsenseInAPageIsItsOwnClients) {
  auto* const page = reinterpret_cast<unsigned char*>(&liar_->gates());
  for (uint32_t i = 1; i < kLies; ++i) {
    for (size_t at = 0; at < sizeof(ipc::GatePage); at += 1 + random_() % 64) {
      page[at] = static_cast<unsigned char>(random_());
    }
    if (i % 20 == 0) lie(i / 20);
  }
  // It is to be held again, whatever it said.
  std::memset(static_cast<void*>(page), 0, sizeof(ipc::GatePage));
  lie(kLies);
}

TEST_F(LyingGates, TicketsComeInAnyOrder) {
  for (uint32_t i = 0; i < kLies; ++i) lie(static_cast<uint32_t>(random_()) | 1);
}

TEST_F(LyingGates, ATicketComesAgainInOtherStreamsAndThreads) {
  for (uint32_t i = 0; i < kLies; ++i) {
    lie(1 + i / 100, static_cast<uint16_t>(i % 7), static_cast<uint16_t>(i % 3));
  }
}

TEST_F(LyingGates, ATicketIsNeverPosted) {
  for (uint32_t i = 0; i < kLies; ++i) {
    const uint32_t ticket = 2 * i + 2;
    liar_->gates().done[0][(ticket + 1) % ipc::kGateUnits] = ticket + 1;
    lie(ticket);
  }
}

TEST_F(LyingGates, AMillionTicketsAreTooMany) {
  uint32_t told = 0;
  for (uint32_t i = 1; i <= 1'000'000 && (i % 10'000 != 0 || !let_go()); ++i) {
    told += post(*liar_, i) ? 1 : 0;
  }
  EXPECT_GT(told, 0u);
  EXPECT_TRUE(eventually([&] { return status()["counters"]["claims"] > 1'000; }));
}

// Rings that are full again each time they were read: more than heddled reads while the scheduler
// gives this thread no time.
class Flood {
 public:
  static constexpr uint16_t kRings = ipc::kThreads;

  explicit Flood(FakeClient& client, bool descending) : client_(client) {
    client.memory().counters.threads_used = kRings;
    for (uint16_t thread = 0; thread < kRings; ++thread) {
      for (uint32_t i = 0; i < ipc::kRingRecords; ++i) {
        ipc::RecordFields fields;
        fields.ask_seq = descending ? ipc::kRingRecords - i : i + 1;
        fields.stream = thread;
        fields.admission = wire::Admission::GATED;
        client.post(thread, fields);
      }
    }
    thread_ = std::thread([this] {
      for (uint32_t turn = 0; !over_; ++turn) {
        for (uint16_t i = 0; i < kRings; ++i) {
          client_.memory().threads[i].ring_head =
              client_.control().grants[i].ring_tail + ipc::kRingRecords;
        }
        if (turn % 1'000 == 0) client_.ring();  // a call into the kernel
      }
    });
  }
  ~Flood() {
    over_ = true;
    thread_.join();
  }

 private:
  FakeClient& client_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class Floods : public ServerTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::vector<std::unique_ptr<FakeClient>> others_;
};

TEST_P(Floods, KeepNobodyFromAnAnswer) {
  config_.gates = true;
  start();
  FakeClient flooding(config_.socket, FakeClient::Options{.gates = true});
  const Flood flood(flooding, GetParam());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(status()["clients"], 1 + i);
    FakeClient other(config_.socket, FakeClient::Options{.gates = true});
    EXPECT_EQ(other.attached().managed, 1u);
    other.ask(0, 1);
    EXPECT_TRUE(other.wait_granted(0, 1));
    others_.push_back(std::make_unique<FakeClient>(config_.socket, FakeClient::Options{}));
    other.kill_process();
    EXPECT_TRUE(eventually([&] { return status()["clients"] == 2 + i; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Tickets, Floods, ::testing::Bool(), [](const auto& flood) {
  return flood.param ? "Descending" : "Ascending";
});

// Nobody waits longer than 2 s for work that is not seen to go on.
TEST_F(ServerTest, LaunchesThatAreNeverOverHoldNobodyUpForLong) {
  config_.gates = true;
  start();
  FakeClient liar(config_.socket, FakeClient::Options{.gates = true});
  FakeClient job(config_.socket, FakeClient::Options{.priority = 9, .gates = true});
  std::atomic<bool> over{false};
  std::thread posting([&] {
    for (uint32_t ticket = 1; !over; ++ticket) {
      ipc::RecordFields fields;
      fields.ask_seq = ticket;
      fields.admission = wire::Admission::GATED;
      liar.post(0, fields);
      liar.ring();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  uint32_t granted = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    job.ask(0, ++granted);
    if (!job.wait_granted(0, granted)) break;
    job.complete_all(0);
  }
  over = true;
  posting.join();
  EXPECT_GT(granted, 200u) << "in 5 s, of which it waits for 2";
}

}  // namespace
}  // namespace heddle::testing
