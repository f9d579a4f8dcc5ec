// The real server on a thread, with fake clients in processes of their own. No GPU, shim or Lua.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "daemon/trace/replay.h"
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

TEST_F(ServerTest, GrantsAnAsk) {
  valve_.open = true;
  start("valve");
  FakeClient client(config_.socket, {.priority = 9});
  ASSERT_EQ(client.attached().managed, 1u);
  EXPECT_EQ(client.attached().priority, 9u);
  client.register_kernel(0, 42, "axpy");
  for (uint32_t seq = 1; seq <= 100; ++seq) {
    client.ask(0, seq, 0);
    ASSERT_TRUE(client.wait_granted(0, seq)) << seq;
    client.complete_all(0);
  }
  EXPECT_EQ(stats()["granted"], 100);
  EXPECT_EQ(ps().at(0)["devices"].at(0)["kernels"], 1);
}

TEST_F(ServerTest, AClientIsKeptOnTheSmsThatItAskedFor) {
  start();
  FakeClient high(config_.socket, {.priority = 0, .sms = "25%-100%"});
  FakeClient low(config_.socket, {.priority = 9, .sms = "25%"});
  FakeClient old(config_.socket, {.priority = 9, .sms = "25%", .splits = false});
  EXPECT_EQ(low.control().devices[3].sm_set, 0xfu) << "from the start, on every device";
  high.post(0, {});
  ASSERT_TRUE(eventually([&] {
    high.post(0, {});
    return high.leased() && low.gated();
  }));
  EXPECT_EQ(high.control().devices[0].sm_set, 0xfff0u) << "where nothing is gated too";
  EXPECT_EQ(low.control().devices[0].sm_set, 0xfu);
  EXPECT_EQ(old.control().devices[0].sm_set, 0u);
  high.complete_all(0);
  low.ask(0, 1);
  ASSERT_TRUE(low.wait_granted(0, 1));
  EXPECT_EQ(low.control().grants[0].sm_set, 0xfu);
  for (const auto& client : ps()) {
    const bool splits = client["id"] != old.attached().client_id;
    EXPECT_EQ(client["sm_count"], !splits ? 0 : client["priority"] == 0 ? 100 : 32);
  }
}

TEST_F(ServerTest, TheModeIsMpsWhileAllClientsAre) {
  start();
  EXPECT_EQ(status()["mode"], "timeslice");
  FakeClient first(config_.socket, {.priority = 0, .mps = true});
  EXPECT_EQ(status()["mode"], "mps");
  EXPECT_EQ(status()["devices"].at(0)["switch_us"], 10);
  {
    FakeClient beside(config_.socket, {.priority = 9});
    EXPECT_EQ(status()["mode"], "timeslice");
    EXPECT_EQ(status()["devices"].at(0)["switch_us"], 70);
    beside.kill_process();
  }
  EXPECT_TRUE(eventually([&] { return status()["mode"] == "mps"; }));
}

TEST_F(ServerTest, LeasesTheMoreImportantAndGatesTheOther) {
  start();
  FakeClient high(config_.socket, {.priority = 0});
  FakeClient low(config_.socket, {.priority = 9});
  high.post(0, {});
  EXPECT_TRUE(eventually([&] {
    high.post(0, {});
    return high.leased() && low.gated();
  }));
}

TEST_F(ServerTest, SeesPostsOfALoneClientWithoutItsDoorbell) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  for (uint64_t i = 0; i < 5'000; ++i) {
    ASSERT_TRUE(eventually([&] { return client.post(0, {}); })) << "the ring stays full";
  }
  EXPECT_TRUE(eventually([&] { return stats()["posted"] == 5'000; }));
}

// Who launches freely pays for each look that the daemon takes at its ring.
TEST_F(ServerTest, DoesNotPollThoseWhoLaunchFreely) {
  start();
  FakeClient one(config_.socket, {.priority = 0}), two(config_.socket, {.priority = 0});
  const auto launch = [&] {
    one.post(0, {});
    two.post(0, {});
    return one.control().sleeping == ipc::kWakeOnAsk && two.control().sleeping == ipc::kWakeOnAsk;
  };
  ASSERT_TRUE(eventually(launch));
  int asleep = 0;
  for (int i = 0; i < 1'000; ++i) {
    asleep += launch();
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  EXPECT_GT(asleep, 500);
  FakeClient waiting(config_.socket, {.priority = 9});
  ASSERT_TRUE(eventually([&] {
    launch();
    return waiting.gated();
  }));
  waiting.ask(0, 1);
  waiting.ring();
  ASSERT_TRUE(eventually([&] {
    launch();
    return stats()["asked"] == 1;
  }));
  EXPECT_NE(one.control().sleeping, ipc::kWakeOnAsk) << "their completions are waited for";
}

// Its gates stand open, and not for good: somebody more important may come, who wakes the daemon.
TEST_F(ServerTest, DoesNotPollALoneClientAtOpenGates) {
  start();
  FakeClient low(config_.socket, {.priority = 9, .gates = true});
  FakeClient high(config_.socket, {.priority = 0});
  uint64_t posted = 0;
  const auto launch = [&] {
    posted += low.post(0, {});
    EXPECT_TRUE(!low.leased() && !low.gated());
    return low.control().sleeping == ipc::kWakeOnAsk;
  };
  ASSERT_TRUE(eventually(launch));
  int asleep = 0;
  for (int i = 0; i < 1'000; ++i) {
    asleep += launch();
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  EXPECT_GT(asleep, 500);
  EXPECT_TRUE(eventually([&] { return high.control().sleeping == ipc::kWakeOnAny; }))
      << "whatever it does closes them";
  posted += low.post(0, {});
  EXPECT_TRUE(eventually([&] {
    posted += high.post(0, {});
    high.ring();
    return low.gated();
  }));
  EXPECT_TRUE(eventually([&] { return stats()["posted"] == posted; })) << "what went before, too";
}

TEST_F(ServerTest, HearsOfEverythingWhileSomebodyWaitsHoweverLong) {
  start("valve");
  FakeClient launching(config_.socket, {.priority = 0});
  FakeClient waiting(config_.socket, {.priority = 9});
  waiting.ask(0, 1);
  waiting.ring();
  expect_heard(launching);
  EXPECT_FALSE(waiting.granted(0, 1));
}

TEST_F(ServerTest, ServesByPriorityUnderAPolicy) {
  start("valve");
  FakeClient low(config_.socket, {.priority = 9});
  FakeClient middle(config_.socket, {.priority = 5});
  FakeClient high(config_.socket, {.priority = 1});
  low.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  middle.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 2; }));
  EXPECT_TRUE(eventually([&] { return middle.control().header.contended.load() != 0; }));
  EXPECT_EQ(low.control().header.contended.load(), 0u);
  high.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 3; }));
  EXPECT_FALSE(high.granted(0, 1));
  valve_.open = true;
  EXPECT_TRUE(high.wait_granted(0, 1));
  EXPECT_TRUE(middle.wait_granted(0, 1));
  EXPECT_TRUE(low.wait_granted(0, 1));
  EXPECT_EQ(valve_.order[0], 1);
  EXPECT_EQ(valve_.order[1], 5);
  EXPECT_EQ(valve_.order[2], 9);
}

TEST_F(ServerTest, ForgetsAClientThatIsKilledWhileItAsks) {
  start("valve");
  FakeClient other(config_.socket, {.priority = 5});
  {
    FakeClient client(config_.socket, {.priority = 5});
    client.ask(0, 1);
    ASSERT_TRUE(eventually([&] { return status()["devices"].at(0)["waiting"] == 1; }));
    client.kill_process();
    EXPECT_TRUE(eventually([&] { return status()["clients"] == 1; }));
  }
  EXPECT_EQ(status()["devices"].at(0)["waiting"], 0);
  valve_.open = true;
  other.ask(0, 1);
  EXPECT_TRUE(other.wait_granted(0, 1));
}

TEST_F(ServerTest, KeepsAClientWhoseSocketClosesWhileItsProcessLives) {
  start();
  FakeClient client(config_.socket, {.priority = 5});
  client.close_socket();
  ASSERT_TRUE(eventually([&] { return ps().at(0)["connected"] == false; }));
  client.ask(0, 1);
  EXPECT_TRUE(client.wait_granted(0, 1));
  const uint64_t id = client.attached().client_id;
  client.reconnect();
  EXPECT_NE(client.attached().client_id, id);
  EXPECT_EQ(ps().size(), 1u);
  client.ask(0, 1);
  EXPECT_TRUE(client.wait_granted(0, 1));
}

TEST_F(ServerTest, RefusesAnotherProtocolVersion) {
  start();
  FakeClient client(config_.socket, {.version = ipc::kProtocolVersion + 1});
  EXPECT_EQ(client.attached().managed, 0u);
  EXPECT_NE(std::strstr(client.attached().reason, "same release"), nullptr);
  EXPECT_EQ(status()["clients"], 0);
}

TEST_F(ServerTest, RefusesWhoseDriverNamesNoKernels) {
  start();
  FakeClient old(config_.socket, {.driver_version = 12'020});
  EXPECT_EQ(old.attached().managed, 0u);
  EXPECT_NE(std::strstr(old.attached().reason, "CUDA 12.3"), nullptr);
  EXPECT_EQ(FakeClient(config_.socket, {.driver_version = 12'030}).attached().managed, 1u);
}

TEST_F(ServerTest, GivesWhatTheFirstMatchingRuleSaysAndShowsIt) {
  server::Rule rule;
  rule.name = "training";
  rule.uid = getuid();
  rule.label = "train*";
  rule.priority = 2;
  rule.terms.share = 2.5;
  rule.terms.slo_ms = 20;
  rule.terms.fail_closed = true;
  config_.rules = {rule};
  start();
  FakeClient trained(config_.socket, {.priority = 0, .label = "training"});
  FakeClient other(config_.socket, {.priority = 5});
  EXPECT_EQ(trained.attached().priority, 2u);
  EXPECT_EQ(trained.attached().flags, ipc::kFailClosed);
  EXPECT_STREQ(trained.attached().rule, "training");
  EXPECT_EQ(other.attached().flags, 0u);
  const json shown = ps().at(0);
  EXPECT_EQ(shown["rule"], "training");
  EXPECT_EQ(shown["share"], 2.5);
  EXPECT_EQ(shown["slo_ms"], 20);
  EXPECT_EQ(shown["fail"], "closed");
  EXPECT_EQ(shown["unseen"], "");
  EXPECT_NE(shown["cgroup"], "");
  EXPECT_EQ(ps().at(1)["fail"], "open");
}

TEST_F(ServerTest, LetsGoOfAClientWhoseRingHeadIsImpossible) {
  start();
  FakeClient hostile(config_.socket, {.priority = 0});
  FakeClient honest(config_.socket, {.priority = 5});
  hostile.memory().threads[0].ring_head.store(5'000'000);
  hostile.ring();
  EXPECT_TRUE(eventually([&] { return hostile.control().header.bypass.load() == 1; }));
  EXPECT_EQ(status()["counters"]["let_go"], 1);
  honest.ask(0, 1);
  EXPECT_TRUE(honest.wait_granted(0, 1));
  hostile.reconnect();
  EXPECT_EQ(hostile.attached().managed, 0u);
}

TEST_F(ServerTest, MakesASchedulerOnlyForDevicesThatAClientHas) {
  start();
  FakeClient client(config_.socket, {.devices = 2});
  ipc::RecordFields fields;
  for (int device = 0; device < 16; ++device) {
    fields.device = static_cast<uint8_t>(device);
    client.post(0, fields);
  }
  EXPECT_TRUE(eventually([&] { return ps().at(0)["counters"]["malformed"] == 14; }));
  EXPECT_EQ(status()["devices"].size(), 2u);
}

TEST_F(ServerTest, RefusesARepeaterWithOneLine) {
  start();
  ::testing::internal::CaptureStderr();
  FakeClient client(config_.socket, {.version = ipc::kProtocolVersion + 1});
  for (int i = 0; i < 3; ++i) client.reconnect();
  EXPECT_EQ(status()["clients"], 0);
  const std::string log = end_log();
  const size_t first = log.find("client_refused");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("client_refused", first + 1), std::string::npos) << log;
}

TEST_F(ServerTest, AConnectionAsksOnce) {
  start();
  const int fd = ipc::connect_socket(config_.socket.c_str(), 1'000);
  for (int i = 0; i < 3; ++i) (void)ipc::send_packet(fd, server::encode_request({}));
  int answers = 0;
  std::vector<std::byte> buffer(ipc::kReplyBytes);
  EXPECT_TRUE(eventually([&] {
    const ssize_t length = ipc::receive_packet(fd, buffer);
    if (length > 0) ++answers;
    return length == 0;  // it hung up
  }));
  close(fd);
  EXPECT_EQ(answers, 1);
}

TEST_F(ServerTest, AllowsForTheClockOfATimeNamespaceAndShowsIt) {
  start();
  FakeClient client(config_.socket, {.clock_ahead_ns = -3'600'000'000'000});
  EXPECT_NEAR(ps().at(0)["clock_ahead_s"].get<double>(), -3'600, 1);
  EXPECT_NEAR(static_cast<double>(client.control().header.heartbeat_ns.load()) / 1e9,
              static_cast<double>(server::monotonic_now()) / 1e9 - 3'600, 1);
}

TEST_F(ServerTest, SurvivesGarbageFromHostileClients) {
  start();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 engine(seed);
  const auto random = [&engine] { return static_cast<uint32_t>(engine()); };
  FakeClient honest(config_.socket, {.priority = 5});
  for (uint32_t round = 0; round < 20; ++round) {
    FakeClient hostile(config_.socket, {.priority = 0});
    std::vector<std::byte> packet(8 * (1 + random() % 100));
    for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
    hostile.send_raw(packet);
    ipc::ClientMemory& memory = hostile.memory();
    memory.counters.threads_used.store(random());
    for (uint32_t i = 0; i < 200; ++i) {
      ipc::RecordFields fields;
      fields.stream = static_cast<uint16_t>(random());
      fields.device = static_cast<uint8_t>(random() % 20);
      fields.kernel = random() % 3 == 0 ? random() : random() % ipc::kKernels;
      fields.kind = static_cast<wire::Kind>(random() % 7);
      fields.ask_seq = random() % 3;
      fields.admission = static_cast<wire::Admission>(random() % 11);
      fields.evidence = static_cast<wire::Evidence>(random() % 4);
      const uint32_t bits = random();
      std::memcpy(&fields.duration_us, &bits, sizeof bits);
      hostile.post(static_cast<uint16_t>(random() % 4), fields);
    }
    hostile.ask(static_cast<uint16_t>(random() % 4), random());
    if (round % 2 == 0) {
      auto* bytes = reinterpret_cast<unsigned char*>(memory.threads[0].ring);
      for (size_t i = 0; i < 4'096; ++i) bytes[i] = static_cast<unsigned char>(random());
      memory.threads[0].ring_head.fetch_add(16);
      hostile.ring();
    }
    honest.ask(0, round + 1);
    ASSERT_TRUE(honest.wait_granted(0, round + 1)) << "round " << round;
    honest.complete_all(0);
  }
  EXPECT_TRUE(eventually([&] { return status()["clients"] == 1; }));
}

TEST_F(ServerTest, TakesAWithdrawnAskOutOfTheQueue) {
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  client.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  client.withdraw(0, 1);
  client.ring();
  EXPECT_TRUE(eventually([&] { return status()["devices"].at(0)["waiting"] == 0; }));
}

TEST_F(ServerTest, SwapsThePolicyWhileALaunchWaits) {
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  client.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  EXPECT_FALSE(client.granted(0, 1));
  EXPECT_TRUE(load("builtin")["ok"]);
  EXPECT_TRUE(client.wait_granted(0, 1));
}

TEST_F(ServerTest, QuarantinesAPolicyThatKeepsFaulting) {
  valve_.faulty = true;
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  for (uint32_t seq = 1; seq <= 20; ++seq) {
    client.ask(0, seq);
    ASSERT_TRUE(client.wait_granted(0, seq));
    client.complete_all(0);
  }
  const json policy = status()["policy"];
  EXPECT_EQ(policy["name"], "builtin");
  EXPECT_EQ(policy["quarantined"], "valve");
  EXPECT_NE(policy["error"].get<std::string>().find("quarantined"), std::string::npos);
}

TEST_F(ServerTest, BypassGrantsEverything) {
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  client.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  Request on;
  on.kind = Request::Kind::kBypass;
  on.bypass = true;
  EXPECT_TRUE(request(config_.socket, on).ok);
  EXPECT_TRUE(client.wait_granted(0, 1));
  EXPECT_EQ(client.control().header.bypass.load(), 1u);
  EXPECT_TRUE(client.leased());
}

TEST_F(ServerTest, OpensEveryGateWhenItStops) {
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  client.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  stop();
  EXPECT_TRUE(client.granted(0, 1));
  EXPECT_TRUE(client.leased());
  EXPECT_EQ(client.control().header.bypass.load(), 1u);
  EXPECT_NE(access(config_.socket.c_str(), F_OK), 0);
}

// What `heddle record` does, against a core that decides by the built-in: the trace replays.
TEST_F(ServerTest, RecordsWhatItsCoreSees) {
  start();
  Request record;
  record.kind = Request::Kind::kRecord;
  int connection = -1, memory = -1;
  const cli::Answer answer = cli::ask(config_.socket, record, connection, memory);
  ASSERT_EQ(answer.code, 0) << answer.error;
  EXPECT_NE(request(config_.socket, record).error.find("another heddle record runs"),
            std::string::npos);
  void* mapped = mmap(nullptr, sizeof(trace::Ring), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto& ring = *static_cast<trace::Ring*>(mapped);
  {
    FakeClient client(config_.socket, {.priority = 9, .mps = true});  // the core's mode changes
    FakeClient above(config_.socket, {.priority = 0, .mps = true});
    client.register_kernel(0, 42, "axpy");
    for (uint32_t seq = 1; seq <= 20; ++seq) {
      ASSERT_TRUE(eventually([&] {
        above.post(0, {});
        return client.gated();
      }));
      client.ask(0, seq, 0);
      above.complete_all(0);
      ASSERT_TRUE(client.wait_granted(0, seq)) << seq;
      client.complete_all(0);
    }
    ASSERT_TRUE(eventually([&] { return stats()["granted"] == 20; }));
  }
  shutdown(connection, SHUT_WR);
  char byte = 0;
  EXPECT_TRUE(eventually([&] { return read(connection, &byte, 1) == 0; })) << "it hangs up";
  std::string bytes = trace::Encoder::header({});
  trace::take(ring, bytes);
  bytes += trace::end_of(ring);
  auto reader = trace::Reader::from_bytes(bytes, "memory");
  ASSERT_TRUE(reader) << reader.error().message;
  const auto replayed = trace::replay(*reader, [](const auto&) { return nullptr; });
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->exact && replayed->decisions >= 20);
  EXPECT_EQ(replayed->differing, 0u) << replayed->first;
  EXPECT_TRUE(eventually([&] { return request(config_.socket, record).ok; })) << "it ended";
}

TEST_F(ServerTest, RefusesASocketInUse) {
  start();
  auto second = server::Server::make(config_, *store_, *log_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("another heddled"), std::string::npos);
  EXPECT_EQ(status()["clients"], 0) << "the first one still serves";
}

TEST_F(ServerTest, LeavesTheSocketOfAnotherAloneWhenItStops) {
  start();
  ASSERT_EQ(unlink(config_.socket.c_str()), 0);
  auto second = server::Server::make(config_, *store_, *log_);
  ASSERT_TRUE(second);
  stop();
  EXPECT_EQ(access(config_.socket.c_str(), F_OK), 0);
  second->reset();
  EXPECT_NE(access(config_.socket.c_str(), F_OK), 0);
}

TEST_F(ServerTest, ReplacesTheSocketOfADaemonThatDied) {
  const int dead = ipc::listen_socket(config_.socket.c_str(), 0600, 1);
  ASSERT_GE(dead, 0);
  close(dead);  // the file stays, nobody listens
  start();
  EXPECT_EQ(status()["clients"], 0);
}

}  // namespace
}  // namespace heddle::testing
