// Graphs of a client that is held back, on the simulated GPU: they stand between their nodes while
// the test says so, and compute what they compute without.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "bench/workloads/driver.h"
#include "tests/folder.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

constexpr uint32_t kWanted = ipc::kGatesSoon | ipc::kGatesInside;

using wire::Admission;
using wire::Kind;

bool soon(const std::function<bool()>& what) {
  for (int i = 0; i < 10'000 && !what(); ++i) poll(nullptr, 0, 1);
  return what();
}
// That nothing happens can only be seen for a while.
bool never(const std::function<bool()>& what) {
  for (int i = 0; i < 50; ++i, poll(nullptr, 0, 1)) {
    if (what()) return false;
  }
  return true;
}

class SimulatedGates : public Shim {
 protected:
  std::vector<std::string> simulated() {
    std::vector<std::string> all = environment();
    daemon_.has_gates = true;
    all.push_back("HEDDLE_SIM_SOCKET=" + folder_.path() + "/gpu.sock");
    return all;
  }
  ipc::GatePage& ours() { return *daemon_.gates; }

  const TestFolder folder_;
};

class ShimGraphGates : public SimulatedGates {
 protected:
  ShimGraphGates() : app_(simulated()) {}
  void SetUp() override {
    start(app_, kGate);
    ours().running[0] = ours().wanted[0] = kWanted;
    predict(3'000);
  }
  ~ShimGraphGates() override {
    ours().word[0] = ipc::gate_open(1'000);
    ours().running[0] = 1;
  }

  // Launches it into that stream, and grants what asks. Its record, or its ask.
  ipc::RecordFields run(int stream = 0) {
    daemon_.records();
    app_.send("run " + std::to_string(stream));
    ipc::RecordFields told;
    while (!app_.answered()) {
      if (daemon_.asks(told)) daemon_.grant(told);
    }
    EXPECT_EQ(app_.receive(), "0");
    for (const auto& record : records(Kind::GRAPH)) told = record;
    return told;
  }
  // Until it stands at gates; what ran before is done. Its record.
  ipc::RecordFields run_gated(int stream = 0) {
    ipc::RecordFields told;
    for (int i = 0; i < 2'000; ++i, poll(nullptr, 0, 1)) {
      told = run(stream);
      if (told.admission == Admission::GATED) return told;
      EXPECT_EQ(app_("sync"), "0");
      all_done();
    }
    ADD_FAILURE() << "it only asks";
    return told;
  }
  void make(uint64_t kernels) {
    EXPECT_EQ(app_("make " + std::to_string(kernels)), "0");
    graph_.assign(kernels, 1);
  }
  void all_done() { done_.insert(done_.end(), graph_.begin(), graph_.end()); }
  void let_go(const ipc::RecordFields& told) { ours().word[0] = told.ask_seq; }

  // How many kernels of launches ran behind what was done; more than there are: something else did.
  size_t count() {
    const std::string seen = app_("word");
    uint64_t word = 0;
    for (const uint64_t value : done_) word = word * workloads::kStateFactor + value;
    size_t kernels = 0;
    for (; kernels < 4 * graph_.size() && seen != std::to_string(word); ++kernels) {
      word = word * workloads::kStateFactor + graph_[kernels % graph_.size()];
    }
    return kernels;
  }
  bool ran(size_t kernels) { return count() == kernels; }

  Application app_;
  std::vector<uint64_t> graph_, done_;  // what its kernels write; and those that have
};

TEST_F(ShimGraphGates, ALongGraphStandsAtAGateInsideAndGoesOn) {
  make(5);
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 4) << "a gate behind each kernel but the last";
  EXPECT_TRUE(never([&] { return !ran(0); })) << "its ticket";
  ours().running[0] = 0;
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_TRUE(never([&] { return !ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(5); }));
}

TEST_F(ShimGraphGates, AGraphWithBranchesStandsBeforeAndBehindThem) {
  EXPECT_EQ(app_("fork 2"), "0");
  graph_.assign(8, 1);
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 3) << "behind each of the first two, and where the branches have met";
  ours().running[0] = 0;
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_TRUE(never([&] { return !ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(8); }));
}

TEST_F(ShimGraphGates, ARunningGraphIsStoppedWithinItsNextPiece) {
  constexpr size_t kKernels = 400;
  predict(40'000);
  make(kKernels);
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 199) << "two kernels each";
  let_go(told);
  EXPECT_TRUE(soon([&] { return count() > 0; }));
  ours().running[0] = 0;
  size_t stands = 0;
  EXPECT_TRUE(soon([&] {
    stands = count();
    return never([&] { return !ran(stands); });
  }));
  EXPECT_LT(stands, kKernels);
  EXPECT_EQ(stands % 2, 0u);
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(kKernels); }));
}

TEST_F(ShimGraphGates, AGraphOfOneKernelStandsWholeBehindItsTicket) {
  make(1);
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 0);
  EXPECT_TRUE(never([&] { return !ran(0); }));
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(1); }));
}

TEST_F(ShimGraphGates, AShortGraphHasNoGatesInside) {
  make(5);
  predict(400);
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 0);
  ours().running[0] = 0;
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(5); }));
}

TEST_F(ShimGraphGates, WhereKernelsAskALongGraphStandsAndAShortOneAsks) {
  make(5);
  ours().wanted[0] = kWanted | ipc::kKernelsAsk;
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 4);
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(5); }));
  predict(400);
  EXPECT_EQ(run().admission, Admission::ASK);
}

TEST_F(ShimGraphGates, AGraphBesideNobodyIsLaunchedAsItIs) {
  make(5);
  ours().wanted[0] = 0;
  const auto told = run_gated();
  EXPECT_EQ(told.may_follow, 0);
  ours().running[0] = 0;
  let_go(told);
  EXPECT_TRUE(soon([&] { return ran(5); }));
  daemon_.control().devices[0].leased = kLease;
  EXPECT_EQ(run().admission, Admission::LEASE);
  EXPECT_TRUE(soon([&] { return ran(10); }));
}

TEST_F(ShimGraphGates, TheFirstGraphBesideSomebodyElseHasGatesInside) {
  const auto twins = [&] { return daemon_.client().counters.graphs.load() & 0xff; };
  for (const uint32_t leased : {kLease, kGate}) {
    make(5);
    daemon_.control().devices[0].leased = leased;
    ours().wanted[0] = ipc::kGatesSoon;
    ours().word[0] = ipc::gate_open(0);
    const auto before = twins();
    EXPECT_TRUE(soon([&] { return run().may_follow == 0 && twins() > before; }));
    run();  // from here on its twin can follow
    daemon_.control().devices[0].leased = kGate;
    ours().wanted[0] = kWanted;
    const auto told = run();
    EXPECT_EQ(told.admission, Admission::GATED);
    EXPECT_EQ(told.may_follow, 4);
  }
}

TEST_F(ShimGraphGates, AGraphThatTurnsOutLongerHasMoreGates) {
  ours().word[0] = ipc::gate_open(1'000);
  make(30);
  predict(500);
  EXPECT_EQ(run_gated().may_follow, 2);
  predict(3'000);
  EXPECT_TRUE(soon([&] { return run_gated().may_follow == 14; }));
}

TEST_F(ShimGraphGates, ALeasedGraphRunsThrough) {
  make(5);
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(5); }));
  daemon_.control().devices[0].leased = kLease;
  ours().running[0] = 0;
  EXPECT_EQ(run().admission, Admission::LEASE);
  EXPECT_TRUE(soon([&] { return ran(10); }));
}

TEST_F(ShimGraphGates, AGraphOfAnotherSizeStandsThere) {
  make(5);
  run_gated();
  for (int i = 0; i < 8; ++i) {
    daemon_.control().hints[0].kernels[i].special = ipc::pack_special({.size = ipc::GroupCount(2)});
  }
  const auto told = run();
  EXPECT_EQ(told.admission, Admission::GATED);
  EXPECT_TRUE(told.unmovable) << "its process has no SM sets";
}

TEST_F(ShimGraphGates, AGraphOfAnotherPriorityAsks) {
  make(5);
  run_gated();
  for (int i = 0; i < 8; ++i) {
    daemon_.control().hints[0].kernels[i].special =
        ipc::pack_special({.raised = true, .launch_priority = -2});
  }
  EXPECT_EQ(run().admission, Admission::ASK);
}

TEST_F(ShimGraphGates, ALaunchInAnotherStreamFollowsOneThatStands) {
  make(5);
  ours().running[0] = 0;
  const auto first = run_gated();
  const auto second = run(1);
  EXPECT_EQ(second.admission, Admission::GATED);
  EXPECT_EQ(second.ask_seq, first.ask_seq + 1);
  daemon_.control().devices[0].leased = kLease;
  EXPECT_EQ(run(2).admission, Admission::LEASE) << "the executable itself";
  let_go(second);
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_TRUE(never([&] { return !ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(15); }));
}

TEST_F(ShimGraphGates, AnUpdateIsOfTheLaunchesBehindOneThatStands) {
  make(5);
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_EQ(app_("update 5"), "0");
  EXPECT_EQ(run(1).admission, Admission::ASK) << "its twin is yet to be made anew";
  EXPECT_TRUE(never([&] { return !ran(1); }));
  graph_.insert(graph_.end(), 5, 2);
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(10); }));
  all_done();
  graph_.assign(5, 2);
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(5); }));
}

TEST_F(ShimGraphGates, AnExecutableThatEndsWhileItStandsRunsToItsEnd) {
  make(5);
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_EQ(app_("destroy"), "0");
  EXPECT_TRUE(never([&] { return !ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(5); }));
}

TEST_F(ShimGraphGates, AContextIsResetOnceWhatStandsHasGoneOn) {
  make(5);
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  app_.send("reset");
  EXPECT_TRUE(never([&] { return app_.answered(); }));
  ours().running[0] = 1;
  EXPECT_EQ(app_.receive(), "0");
}

TEST_F(ShimGraphGates, ATwinStandsAtThePageOfItsSession) {
  make(5);
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  daemon_.hang_up();
  EXPECT_TRUE(soon([&] { return ran(5); })) << "nobody is there to let it go on";
  daemon_.accept(kGate);
  predict(3'000);
  ours().wanted[0] = kWanted;
  ours().running[0] = 0;
  EXPECT_EQ(app_("sync"), "0");
  all_done();
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_TRUE(never([&] { return !ran(1); }));
  ours().running[0] = 1;
  EXPECT_TRUE(soon([&] { return ran(5); }));
}

TEST_F(ShimGraphGates, NoTimeIsTakenOfALaunchThatMayStand) {
  make(5);
  for (int i = 0; i < 8; ++i) {
    daemon_.control().hints[0].kernels[i].special = ipc::pack_special({.measure = 1});
  }
  const auto is_timed = [&] {
    EXPECT_EQ(app_("sync"), "0");
    const auto ends = records(Kind::COMPLETION);
    return std::any_of(ends.begin(), ends.end(), [](auto& end) { return end.duration_us > 0; });
  };
  EXPECT_EQ(run().admission, Admission::ASK);
  EXPECT_TRUE(is_timed());
  all_done();
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(5); }));
  is_timed();  // what ran before
  let_go(run());
  EXPECT_FALSE(is_timed());
}

class GraphsBeforeASession : public ShimGraphGates {
  void SetUp() override {
    EXPECT_EQ(app_("init"), "0") << "it does not wait for long";
    make(5);
    daemon_.accept(kGate);
    ours().wanted[0] = kWanted;
    predict(3'000);
  }
};

TEST_F(GraphsBeforeASession, TheyHaveGatesToo) {
  ours().running[0] = 0;
  let_go(run_gated());
  EXPECT_TRUE(soon([&] { return ran(1); }));
  EXPECT_TRUE(never([&] { return !ran(1); }));
}

// Random programs, whose words are right only if launches of an executable follow each other. The
// daemon opens and closes at random, changes its mind of how long they take, and goes away.
TEST_F(SimulatedGates, ACampaignOfGraphsBehindGatesThatOpenAndCloseComputesTheSame) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Application campaign(simulated(), HEDDLE_GRAPH_CAMPAIGN, "--rounds", "8000");
  uint32_t newest = 0;
  size_t whole = 0, gated = 0, sessions = 0;
  for (bool attached = false; !campaign.answered();) {
    if (!attached && daemon_.pending(1)) {
      daemon_.accept(kGate);
      attached = true;
      ours().wanted[0] = kWanted;
      newest = 0;
      ++sessions;
    }
    if (!attached) continue;
    if (random() % 16 == 0) predict(random() % 2 == 0 ? 300 : 3'000);
    if (random() % 16 == 0) ours().wanted[0] = random() % 4 > 0 ? kWanted : 0;
    for (uint32_t thread = 0; thread < 4; ++thread) {
      ipc::RecordFields ask;
      if (!daemon_.asks(ask, thread)) continue;
      daemon_.grant(ask, 0, thread);
      newest = ipc::gate_later(newest, ask.ask_seq);
    }
    for (const auto& record : daemon_.records()) {
      if (record.admission != Admission::GATED) continue;
      newest = ipc::gate_later(newest, record.ask_seq);
      (record.may_follow > 0 ? gated : whole) += 1;
    }
    ours().word[0] = random() % 8 == 0 ? ipc::gate_open(newest) : newest;
    ours().running[0] = random() % 2;
    poll(nullptr, 0, static_cast<int>(random() % 2));
    if (random() % 128 == 0) {
      daemon_.hang_up();
      attached = false;
    }
  }
  const std::string began = campaign.receive();
  EXPECT_EQ(campaign.receive(), "ok") << began;
  EXPECT_GT(gated, 20u);
  EXPECT_GT(whole, 20u);
  EXPECT_GT(sessions, 2u);
}

}  // namespace
}  // namespace heddle::shim_test
