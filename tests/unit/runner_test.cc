// bench/runner without processes: rows, statistics, tables.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "bench/runner/expect.h"
#include "bench/runner/figures.h"
#include "bench/runner/result.h"
#include "bench/runner/run.h"
#include "bench/runner/setting.h"
#include "bench/runner/table.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

TEST(Outputs, AreComparedWithTheirLike) {
  const auto digest = [](bool managed, int thread_pct, const char* sha) {
    return Json{{"job", "L"}, {"managed", managed}, {"thread_pct", thread_pct}, {"sha256", sha}};
  };
  Json digests = {digest(false, 100, "a"), digest(false, 25, "b"), digest(true, 100, "a"),
                  digest(false, 100, "a"), digest(false, 25, "b")};
  EXPECT_EQ(outputs(digests), (Json{{"control_equal", true}, {"heddle_equal", true}}));
  digests.push_back(digest(false, 25, "a"));
  EXPECT_EQ(outputs(digests)["control_equal"], false);
}

TEST(Load, RowsWithAPolicyTakeAsMuchLongerAsTheySettle) {
  scenario::Scenario scenario;
  Row bare, managed;
  managed.policy = "auto";
  const double each_s = blocks_s(scenario, {bare}) / scenario.repetitions;
  scenario.settle_s = 6;
  EXPECT_NEAR(blocks_s(scenario, {bare}), scenario.repetitions * each_s, 1e-9);
  EXPECT_NEAR(blocks_s(scenario, {managed}),
              scenario.repetitions * (2 * each_s - scenario.block_s + scenario.settle_s), 1e-9);
}

TEST(Load, TheCommandLineOverridesTheFile) {
  const std::string file = testing::TempDir() + "load.toml";
  std::ofstream(file) << "repetitions = 9\nblock_s = 3\nseed = 1\n[[job]]\nname = \"a\"\n"
                         "command = [\"x\"]\n";
  ScenarioOptions options;
  options.scenario = file;
  EXPECT_EQ(load(options).repetitions, 9U);
  EXPECT_EQ(load(options).policies.size(), 2U) << "the default ones";
  options.repetitions = 2;
  options.block_s = 0.5;
  options.seed = 7;
  options.baselines = {"mps:25"};
  options.policies = {"gapfill:share_pct=60", "floor_pct=3", "fifo@mps"};  // as cut at commas
  const scenario::Scenario s = load(options);
  EXPECT_EQ(s.repetitions, 2U);
  EXPECT_EQ(s.block_s, 0.5);
  EXPECT_EQ(s.seed, 7U);
  ASSERT_EQ(s.baselines.size(), 1U);
  EXPECT_EQ(s.baselines[0].text, "mps:25");
  ASSERT_EQ(s.policies.size(), 2U);
  EXPECT_EQ(s.policies[0].params.at("floor_pct"), "3");
  options.baselines = {"mps:200"};
  try {
    load(options);
    FAIL() << "percentages end at 100";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("--baselines: 'mps:200'", 0), 0U) << error.what();
  }
}

TEST(Stops, AreNotTakenForOffWhereTheGpuCouldNotBeAsked) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  auto rows = plan(s).rows;
  EXPECT_THROW(set_stops(rows, "not asked", "MPS is on the GPU"), std::runtime_error);
  set_stops(rows, "yes", "");
  for (const Row& row : rows) {
    const bool on = row.config.find("gpu.stops = \"on\"") != std::string::npos;
    EXPECT_EQ(on, !row.policy.empty()) << row.name;
  }
  EXPECT_NO_THROW(set_stops(rows, "not asked", "MPS is on the GPU")) << "they say it themselves";
}

TEST(Figures, RatiosAreTakenWithinARepetition) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  const auto rows = plan(s).rows;
  const Json out = summarize(s, rows, drifting());
  const Json& fifo = out["figures"]["fifo"];
  EXPECT_EQ(fifo["jobs"]["hp"]["mean_over_alone"]["value"], 1.5);
  EXPECT_EQ(fifo["jobs"]["hp"]["mean_over_alone"]["lo"], 1.5);
  EXPECT_EQ(fifo["jobs"]["be"]["per_s_over_alone"]["value"], 0.25);
  EXPECT_EQ(fifo["stp"]["value"], std::round((1 / 1.5 + 0.25) * 1e4) / 1e4);
  EXPECT_EQ(fifo["antt"]["value"], (1.5 + 4) / 2);
  EXPECT_EQ(fifo["makespan_s"]["value"], 4);
  EXPECT_EQ(fifo["throughput_over_alone"]["value"], 1.25) << "hp's rate is that alone";
  EXPECT_EQ(fifo["worst_p95_over_alone"]["value"], 4) << "be's";
  EXPECT_EQ(fifo["daemon_cpu"]["value"], 0.1);
  EXPECT_EQ(fifo["counters"]["asked"], 10);
  EXPECT_EQ(fifo["jobs"]["hp"]["slo_attainment"]["value"], 0.5);
  ASSERT_EQ(out["ratios"].size(), 3U);
  EXPECT_EQ(out["ratios"][0]["over"], "timeslice");
  EXPECT_EQ(out["ratios"][0]["value"], 0.75);
  EXPECT_EQ(out["ratios"][2]["metric"], "per_s");
  EXPECT_EQ(out["ratios"][2]["value"], 0.5);
}

TEST(Figures, APromiseIsKeptInTheRepetitionsWithinItsSlowdown) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  auto blocks = drifting();
  const auto kept = [&] {
    return summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"]["hp"]["promise_kept"];
  };
  EXPECT_TRUE(kept().is_null()) << "nothing is promised";
  s.jobs[0].slowdown_max = 1.6;
  EXPECT_EQ(kept()["value"], 1);
  for (Block& block : blocks) {
    if (block.row == "fifo" && block.repetition == 1) block.jobs["hp"] = constant(3300, 100);
  }
  EXPECT_EQ(kept()["value"], 0.5) << "1.65 x the 2 ms that it takes alone then";
  EXPECT_EQ(kept()["n"], 2);
  for (Block& block : blocks) {
    if (block.row == "fifo") block.jobs["hp"] = Samples{};
  }
  EXPECT_EQ(kept()["value"], 0) << "a job that never ran was not served as promised";
}

TEST(Figures, ARowThatBrokeLeavesTheOthersStanding) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  auto blocks = drifting();
  std::erase_if(blocks, [](const Block& b) { return b.row == "timeslice" || b.repetition == 1; });
  blocks[1].jobs["be"] = Samples{};
  const Json out = summarize(s, plan(s).rows, blocks);
  EXPECT_FALSE(out["figures"].contains("timeslice"));
  EXPECT_TRUE(out["ratios"].empty());
  const Json& fifo = out["figures"]["fifo"];
  EXPECT_EQ(fifo["jobs"]["hp"]["mean_over_alone"]["value"], 1.5);
  EXPECT_FALSE(fifo["jobs"]["be"].contains("per_s_over_alone"));
  EXPECT_FALSE(fifo.contains("stp"));
}

TEST(Figures, AJobThatBeganNothingHasARateOfNone) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  auto blocks = drifting();
  for (Block& block : blocks) {
    if (block.row == "fifo") block.jobs["be"] = Samples{};
  }
  const Json out = summarize(s, plan(s).rows, blocks);
  const Json& starved = out["figures"]["fifo"]["jobs"]["be"];
  EXPECT_EQ(starved["per_s"]["value"], 0);
  EXPECT_EQ(starved["per_s_over_alone"]["value"], 0);
  EXPECT_FALSE(starved.contains("jct_ms"));
  EXPECT_FALSE(starved.contains("mean_over_alone"));
  ASSERT_EQ(out["ratios"].size(), 3U);
  EXPECT_EQ(out["ratios"][2]["value"], 0) << "of the rival's rate";
}

TEST(Figures, AJobThatWasNeverServedMissesItsSloAndIsNamed) {
  auto s = pair("policies = []\nbaselines = [\"timeslice\"]");
  s.jobs[0].slo_ms = 5;
  auto blocks = drifting();
  for (Block& block : blocks) {
    if (block.row == "timeslice") block.jobs["hp"] = Samples{{}, 0, 7};
  }
  Json result = summarize(s, plan(s).rows, blocks);
  const Json& hp = result["figures"]["timeslice"]["jobs"]["hp"];
  EXPECT_EQ(hp["slo_attainment"]["value"], 0);
  EXPECT_EQ(hp["unserved"]["value"], 7);
}

// One block of each row in three repetitions; the GPU takes 100 W alone and 150 W shared.
std::vector<Block> told() {
  std::vector<Block> out;
  for (const uint32_t rep : {0U, 1U, 2U}) {
    Samples hp = constant(2000, 100), be = constant(5000, 50);
    hp.tbt_us = {1000, 1000 + rep};
    Block alone_hp{rep, 0, "alone/hp", {{"hp", hp}}, -1, Json::object()};
    Block alone_be{rep, 1, "alone/be", {{"be", be}}, -1, Json::object()};
    alone_hp.energy_j = alone_be.energy_j = 100;
    hp.us = std::vector<uint32_t>(80, 2500);
    hp.tbt_us = {2000, 2000 + 2 * rep};
    be.us.resize(25);
    Block fifo{rep, 2, "fifo", {{"hp", hp}, {"be", be}}, 0.1, {{"granted", 200}}};
    fifo.counters["hooks_us"] = 20'000;
    if (rep == 1) fifo.counters["policy_faults"] = 3;
    fifo.counted_s = 2;
    fifo.shim_cpu = {{"be", 0.01 * (1 + rep)}};
    fifo.energy_j = 150;
    for (const Block& block : {alone_hp, alone_be, fifo}) out.push_back(block);
  }
  return out;
}

TEST(Figures, TokensEnergyShimDecisionsAndFaultsAreAmongThem) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  const Json out = summarize(s, plan(s).rows, told());
  const Json& alone = out["figures"]["alone/hp"];
  EXPECT_EQ(alone["jobs"]["hp"]["tbt_ms"]["p50"]["value"], 1);
  EXPECT_EQ(alone["jobs"]["hp"]["tbt_ms"]["p50"]["n"], 3) << "slices";
  EXPECT_FALSE(out["figures"]["alone/be"]["jobs"]["be"].contains("tbt_ms"));
  EXPECT_EQ(alone["power_w"]["value"], 100);
  EXPECT_EQ(alone["energy_per_iteration_j"]["value"], 1);
  EXPECT_FALSE(alone.contains("energy_over_alone"));
  EXPECT_FALSE(alone.contains("faults")) << "no policy, no faults";

  const Json& fifo = out["figures"]["fifo"];
  EXPECT_EQ(fifo["jobs"]["hp"]["tbt_ms"]["p99"]["value"], 2.004);
  EXPECT_EQ(fifo["jobs"]["hp"]["tbt_p99_over_alone"]["value"], 2);
  EXPECT_FALSE(fifo["jobs"]["be"].contains("tbt_p99_over_alone"));
  EXPECT_EQ(fifo["jobs"]["be"]["shim_cpu"]["value"], 0.02);
  EXPECT_EQ(fifo["jobs"]["be"]["shim_cpu"]["n"], 3);
  EXPECT_EQ(fifo["decisions_per_s"]["value"], 100);
  EXPECT_EQ(fifo["in_hooks"]["value"], 0.01) << "20 ms of 2 s";
  EXPECT_EQ(fifo["faults"]["value"], 1) << "the mean: a median would hide rare ones";
  EXPECT_EQ(fifo["power_w"]["value"], 150);
  EXPECT_EQ(fifo["energy_per_iteration_j"]["value"], std::round(150.0 / 105 * 1e4) / 1e4);
  // What it did costs 0.8 of 100 J and 0.5 of 100 J alone.
  EXPECT_EQ(fifo["energy_over_alone"]["value"], std::round(150 / 130.0 * 1e4) / 1e4);
}

TEST(Figures, CostIsOfIterationsOverTheirPartnersPastHeddle) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  auto blocks = told();
  Samples paired = constant(1010, 4);
  paired.bypassed_us = {1000, 1000, 1000, 1040};
  blocks[2].jobs["hp"] = paired;
  const Json out = summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"];
  EXPECT_EQ(out["hp"]["cost"]["typical"]["value"], 0.01);
  EXPECT_EQ(out["hp"]["cost"]["mean"]["value"], 0) << "one was cheaper by as much";
  EXPECT_EQ(out["hp"]["cost"]["mean"]["n"], 1);
  EXPECT_LT(out["hp"]["cost"]["mean"]["lo"], 0) << "less than nothing may be";
  EXPECT_FALSE(out["be"].contains("cost"));
  EXPECT_EQ(to_json(block_from(to_json(blocks[2]))), to_json(blocks[2]));
}

TEST(Figures, IdleFractionSetsTheProfilersKernelTimeAgainstBareBlocks) {
  const auto s = pair("");
  const Json profiles = {{"hp", {{"wall_s", 4}, {"kernel_s", 2}, {"iterations", 1000}}}};
  const Json out = idle_fractions(s, told(), profiles);
  EXPECT_EQ(out["hp"]["traced"], 0.5);
  EXPECT_EQ(out["hp"]["untraced"]["value"], 0.8) << "2 ms an iteration, 100 of them a second";
  EXPECT_EQ(out["hp"]["untraced"]["n"], 3);
  EXPECT_FALSE(out.contains("be"));
  auto open = s;
  open.jobs[0].arrivals.kind = scenario::ArrivalKind::kOpen;
  const Json idle = idle_fractions(open, told(), profiles)["hp"];
  EXPECT_FALSE(idle.contains("traced")) << "the profiler's run is a closed loop";
  EXPECT_EQ(idle_of(idle), 0.8);
}

// fifo: hp 1.5 times alone, be a quarter; timeslice: twice, and half. A split keeps hp at 1.4.
TEST(Expect, IsJudgedByFiguresRatiosAndIdleTime) {
  auto s = pair(
      "policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\", \"split:75/25\"]\nexpect = [\n"
      "\"fifo: hp mean_over_alone <= 1.6 (a)\", \"fifo: hp mean_over_alone <= 1.4 (b)\",\n"
      "\"fifo: be per_s_over_alone >= 0.5 x idle hp (c)\", \"fifo: hp mean / timeslice <= 0.8 "
      "(d)\",\n"
      "\"fifo: be per_s / static >= 1 (e)\", \"fifo: counters odd <= 0 (f)\",\n"
      "\"gone: hp cv <= 1 (g)\", \"fifo: hp speed <= 1 (h)\", \"timeslice: be per_s / static >= 1 "
      "(i)\",\n"
      "\"fifo: hp cv >= 1 x idle be (j)\"]");
  s.block_s = 3;
  const auto rows = plan(s).rows;
  auto blocks = drifting();
  for (uint32_t r = 0; r < 2; ++r) {
    Block split{r, 9, "split:75/25", {}, -1, Json::object()};
    Block alone_hp{r, 9, "alone/hp@mps", {{"hp", constant(1000, 100)}}, -1, Json::object()};
    Block alone_be{r, 9, "alone/be@mps", {{"be", constant(10, 100)}}, -1, Json::object()};
    split.jobs = {{"hp", constant(1900, 100)}, {"be", constant(10, 30)}};
    for (const Block& block : {split, alone_hp, alone_be}) blocks.push_back(block);
  }
  Json figures = summarize(s, rows, blocks)["figures"];
  figures["fifo"]["counters"] = {{"asked", 1}};
  const Json idle = {{"hp", {{"traced", 0.6}}}};
  const Json out = judge(s, rows, blocks, figures, idle);
  const auto by = [&](const std::string& source) -> const Json& {
    for (const Json& one : out) {
      if (one["source"] == source) return one;
    }
    return out;
  };
  EXPECT_EQ(by("a")["met"], true);
  EXPECT_EQ(by("a")["value"], 1.5);
  EXPECT_EQ(by("b")["met"], false);
  EXPECT_DOUBLE_EQ(by("c")["bound"], 0.3);
  EXPECT_EQ(by("c")["met"], false) << "a quarter";
  EXPECT_EQ(by("d")["met"], true) << "three quarters";
  EXPECT_LE(by("d")["lo"], by("d")["value"]);
  EXPECT_EQ(by("e")["met"], true) << "no static setting keeps hp at 1.5";
  EXPECT_FALSE(by("e").contains("value"));
  EXPECT_EQ(by("f")["met"], true) << "a counter that did not grow";
  for (const char* unknown : {"g", "h", "j"}) {
    EXPECT_TRUE(by(unknown)["met"].is_null()) << unknown;
    EXPECT_FALSE(by(unknown)["why"].get<std::string>().empty());
  }
  s.block_s = 1;
  const Json few = judge(s, rows, blocks, summarize(s, rows, blocks)["figures"], idle);
  EXPECT_TRUE(few[0]["met"].is_null());
  EXPECT_EQ(few[0]["why"], "too few slices: 2");
  EXPECT_EQ(by("i")["over"], "split:75/25") << "1.9 times alone is no more than twice";
  EXPECT_EQ(by("i")["met"], true);
}

TEST(Result, BlocksRoundTrip) {
  auto blocks = drifting();
  for (const Block& block : told()) blocks.push_back(block);
  for (const Block& block : blocks) {
    const Json json = to_json(block);
    EXPECT_EQ(to_json(block_from(Json::parse(json.dump()))), json);
  }
}

TEST(Result, RenderingChangesNoValue) {
  const auto s = pair("");
  const Json out = summarize(s, plan(s).rows, drifting());
  EXPECT_EQ(Json::parse(render(out)), out);
}

TEST(Table, HasARowForEachThatWasMeasuredAndSaysThatItIsSimulated) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  s.block_s = 3;
  Json result = Json::parse(R"({"name": "pair", "about": "Two.", "mode": "simulated",
    "gpu": "simulated", "seed": 1, "block_s": 1.0, "repetitions_done": 5, "errors": ["x"],
    "sessions": [{"driver": "-", "date": "2026-01-02T03:04:05Z", "commit": "c", "command": "run"}],
    "jobs": [{"name": "hp", "role": "latency"}, {"name": "be", "role": "batch"}],
    "missing": [{"row": "mps:25", "why": "no"}]})");
  result.update(summarize(s, plan(s).rows, drifting()));
  const std::string text = markdown(result);
  EXPECT_NE(text.find("**pair**: Two.\n"), std::string::npos);
  EXPECT_NE(text.find("| fifo | 2.25 | 3.00 | 3.00 | 3.00 | 0.333 | 1.50 [1.50, 1.50] |"),
            std::string::npos);
  EXPECT_NE(text.find("| `fifo` ÷ `timeslice` | 0.750 [0.750, 0.750] | 0.750 [0.750, 0.750] | "
                      "0.500 [0.500, 0.500] | 6 |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("every figure is simulated"), std::string::npos);
  EXPECT_NE(text.find("1 errors; see the file. mps:25: not available, no."), std::string::npos);
  EXPECT_EQ(text.find("| fifo | hp jct_ms p99 |"), std::string::npos);
  EXPECT_NE(
      markdown(result, true).find("| fifo | hp jct_ms p99 | 3.00 | [0.845, 3.00] | 1.50 | 6 |"),
      std::string::npos)
      << markdown(result, true);
  s.block_s = 2;
  Json four = result;
  four.update(summarize(s, plan(s).rows, drifting()));
  EXPECT_NE(markdown(four).find("| fifo | few | few |"), std::string::npos) << markdown(four);
  EXPECT_NE(markdown(four).find("| `fifo` ÷ `timeslice` | few | few | few | 4 |"),
            std::string::npos);
  EXPECT_NE(brief({four}).find("| pair: hp mean | few | few | – |"), std::string::npos);
  result["figures"]["fifo"]["jobs"]["hp"]["samples"] = 0;
  EXPECT_NE(markdown(result).find("fifo: no iteration of hp ended in a block."), std::string::npos);
  result["mode"] = "real";
  EXPECT_EQ(markdown(result).find("every figure is simulated"), std::string::npos);
}

TEST(Table, BriefHasALineForEachJobOfEachResult) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  s.block_s = 3;
  Json one = Json::parse(R"({"name": "one", "mode": "real", "gpu": "g", "seed": 1, "block_s": 1.0,
    "repetitions_done": 5, "errors": [],
    "sessions": [{"driver": "1", "date": "2026-01-02T03:04:05Z", "commit": "c", "command": "run"}],
    "jobs": [{"name": "hp", "role": "latency"}, {"name": "be", "role": "batch"}]})");
  one.update(summarize(s, plan(s).rows, drifting()));
  Json two = one;
  two["name"] = "two";
  two["figures"].erase("fifo");
  two["figures"]["timeslice"]["jobs"]["hp"]["mean_over_alone"]["hi"] = nullptr;
  one["expect"] = two["expect"] = {{{"expected", "a >= 1 (x)"}, {"source", "x"}, {"met", true}}};
  Json three = two;
  three["name"] = "three";
  three["jobs"][0] = {{"name", "hp"}, {"role", "batch"}};
  const std::string text = brief({one, two, three});
  for (const char* line :
       {"| timeslice | fifo | n |", "| one: hp mean | 2.00 | 1.50 | 6 |",
        "| one: be rate | 0.500 | 0.250 | 6 |", "| two: hp mean | 2.00 | – | 6 |",
        "| three: throughput | 1.50 | – |", "| three: worst p95 | 2.00 | – |",
        "| a >= 1 | 3 of 3 (3 unopposed) | – | x |"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << '\n' << text;
  }
  EXPECT_EQ(text.find("alone/"), std::string::npos);
  one["figures"] = one["expect"] = Json::object();
  EXPECT_EQ(brief({one}).find("No row has a figure yet.\n"), 0u);
  EXPECT_NE(text.find("**two**: g, driver 1; 2026-01-02"), std::string::npos) << text;
}

Json measured(const char* gpu = "g") {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  Json out = {{"benchmark", "scenario"}, {"scenario", s.text}, {"mode", "real"}, {"gpu", gpu}};
  out["jobs"] = {{{"name", "hp"}, {"role", "latency"}}, {{"name", "be"}, {"role", "batch"}}};
  out.update(summarize(s, plan(s).rows, drifting()));
  return out;
}

TEST(Agree, ResultsAgreeWhereTheirIntervalsMeet) {
  const Json first = measured();
  Json second = measured();
  const auto apart = [&] {
    std::vector<std::string> out;
    for (const Agreement& one : agreements(first, second, {"a", "b"})) {
      if (!one.holds()) out.push_back(one.row + ", " + one.figure);
    }
    return out;
  };
  // Mean and p99 of hp and the rate of be, of two rows over alone and of fifo over timeslice.
  EXPECT_EQ(agreements(first, second, {"a", "b"}).size(), 9U);
  EXPECT_TRUE(apart().empty());
  Json& slower = second["figures"]["fifo"]["jobs"]["hp"]["mean_over_alone"];
  slower = {{"value", 1.8}, {"lo", 1.6}, {"hi", 2.0}, {"n", 2}};
  second["ratios"][2]["lo"] = 0.4;  // the same value, less sure
  EXPECT_EQ(apart(), (Names{"fifo, hp mean ÷ alone"}));
  slower["lo"] = 1.5;
  EXPECT_TRUE(apart().empty());
  second["ratios"][0].update(Json{{"lo", 0.8}, {"hi", 0.9}});
  EXPECT_EQ(apart(), (Names{"fifo ÷ timeslice, hp mean"}));
}

TEST(Agree, OnlyResultsOfOneScenarioAndGpuAreCompared) {
  const auto refused = [](const Json& a, const Json& b) -> std::string {
    try {
      agreements(a, b, {"a.json", "b.json"});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  Json other = measured();
  other["scenario"] = "x";
  EXPECT_NE(refused(measured(), other).find("of another scenario than a.json"), std::string::npos);
  EXPECT_NE(refused(measured(), measured("h")).find("validate"), std::string::npos);
  EXPECT_NE(refused(Json::object(), other).find("a.json: has no figures"), std::string::npos);
  other = measured();
  other["figures"] = Json::object();
  other["ratios"] = Json::array();
  EXPECT_NE(refused(measured(), other).find("no row in common"), std::string::npos);
}

}  // namespace
}  // namespace heddle::bench
