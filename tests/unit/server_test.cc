// The parts of the server that need neither loop nor socket.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "daemon/server/attached.h"
#include "daemon/server/config.h"
#include "daemon/server/intake.h"
#include "daemon/server/log.h"
#include "daemon/server/messages.h"
#include "ipc/heddle.capnp.h"
#include "ipc/slot.h"
#include "ipc/sparse.h"

namespace heddle::server {
namespace {

std::string error_of(const std::string& text) {
  const Result<Config> config = parse_config(text, "heddled.toml");
  return config ? "" : config.error().message;
}

TEST(Config, EmptyGivesTheDefaults) {
  const Result<Config> config = parse_config("", "heddled.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->spin_us, 50u);
  EXPECT_EQ(config->policy.name, kDefaultPolicy);
  EXPECT_EQ(config->core.starvation_us, 1e6);
}

TEST(Config, OfAnEmptyFileIsTheDefaultsAndOfNoneAnError) {
  const std::string file = testing::TempDir() + "empty-" + std::to_string(getpid()) + ".toml";
  std::ofstream(file).close();
  EXPECT_TRUE(load_config(file));
  std::ofstream(file) << "[daemon]\nspin_us = 20\n";
  EXPECT_EQ(load_config(file)->spin_us, 20u);
  unlink(file.c_str());
  for (const std::string& none : {file, testing::TempDir()}) {
    const Result<Config> config = load_config(none);
    ASSERT_FALSE(config) << none;
    EXPECT_NE(config.error().message.find("cannot be read"), std::string::npos);
  }
}

TEST(Config, ReadsEverySection) {
  const Result<Config> config = parse_config(R"(
[daemon]
mode = "0660"
spin_us = 20
[gpu]
mode = "mps"
starvation_ms = 250
[policy]
name = "gapfill"
params = { quantum_us = 300, fast = true }
[[rule]]
name = "services"
exe = "/usr/lib/serving/*"
priority = "latency"
[[rule]]
uid = 1000
claim = 3
)",
                                             "heddled.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->socket_mode, 0660u);
  EXPECT_EQ(config->gpu_mode, GpuMode::kMps);
  EXPECT_EQ(config->core.starvation_us, 250e3);
  ASSERT_EQ(config->policy.params.size(), 2u);
  EXPECT_EQ(config->policy.params[1].second, "300");
  ASSERT_EQ(config->rules.size(), 2u);
  EXPECT_EQ(config->rules[0].priority, 0);
  EXPECT_EQ(config->rules[1].name, "rule 2");
}

TEST(Config, NamesPlaceAndRemedyOfWhatIsWrong) {
  EXPECT_EQ(error_of("[daemon]\nspin = 3\n"),
            "heddled.toml:2: unknown key daemon.spin; did you mean \"spin_us\"?");
  EXPECT_EQ(error_of("[gpu]\nmode = \"msp\"\n"),
            "heddled.toml:2: gpu.mode must be \"auto\" or \"mps\" or \"timeslice\"");
  EXPECT_EQ(error_of("[gpu]\nidle_us = \"x\"\n"),
            "heddled.toml:2: gpu.idle_us must be a number from 100 to 1e+07");
  EXPECT_EQ(error_of("[polcy]\n"), "heddled.toml:1: unknown key polcy; did you mean \"policy\"?");
  EXPECT_NE(error_of("[daemon\n").find("heddled.toml:1: "), std::string::npos);
  EXPECT_NE(error_of("[[rule]]\nlabel = \"x\"\n").find("either priority"), std::string::npos);
  EXPECT_NE(error_of("[[rule]]\npriority = 10\n").find("0 (highest) to 9"), std::string::npos);
}

// Found by tests/fuzz: toml++ takes them for what its authors called unreachable.
TEST(Config, RefusesLettersBeyondAsciiOutsideQuotes) {
  for (const char* text : {"\xc3\xa9 = 1", "a\xd1\x83", "[daemon]\nsp\xc3\xbcn_us = 3"}) {
    const auto config = parse_config(text, "f.toml");
    ASSERT_FALSE(config) << text;
    EXPECT_NE(config.error().message.find("f.toml:"), std::string::npos);
  }
  EXPECT_TRUE(parse_config("# \xc3\xa9\n[daemon]\nsocket = \"/tmp/\xc3\xa9\"", "f.toml"));
  EXPECT_TRUE(parse_config("[daemon]\nsocket = \"\"\"/a\"\\\"\xc3\xa9\"\"\"", "f.toml"));
}

TEST(Log, TextOfClientsCannotForgeALine) {
  EXPECT_EQ(quoted("plain"), "plain");
  EXPECT_EQ(quoted(""), "\"\"");
  EXPECT_EQ(quoted("a b"), "\"a b\"");
  EXPECT_EQ(quoted("a\nlevel=error"), "\"a\\x0alevel=error\"");
  EXPECT_EQ(quoted("\""), "\"\\\"\"");
  EXPECT_EQ(quoted("\xc2\x9b"
                   "2J"),
            "\"\\xc2\\x9b2J\"")
      << "a terminal would obey";
}

TEST(Messages, RequestsSurviveTheWire) {
  Request request;
  request.kind = Request::Kind::kPolicySet;
  request.policy = "gapfill";
  request.params = {{"quantum_us", "300"}};
  const std::vector<std::byte> packet = encode_request(request);
  const Result<Message> message = decode_message(packet);
  ASSERT_TRUE(message);
  EXPECT_EQ(std::get<Request>(*message).params, request.params);
}

TEST(Messages, AGraphsKernelsAreBoundedAndOfTheTable) {
  capnp::MallocMessageBuilder builder;
  auto graph = builder.initRoot<wire::Message>().initRegisterKernel();
  graph.setIndex(2);
  graph.setGridX(300);
  graph.setGridY(1);
  graph.setGridZ(1);
  auto nodes = graph.initNodes(100);
  for (unsigned i = 0; i < nodes.size(); ++i) {
    nodes[i].setKernel(i == 1 ? ipc::kKernels : i);
    nodes[i].setCount(70'000);
  }
  graph.setOtherNodes(44);
  const auto words = capnp::messageToFlatArray(builder);
  const Result<Message> message =
      decode_message(std::as_bytes(std::span(words.asBytes().begin(), words.asBytes().size())));
  ASSERT_TRUE(message);
  const auto& kernel = std::get<KernelMessage>(*message);
  EXPECT_TRUE(kernel.has_nodes());
  EXPECT_EQ(kernel.nodes.graph, 2u);
  EXPECT_EQ(kernel.nodes.others, 44 + 36 * 70'000 + 64 * 4'465u) << "what there is no room for";
  ASSERT_EQ(kernel.nodes.count, core::NodesBody::kMost);
  EXPECT_EQ(kernel.nodes.nodes[1].kernel, 2u) << "an index beyond the table is no kernel's";
  EXPECT_EQ(kernel.nodes.nodes[1].count, 65'535u);
}

TEST(Messages, AnyBytesAreAnErrorOrAMessageButNeverMore) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Request request;
  request.kind = Request::Kind::kPolicySet;
  request.params = {{"a", "b"}, {"c", "d"}};
  const std::vector<std::byte> sound = encode_request(request);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> packet = sound;
    for (uint32_t i = 0; i < 1 + random() % 8; ++i) {
      packet[random() % packet.size()] = static_cast<std::byte>(random());
    }
    packet.resize(random() % 4 == 0 ? random() % packet.size() : packet.size());
    (void)decode_message(packet);  // the sanitizers judge
  }
}

class IntakeTest : public ::testing::Test {
 protected:
  Claim launch(uint64_t seq, uint16_t thread = 0) {
    Claim claim;
    claim.thread = thread;
    claim.at = ++now_;
    claim.fields.stream_seq = seq;
    claim.fields.kernel = 3;
    return claim;
  }
  Claim ask(uint32_t seq, uint64_t stream_seq) {  // of gates.h
    Claim claim = launch(stream_seq, ipc::kThreads);
    claim.source = Claim::Source::kAsk;
    claim.seq = claim.fields.ask_seq = seq;
    claim.fields.admission = wire::Admission::ASK;
    return claim;
  }
  Claim completion(uint64_t seq) {
    Claim claim = launch(seq);
    claim.fields.kind = wire::Kind::COMPLETION;
    claim.fields.duration_us = 10;
    return claim;
  }
  std::vector<core::EventKind> kinds(const Claim& claim) {
    std::vector<core::EventKind> all;
    for (const core::Event& event : intake_.take(claim, true)) all.push_back(event.kind);
    return all;
  }
  using K = core::EventKind;
  using Kinds = std::vector<core::EventKind>;

  core::TimeNs now_ = 0;
  Intake intake_{1};
};

TEST_F(IntakeTest, AnUnregisteredKernelIsUnknown) {
  EXPECT_EQ(intake_.take(launch(1), false)[0].launch.kernel, core::kUnknownKernel);
  EXPECT_EQ(intake_.take(launch(2), true)[0].launch.kernel, 3u);
}

TEST_F(IntakeTest, ARowComesBeforeWhatTellsOfIt) {
  Claim told = launch(5);
  told.fields.untold = 7;
  told.fields.may_follow = 9;
  auto events = intake_.take(told, true);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, K::kRow);
  EXPECT_EQ(events[0].untold.launches, 7u);
  EXPECT_EQ(events[0].untold.kernel, core::kUnknownKernel);
  EXPECT_EQ(events[1].launch.may_follow, 9);
  told.fields.kind = wire::Kind::WAIT;
  told.fields.untold = UINT32_MAX;  // of a client that lies
  events = intake_.take(told, true);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].untold.launches, ipc::kUntoldMost);
  EXPECT_EQ(events[0].untold.kernel, 3u);
  EXPECT_EQ(events[1].kind, K::kWaiting);
}

TEST_F(IntakeTest, AStreamsLaunchesOnlyGoForward) {
  EXPECT_EQ(kinds(launch(5)), Kinds{K::kPosted});
  EXPECT_EQ(kinds(launch(5)), Kinds{});
  EXPECT_EQ(kinds(launch(4)), Kinds{});
  EXPECT_EQ(kinds(launch(0)), Kinds{});
  EXPECT_EQ(intake_.malformed(), 3u);
  EXPECT_EQ(kinds(launch(4, 1)), Kinds{K::kPosted}) << "another thread's, drained later";
}

TEST_F(IntakeTest, NothingIsDoneThatWasNotPosted) {
  intake_.take(launch(5), true);
  const core::DoneBody beyond = intake_.take(completion(9), true)[0].done;
  EXPECT_EQ(beyond.stream_seq, 5u);
  EXPECT_EQ(beyond.duration_us, 0);
  EXPECT_EQ(intake_.take(completion(5), true)[0].done.duration_us, 10);
}

// A client is at the GPU's end when the last of its threads has returned.
TEST_F(IntakeTest, AThreadThatReturnsEndsNobodyElsesWait) {
  using core::Evidence;
  const auto wait = [&](uint16_t thread) {
    Claim claim = launch(1, thread);
    claim.fields.kind = wire::Kind::WAIT;
    intake_.take(claim, true);
  };
  const auto returned = [&](uint16_t thread) {
    Claim claim = completion(1);
    claim.thread = thread;
    claim.fields.evidence = wire::Evidence::SYNCHRONIZED;
    return intake_.take(claim, true)[0].done.evidence;
  };
  wait(0);
  wait(1);
  EXPECT_EQ(returned(1), Evidence::kMarker);
  EXPECT_EQ(returned(2), Evidence::kMarker) << "a query";
  EXPECT_EQ(returned(0), Evidence::kSynchronized);
  EXPECT_EQ(returned(2), Evidence::kSynchronized);
  wait(0);  // its return is lost
  intake_.take(launch(9), true);
  EXPECT_EQ(returned(1), Evidence::kSynchronized) << "it launches";
  wait(0);
  now_ += 3'600'000'000'000;
  EXPECT_EQ(returned(1), Evidence::kSynchronized) << "it never said so";
}

TEST_F(IntakeTest, ImpossibleFieldsAreMalformed) {
  const auto rejected = [&](auto change) {
    Claim claim = launch(100 + intake_.malformed());
    change(claim.fields);
    return kinds(claim).empty();
  };
  EXPECT_TRUE(rejected([](auto& f) { f.stream = ipc::kStreams; }));
  EXPECT_TRUE(rejected([](auto& f) { f.stream = ipc::kAllStreams; }));
  EXPECT_TRUE(rejected([](auto& f) { f.device = ipc::kDevices; }));
  EXPECT_TRUE(rejected([](auto& f) { f.kernel = ipc::kKernels; }));
  EXPECT_TRUE(rejected([](auto& f) { f.duration_us = -1; }));
  EXPECT_TRUE(rejected([](auto& f) { f.duration_us = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_EQ(intake_.malformed(), 6u);
}

TEST_F(IntakeTest, AnAskIsOpenUntilItIsGrantedOrTakenBack) {
  EXPECT_EQ(kinds(ask(1, 1)), Kinds{K::kAsked});
  EXPECT_EQ(intake_.asking(), 1u);
  Claim back = ask(1, 1);
  back.source = Claim::Source::kWithdrawal;
  EXPECT_EQ(kinds(back), Kinds{K::kWithdrawn});
  EXPECT_EQ(intake_.asking(), 0u);
  EXPECT_EQ(kinds(back), Kinds{}) << "once";
  EXPECT_EQ(kinds(ask(2, 2)), Kinds{K::kAsked});
  EXPECT_EQ(intake_.open_ask(ipc::kThreads), 2u);
  intake_.granted(ipc::kThreads);
  EXPECT_EQ(intake_.asking(), 0u);
}

TEST_F(IntakeTest, OnlyALaunchIsAskedFor) {
  Claim claim = ask(1, 1);
  claim.fields.kind = wire::Kind::WAIT;
  claim.fields.stream = ipc::kAllStreams;
  EXPECT_EQ(kinds(claim), Kinds{});
  EXPECT_EQ(intake_.malformed(), 1u);
}

TEST_F(IntakeTest, AnAskSaysThatItCannotMove) {
  for (const bool unmovable : {true, false}) {
    Claim claim = ask(1 + unmovable, 1 + unmovable);
    claim.fields.unmovable = unmovable;
    EXPECT_EQ(intake_.take(claim, true).back().launch.unmovable, unmovable);
    intake_.granted(ipc::kThreads);
  }
}

// Whatever a client publishes, one poll ends; and no thread's records are left behind for ever.
TEST(ClientMemory, IsReadAShareAtATime) {
  Identity identity;
  identity.id = 1;
  auto made = Client::make(identity);
  ASSERT_TRUE(made) << made.error().message;
  Client& client = **made;
  auto& memory = const_cast<ipc::ClientMemory&>(client.memory());
  memory.counters.threads_used = 8;
  for (ipc::ThreadBlock& block : std::span(memory.threads, 8)) {
    for (auto& record : block.ring) ipc::build_record(record, {});
    block.ring_head = ipc::kRingRecords;
  }
  client.set_share(4'000);
  std::array<size_t, 8> seen{};
  for (const size_t expected : {4'000u, 4'000u, 192u, 0u}) {
    std::vector<Claim> claims;
    ASSERT_TRUE(client.collect(1'000, claims));
    EXPECT_EQ(claims.size(), expected);
    EXPECT_EQ(client.behind(), expected == 4'000u);
    for (const Claim& claim : claims) ++seen[claim.thread];
  }
  for (const size_t count : seen) EXPECT_EQ(count, size_t{ipc::kRingRecords});
}

// Each costs the daemon a look at up to 64 kernels and a hook: a client has only so many.
TEST(ClientMemory, TellsOfAKernelOnce) {
  auto made = Client::make({});
  ASSERT_TRUE(made) << made.error().message;
  KernelMessage message{};
  message.kernel.index = ipc::kKernels - 1;
  EXPECT_TRUE((*made)->add_kernel(message));
  EXPECT_FALSE((*made)->add_kernel(message));
  message.kernel.index = ipc::kKernels;
  EXPECT_FALSE((*made)->add_kernel(message));
  EXPECT_EQ((*made)->intake().malformed(), 2u);
}

TEST(ClientMemory, AWindowOfAGpuThatItDoesNotHaveIsWrittenNowhere) {
  Identity identity;
  identity.id = 1;
  identity.gpus.fill(kNoGpu);
  identity.gpus[0] = 3;
  auto made = Client::make(identity);
  ASSERT_TRUE(made) << made.error().message;
  Client& client = **made;
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(&client.control()), sizeof client.control());
  };
  core::Decision d;
  d.kind = core::DecisionKind::kAllowance;
  d.allowed = core::Allowance::kLeased;
  d.launch_priority = -3;
  const std::string before = bytes();
  d.device = 5;
  client.apply(d);
  EXPECT_TRUE(bytes() == before);
  d.device = 3;
  client.apply(d);
  EXPECT_EQ(client.control().devices[0].leased.load(), 1u);
}

// How many sleep on the word: moved away and back, they sleep on.
long sleepers_on(const std::atomic<uint32_t>& word) {
  static uint32_t aside = 0;
  constexpr auto kAll = static_cast<uintptr_t>(INT_MAX);
  const long count = syscall(SYS_futex, &word, FUTEX_REQUEUE, 0, kAll, &aside, 0);
  syscall(SYS_futex, &aside, FUTEX_REQUEUE, 0, kAll, &word, 0);
  return count;
}

// A process may let as many threads sleep on a slot as it likes; to wake 8 000 took 103 ms.
TEST(ClientMemory, AGrantWakesOneOfThoseWhoSleepOnItsWord) {
  constexpr int kSleepers = 16;
  Identity identity;
  identity.id = 1;
  Result<std::unique_ptr<Client>> made = Client::make(identity);
  ASSERT_TRUE(made);
  Client& client = **made;
  const auto& word = client.control().grants[0].granted;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < kSleepers; ++i) {
    sleepers.emplace_back([&] { ipc::futex_wait(&word, 0, 60'000'000'000); });
  }
  while (sleepers_on(word) < kSleepers) std::this_thread::yield();
  const_cast<ipc::ClientMemory&>(client.memory()).threads[0].waiting.store(1);
  Claim claim;
  claim.fields.admission = wire::Admission::ASK;
  claim.fields.ask_seq = 1;
  ASSERT_TRUE(client.let_through(claim));
  client.wake();
  EXPECT_EQ(sleepers_on(word), kSleepers - 1);
  ipc::futex_wake(&word);
  for (std::thread& sleeper : sleepers) sleeper.join();
}

}  // namespace
}  // namespace heddle::server
