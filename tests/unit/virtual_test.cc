// Scenarios in virtual time: the same by seed, fast, bounded by the clairvoyant policy, and played
// from traces as they were recorded.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "bench/virtual/machine.h"
#include "bench/virtual/outcome.h"
#include "bench/virtual/validate.h"
#include "daemon/trace/encoder.h"
#include "daemon/trace/replay.h"
#include "tests/folder.h"
#include "tests/sanitized.h"

namespace heddle::bench {
namespace {

namespace fs = std::filesystem;

// A service of short kernels and pauses beside a program that fills the GPU.
constexpr const char* kPair = R"(
repetitions = 2
block_s = 0.5
policies = ["priority", "gapfill"]
baselines = ["timeslice", "mps", "mps+priority"]
[[job]]
name = "service"
role = "latency"
command = ["true"]
[job.sim]
kernels = 3
kernel_us = { median = 850, sigma = 0.05 }
pause_us = { median = 6300, sigma = 0.25 }
blocks = 264
[[job]]
name = "filler"
role = "batch"
command = ["true"]
[job.sim]
kernels = 8
kernel_us = { median = 1200, sigma = 0.5 }
blocks = 264
)";

class VirtualTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.policy_directory = HEDDLE_POLICIES;
    options_.seed = 7;
    write(kPair);
  }

  void write(const std::string& scenario) {
    options_.scenario = folder_ + "/s.toml";
    std::ofstream(options_.scenario) << scenario;
  }
  // Of one row's job: figures of `heddle-bench run`.
  static double figure(const VirtualRun& run, const std::string& row, const std::string& job,
                       const std::string& name) {
    const Json& figures = run.result.at("figures").at(row).at("jobs").at(job);
    const Json& one = name == "mean" ? figures.at("jct_ms").at("mean") : figures.at(name);
    return one.at("value").get<double>();
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
  VirtualOptions options_;
};

TEST_F(VirtualTest, IsTheSameBySeedOnAnyNumberOfThreads) {
  options_.threads = 1;
  const VirtualRun one = run_virtual(options_);
  options_.threads = 4;
  const VirtualRun four = run_virtual(options_);
  EXPECT_EQ(one.result["figures"].dump(), four.result["figures"].dump());
  EXPECT_EQ(one.result["oracle"].dump(), four.result["oracle"].dump());
  options_.seed = 8;
  EXPECT_NE(one.result["figures"].dump(), run_virtual(options_).result["figures"].dump());
  EXPECT_EQ(one.result["mode"], "simulated");
}

// Two clients: the aim is 200 times real time; it is several times that.
TEST_F(VirtualTest, IsFasterThanRealTime) {
#if defined(HEDDLE_SANITIZED) || !defined(NDEBUG)
  GTEST_SKIP() << "a sanitizer's speed says nothing, nor that of a debug build";
#endif
  options_.threads = 1;
  const VirtualRun run = run_virtual(options_);
  EXPECT_GT(run.virtual_s / run.busy_s, 200) << "virtual seconds a second of CPU";
}

// What stands at gates is stopped, so that it need not fit its gap.
TEST_F(VirtualTest, TheOracleDelaysNobodyAndNoGapFillerDoesBetterByAsking) {
  const std::string asking = "gapfill:daemon.gates=false";
  options_.policies = {"priority", asking};
  const VirtualRun run = run_virtual(options_);
  EXPECT_NEAR(figure(run, "oracle@mps", "service", "mean_over_alone"), 1, 0.005);
  EXPECT_GT(figure(run, "oracle@mps", "filler", "per_s"), 10);
  // Time-sliced there is the switch back after each gap.
  EXPECT_LT(figure(run, "oracle", "service", "mean_over_alone"), 1.06);
  for (const std::string path : {"", "@mps"}) {
    for (const std::string& row : {std::string("priority"), asking}) {
      EXPECT_LE(figure(run, "oracle" + path, "service", "mean"),
                figure(run, row + path, "service", "mean"))
          << row << path;
    }
    EXPECT_GE(figure(run, "oracle" + path, "filler", "per_s"),
              figure(run, asking + path, "filler", "per_s") * 0.98)
        << path;
  }
  // And without heddle the service is late: the scenario has something to win.
  EXPECT_GT(figure(run, "timeslice", "service", "mean_over_alone"), 1.5);
  EXPECT_FALSE(run.distances.empty());
  // All kernels fill the GPU: nobody uses more than is left, and sharing freely uses it all.
  for (const LeftOver& l : run.left_over) {
    EXPECT_LT(l.used.value, 1.02) << l.row;
    if (l.row == "mps") {
      EXPECT_GT(l.used.value, 0.9);
    }
    if (l.row == asking) {
      EXPECT_LT(l.used.value, 0.95);
    }
  }
  EXPECT_EQ(run.left_over.size(), 9u);
}

// Times of a request's tokens add up to its own; the oracle keeps both as they are alone.
TEST_F(VirtualTest, ARequestOfTokensHasTheTimesBetweenThem) {
  std::string scenario = kPair;
  scenario.replace(scenario.find("kernels = 3"), 11, "kernels = 3\ntokens = 4");
  write(scenario);
  const VirtualRun run = run_virtual(options_);
  for (const char* row : {"alone/service@mps", "mps", "oracle@mps"}) {
    const Json& service = run.result.at("figures").at(row).at("jobs").at("service");
    const double request_ms = service.at("jct_ms").at("mean").at("value");
    const double token_ms = service.at("tbt_ms").at("mean").at("value");
    const double first_ms = service.at("ttft_ms").at("mean").at("value");
    EXPECT_NEAR(first_ms + 3 * token_ms, request_ms, 0.001 * request_ms) << row;
    EXPECT_EQ(service.at("tbt_ms").at("samples"), 3 * service.at("samples").get<size_t>());
  }
  EXPECT_NEAR(figure(run, "oracle@mps", "service", "tbt_p99_over_alone"), 1, 0.01);
  EXPECT_GT(figure(run, "mps", "service", "tbt_p99_over_alone"), 1.5);
}

// The service takes 1.5 ms or so and then pauses: its rate is a half of what it serves so.
TEST_F(VirtualTest, ALoadIsAShareOfWhatTheJobServesAlone) {
  const auto served = [&](const std::string& arrivals) {
    std::string text = kPair;
    text.replace(text.find("role"), 0, arrivals);
    write(text);
    return figure(run_virtual(options_), "alone/service@mps", "service", "per_s");
  };
  const double most = served("");
  EXPECT_NEAR(served("arrivals = \"open 50%\"\n") / most, 0.5, 0.05);
  EXPECT_NEAR(served("arrivals = \"open 25%\"\n") / most, 0.25, 0.05);
}

TEST_F(VirtualTest, ARowWithGatesHasBestEffortStandAtThem) {
  write(kPair);
  options_.policies = {"priority@mps", "priority:daemon.gates=false@mps"};
  options_.baselines = {"mps"};
  const Json rows = run_virtual(options_).result.at("figures");
  EXPECT_LT(rows.at("priority@mps").at("counters").at("granted"),
            rows.at("priority:daemon.gates=false@mps").at("counters").at("granted"))
      << "a verdict lets many launches go";
}

TEST_F(VirtualTest, ARowOfAPolicyThatIsNotThereIsLeftOutAndTold) {
  std::string text = kPair;
  const size_t at = text.find("policies = [");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "policies = [\"unheard_of_at_all\", ");
  write(text);
  const VirtualRun run = run_virtual(options_);
  EXPECT_EQ(run.result.at("missing").at(0).at("row"), "unheard_of_at_all");
  EXPECT_TRUE(run.result.at("figures").contains("gapfill"));
}

TEST_F(VirtualTest, AThreadPercentageLimitsTheRoomOfAClient) {
  std::string text = kPair;
  const std::string rows = "baselines = [\"timeslice\"";
  text.replace(text.find(rows), rows.size(), "baselines = [\"mps:50\"");
  write(text);
  const VirtualRun run = run_virtual(options_);
  // On half of the room 264 blocks take two waves; the service finds the other half free, and takes
  // of the filler's what comes free between two waves.
  EXPECT_LT(figure(run, "mps:50", "service", "mean_over_alone"), 2.1);
  const double filler = figure(run, "mps:50", "filler", "per_s");
  const double alone = figure(run, "alone/filler@mps", "filler", "per_s");
  EXPECT_LE(filler / alone, 0.5);
  EXPECT_GE(filler / alone, 0.5 * (1 - figure(run, "mps:50", "service", "per_s") * 3 * 1.7e-3));
}

TEST_F(VirtualTest, InASplitEachJobHasItsSmsToItself) {
  std::string text = kPair;
  const std::string rows = "baselines = [\"timeslice\"";
  text.replace(text.find(rows), rows.size(), "baselines = [\"split:25\"");
  write(text);
  const VirtualRun run = run_virtual(options_);
  // 264 blocks, two on an SM: on 100 of the 132 SMs two waves instead of one, on 32 five.
  EXPECT_NEAR(figure(run, "split:25", "service", "mean_over_alone"), 2, 0.02);
  EXPECT_NEAR(figure(run, "split:25", "filler", "per_s") /
                  figure(run, "alone/filler@mps", "filler", "per_s"),
              0.2, 0.01);
}

TEST_F(VirtualTest, CopiesOnOtherGpusDoNotMeet) {
  options_.baselines = {{"timeslice"}};
  options_.policies = {{"gapfill@timeslice"}};
  const VirtualRun one = run_virtual(options_);
  options_.gpus = options_.copies = 3;
  const VirtualRun three = run_virtual(options_);
  for (const std::string row : {"timeslice", "gapfill"}) {
    EXPECT_NEAR(figure(three, row, "service", "mean") / figure(one, row, "service", "mean"), 1,
                0.1);
    EXPECT_NEAR(figure(three, row, "filler", "per_s") / figure(one, row, "filler", "per_s"), 3,
                0.3);
  }
  options_.gpus = 1;
  const VirtualRun crowded = run_virtual(options_);
  EXPECT_GT(figure(crowded, "timeslice", "service", "mean"),
            1.5 * figure(one, "timeslice", "service", "mean"));
}

TEST_F(VirtualTest, ARecordedCoreDecidesTheSameAgain) {
  options_.trace = folder_;
  run_virtual(options_);
  for (const std::string row : {"priority", "gapfill", "gapfill@mps"}) {
    auto reader = trace::Reader::open(folder_ + "/" + row + ".trace");
    ASSERT_TRUE(reader) << reader.error().message;
    std::unique_ptr<policy::LuaPolicy> policy;
    const bool other_params = row == "gapfill@mps";
    const auto source = [&](const trace::PolicyRecord& r) -> heddle::Result<core::Policy*> {
      policy::ParamValues params;
      for (const auto& [name, value] : r.params.items()) params[name] = value.get<std::string>();
      if (other_params) params["share_pct"] = "10";
      auto loaded = policy::load_policy_file(options_.policy_directory + "/" + r.path, params);
      if (!loaded) return tl::unexpected<Error>(loaded.error());
      policy = std::move(*loaded);
      return policy.get();
    };
    const auto replayed = trace::replay(*reader, source);
    ASSERT_TRUE(replayed) << replayed.error().message;
    EXPECT_TRUE(replayed->exact);
    EXPECT_GT(replayed->decisions, 100u);
    if (other_params) {
      EXPECT_GT(replayed->differing, 0u) << "another share, and nobody noticed";
    } else {
      EXPECT_EQ(replayed->differing, 0u) << replayed->first;
    }
  }
}

// What a trace of both gave, played again as programs, behaves as the programs did. (Time-sliced,
// the kernels of a trace of both last longer, because they are stopped at the end of a slice.)
TEST_F(VirtualTest, PlaysATraceAsTheProgramThatItWas) {
  options_.trace = folder_;
  const VirtualRun first = run_virtual(options_);
  const std::string pair = kPair;
  const std::string sim = "[job.sim]\ntrace = \"gapfill@mps.trace\"\n";
  const size_t second = pair.find("[[job]]", pair.find("[job.sim]"));
  write(pair.substr(0, pair.find("[job.sim]")) + sim +
        pair.substr(second, pair.find("[job.sim]", second) - second) + sim);
  options_.trace.clear();
  const VirtualRun again = run_virtual(options_);
  for (const std::string row : {"timeslice", "gapfill", "oracle"}) {
    EXPECT_NEAR(figure(again, row, "service", "mean") / figure(first, row, "service", "mean"), 1,
                0.1)
        << row;
    EXPECT_NEAR(figure(again, row, "filler", "per_s") / figure(first, row, "filler", "per_s"), 1,
                0.15)
        << row;
  }
}

// With tokens, what was an iteration of the program is one of them.
TEST_F(VirtualTest, ARequestOfATraceHasTokens) {
  options_.trace = folder_;
  const VirtualRun first = run_virtual(options_);
  options_.trace.clear();
  write(
      "baselines = [\"mps\"]\npolicies = []\nrepetitions = 2\nblock_s = 0.4\n[[job]]\n"
      "name = \"service\"\ncommand = [\"a\"]\n[job.sim]\ntokens = 4\n"
      "trace = \"gapfill@mps.trace\"\n");
  const VirtualRun run = run_virtual(options_);
  const Json& service = run.result.at("figures").at("mps").at("jobs").at("service");
  const double token_ms = service.at("tbt_ms").at("mean").at("value");
  EXPECT_EQ(service.at("tbt_ms").at("samples"), 3 * service.at("samples").get<size_t>());
  EXPECT_GT(figure(run, "mps", "service", "mean"), 3 * token_ms);
  EXPECT_GT(token_ms, figure(first, "alone/service@mps", "service", "mean"));
}

// Processors of virtual hosts are slower now and then; what the policy measures of the programs
// above is as noisy, and what it concludes from that must not be.
TEST_F(VirtualTest, BestEffortIsServedSteadilyOnANoisyHost) {
  const std::string traces = HEDDLE_POLICIES "/../profiles/traces/nvidia-h200/";
  write(
      "repetitions = 2\nblock_s = 4\npolicies = [\"gapfill@mps\"]\n"
      "[[job]]\nname = \"H\"\nrole = \"latency\"\ncommand = [\"true\"]\n"
      "[job.sim]\ntrace = \"" +
      traces +
      "keypointrcnn_resnet50_fpn-bs1.trace\"\n"
      "[[job]]\nname = \"L\"\nrole = \"batch\"\narrivals = \"open 5\"\ncommand = [\"true\"]\n"
      "[job.sim]\ntrace = \"" +
      traces + "fcn_resnet50-bs8.trace\"\n");
  const double quiet_ms = figure(run_virtual(options_), "alone/H", "H", "mean");
  options_.host_noise = 0.5;
  const VirtualRun run = run_virtual(options_);
  EXPECT_GT(figure(run, "alone/H", "H", "mean"), 1.05 * quiet_ms);
  EXPECT_LT(figure(run, "gapfill@mps", "L", "cv"), 0.2);
}

// What is shipped of the H200 was recorded alone, and alone it keeps the pace that it had there.
TEST(ShippedTraces, PlayAtTheirOwnPace) {
  size_t count = 0;
  for (const auto& entry :
       fs::directory_iterator(HEDDLE_POLICIES "/../profiles/traces/nvidia-h200")) {
    SCOPED_TRACE(entry.path().filename());
    ++count;
    auto reader = trace::Reader::open(entry.path());
    ASSERT_TRUE(reader) << reader.error().message;
    const auto timeline = trace::read_timeline(*reader);
    ASSERT_TRUE(timeline) << timeline.error().message;
    const auto script = sim::script_of(*timeline, reader->name(), "");
    ASSERT_TRUE(script) << script.error().message;
    const trace::ClientTrack& recorded = timeline->clients.at(0);
    sim::TimeNs from = 0, to = 0;  // between synchronizing calls: launches run ahead of the GPU
    for (const trace::SyncTrack& sync : recorded.syncs) {
      if (from == 0) from = sync.returned;
      to = std::max(to, sync.returned);
    }
    const auto between = std::count_if(
        recorded.launches.begin(), recorded.launches.end(),
        [&](const trace::LaunchTrack& l) { return l.called >= from && l.called < to; });
    constexpr sim::TimeNs kSecond = 1'000'000'000;
    sim::VirtualMachine machine({}, {}, {}, false);
    const size_t client = machine.add_client({});
    const auto program = make_traced(*script, 0, Arrivals({}, {}, 1), 0, kSecond, {0, 1}, 1);
    program->load(machine, client);
    machine.run(client, 0, *program);
    machine.run_until(kSecond);
    const double real_per_s = static_cast<double>(between) * 1e9 / static_cast<double>(to - from);
    EXPECT_NEAR(static_cast<double>(machine.stats(client).launches) / real_per_s, 1, 0.2);
  }
  EXPECT_GE(count, 8u);
}

// A program by itself, by hand: a launch is on the GPU 2.84 us after its submission or 1.5 us after
// the one before it, and each synchronizing call waits for it.
TEST_F(VirtualTest, SynchronizesAsOftenAsToldInAnIteration) {
  for (const auto& [syncs, us] :
       {std::pair{1, 2.84 + 4 * 100 + 3 * 1.5}, std::pair{2, 2 * (2.84 + 2 * 100 + 1.5)},
        std::pair{4, 4 * (2.84 + 100)}}) {
    write(
        "repetitions = 1\nblock_s = 0.1\npolicies = []\nbaselines = [\"mps\"]\n[[job]]\n"
        "name = \"a\"\n[job.sim]\nkernels = 4\nkernel_us = 100\nblock_us = 10\nsyncs = " +
        std::to_string(syncs) + "\n");
    EXPECT_NEAR(figure(run_virtual(options_), "mps", "a", "mean"), us / 1e3, 0.001) << syncs;
  }
}

// A quarter of the threads: kernels of one wave take four, and longer while the service, which has
// room beside them, is on the same SMs; that is less than a third of the time, at 0.36 of the
// speed.
TEST_F(VirtualTest, ThreadPercentagesLimitARowsJobs) {
  options_.policies = std::vector<std::string>();
  options_.baselines = {{"mps", "mps:25"}};
  const VirtualRun run = run_virtual(options_);
  const double rate = figure(run, "mps:25", "filler", "per_s_over_alone");
  EXPECT_LT(rate, 0.25);
  EXPECT_GT(rate, 0.25 * (1 - 0.64 / 3));
  EXPECT_LT(figure(run, "mps:25", "service", "mean"), 0.9 * figure(run, "mps", "service", "mean"));
}

std::string problem_of(const VirtualOptions& options) {
  try {
    run_virtual(options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST_F(VirtualTest, ARowHasTheConfigurationThatItNames) {
  std::string pair = kPair;
  const std::string policies =
      "policies = [\"exclusive@mps\", \"exclusive:gpu.starvation_ms=5@mps\"]";
  write(pair.replace(pair.find("policies"),
                     std::string("policies = [\"priority\", \"gapfill\"]").size(), policies));
  const Json figures = run_virtual(options_).result["figures"];
  const auto rate = [&](const std::string& row) {
    return figures[row]["jobs"]["filler"]["per_s"]["value"].get<double>();
  };
  EXPECT_EQ(rate("exclusive@mps"), 0) << "the service is never idle for longer than its pauses";
  EXPECT_GT(rate("exclusive:gpu.starvation_ms=5@mps"), 1);
  options_.policies = {"exclusive:gpu.starvation_ms=0@mps"};
  EXPECT_NE(problem_of(options_).find("gpu.starvation_ms must be"), std::string::npos)
      << problem_of(options_);
}

// What others may do beside the service depends on what its rule promises.
TEST_F(VirtualTest, APromiseHoldsBestEffortBack) {
  options_.policies = {"combined@mps"};
  options_.baselines = std::vector<std::string>();
  const VirtualRun free = run_virtual(options_);
  std::string pair = kPair;
  write(pair.insert(pair.find("[job.sim]"), "slowdown_max = 1.1\n"));
  const VirtualRun promised = run_virtual(options_);
  const auto slowdown = [](const VirtualRun& run) {
    return figure(run, "combined@mps", "service", "mean_over_alone");
  };
  EXPECT_GT(slowdown(free), 1.2);
  EXPECT_LE(slowdown(promised), 1.1);
  EXPECT_LT(figure(promised, "combined@mps", "filler", "per_s"),
            figure(free, "combined@mps", "filler", "per_s"));
}

// Four requests of the service at once, each 3 kernels of 0.85 ms, ten times a second: the second
// waits for the first, and so on.
TEST_F(VirtualTest, RequestsOfABurstWaitForEachOther) {
  std::string pair = kPair;
  write(pair.insert(pair.find("[job.sim]"), "arrivals = \"burst 4 10\"\n"));
  const Json service = run_virtual(options_).result["figures"]["alone/service"]["jobs"]["service"];
  EXPECT_EQ(service["samples"], 2 * 0.5 * 10 * 4);
  // 6.3 ms: its pause after each.
  EXPECT_NEAR(service["jct_ms"]["mean"]["value"].get<double>(), (10 * 2.55 + 6 * 6.3) / 4, 1);
}

TEST_F(VirtualTest, TellsWhatAJobAloneLeavesIdleAndJudgesExpectations) {
  write("expect = [\"gapfill@mps: filler per_s_over_alone >= 0.1 x idle service (us)\"]\n" +
        std::string(kPair));
  options_.block_s = 3;
  const Json result = run_virtual(options_).result;
  const double idle = result["idle_fraction"]["service"]["traced"];
  EXPECT_NEAR(idle, 1 - 2.55 / (2.55 + 6.3), 0.05);
  EXPECT_EQ(result["expect"][0]["met"], true);
  EXPECT_NEAR(result["expect"][0]["bound"].get<double>(), 0.1 * idle, 1e-9);
}

TEST_F(VirtualTest, SaysWhatIsMissingInOneLine) {
  std::string pair = kPair;
  write(pair.substr(0, pair.rfind("[job.sim]")));
  EXPECT_NE(problem_of(options_).find("s.toml:15: job 'filler' has no [job.sim]"),
            std::string::npos)
      << problem_of(options_);
  write(pair.substr(0, pair.rfind("[job.sim]")) + "[job.sim]\ntrace = \"cut.trace\"\n");
  EXPECT_NE(problem_of(options_).find("a trace that is not there: cut.trace"), std::string::npos)
      << problem_of(options_);
  const std::string bytes = trace::Encoder::header({});
  std::ofstream(folder_ + "/cut.trace", std::ios::binary) << bytes;
  EXPECT_NE(problem_of(options_).find("cut.trace: byte " + std::to_string(bytes.size()) +
                                      ": truncated after 0 records"),
            std::string::npos)
      << problem_of(options_);
  write(kPair);
  options_.policies = {{"gapfil"}};
  EXPECT_NE(problem_of(options_).find("gapfil"), std::string::npos) << problem_of(options_);
}

// A result against itself agrees; against one in which a policy is twice as slow it does not.
TEST_F(VirtualTest, ComparesAResultWithASimulation) {
  const Json run = run_virtual(options_).result;
  const auto scenario = scenario::load(options_.scenario);
  ASSERT_TRUE(scenario) << scenario.error().message;
  const RowFigures truth = figures_of(run, *scenario, "real.json");
  EXPECT_THROW(figures_of(Json::object(), *scenario, "x.json"), std::runtime_error);
  const auto mean_only = [&](const RowFigures& simulated) {
    std::vector<Comparison> all = compare(truth, simulated);
    std::erase_if(all, [](const Comparison& c) { return c.metric != "service mean ms"; });
    return all;
  };
  const std::vector<Comparison> same = mean_only(truth);
  EXPECT_EQ(same.size(), 11u);  // the rows in which the service takes part
  for (const Comparison& c : same) EXPECT_EQ(c.error(), 0) << c.row;
  EXPECT_EQ(order_of(same, 0.05).alike, order_of(same, 0.05).pairs);
  EXPECT_GT(order_of(same, 0.05).pairs, 5u);
  EXPECT_EQ(order_of(same, 0.05).tau(), 1);
  EXPECT_EQ(std::count_if(same.begin(), same.end(), is_input), 2);

  RowFigures slower = truth;
  slower["gapfill"]["service mean ms"] *= 4;
  const std::vector<Comparison> other = mean_only(slower);
  EXPECT_EQ(std::count_if(other.begin(), other.end(),
                          [](const Comparison& c) { return std::abs(c.error() - 3) < 1e-9; }),
            1);
  EXPECT_LT(order_of(other, 0.05).alike, order_of(other, 0.05).pairs);
  EXPECT_NE(order_of(other, 0.05).first_other.find("gapfill before"), std::string::npos);
}

}  // namespace
}  // namespace heddle::bench
