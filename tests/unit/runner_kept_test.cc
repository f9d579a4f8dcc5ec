// What the repository keeps of a result: times packed, and tables made of those again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <random>

#include "bench/runner/kept.h"
#include "bench/runner/pack.h"
#include "bench/runner/result.h"
#include "bench/runner/table.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

// Each test is a process of its own, and several run at once.
std::string own(const std::string& name) {
  return testing::TempDir() + std::to_string(getpid()) + name;
}

using Times = std::vector<uint32_t>;

Times drawn(uint64_t seed, size_t count, double median_us, double sigma) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> us(std::log(median_us), sigma);
  Times out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<uint32_t>(us(random)));
  return out;
}

TEST(Pack, GivesBackEveryTime) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<Times> all = {{}, {0}, {0, 0, 7}, {UINT32_MAX, 0, UINT32_MAX, 1}, Times(1000, 5)};
  for (const double sigma : {0.001, 0.1, 2.0}) all.push_back(drawn(seed, 3000, 5000, sigma));
  Times tails = drawn(seed, 3000, 300, 0.02);
  for (size_t i = 0; i < tails.size(); i += 50) tails[i] *= 400;
  all.push_back(tails);
  for (const Times& times : all) EXPECT_EQ(unpack(pack(times)), times);
}

TEST(Pack, TakesOneToTwoCharactersARequest) {
  const auto each = [](const Times& times) {
    return static_cast<double>(pack(times).size()) / static_cast<double>(times.size());
  };
  EXPECT_LT(each(drawn(1, 2000, 3000, 0.005)), 1.2) << "a graph alone: 15 us either way";
  EXPECT_LT(each(drawn(1, 2000, 3200, 0.05)), 1.7) << "beside training";
  EXPECT_LT(each(drawn(1, 2000, 600, 0.3)), 1.8);
  EXPECT_LT(each(drawn(1, 2000, 4500, 0.25)), 2.1) << "they wait for each other";
}

std::string refused(const std::string& text) {
  try {
    unpack(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Pack, SaysWhereATextIsWrong) {
  const std::string text = pack(drawn(1, 100, 3000, 0.05));
  EXPECT_EQ(refused(text), "");
  EXPECT_EQ(refused(text.substr(0, 40)), "character 41 ends too early");
  EXPECT_EQ(refused(text.substr(0, 20) + "*" + text.substr(21)),
            "character 21 is none of base64's");
  EXPECT_NE(refused(text + "A").find(" is more than its 100 times take"), std::string::npos);
  std::string other = text;
  other[30] = other[30] == 'A' ? 'B' : 'A';
  EXPECT_NE(refused(other), "");
}

// Two repetitions of six seconds under a policy, alone and beside each other.
Json mixed() {
  const auto s = pair(R"toml(about = "Two."
policies = ["fifo@mps", "fifo@mps/hp"]
baselines = ["mps+priority", "mps:25"]
expect = ["fifo@mps: hp p99_over_alone <= 1.1 (us)"])toml");
  const auto rows = plan(s).rows;
  Result result = Result::create("", s, rows, true, "simulated");
  for (uint32_t rep = 0; rep < 2; ++rep) {
    for (uint32_t i = 0; i < rows.size(); ++i) {
      Block block{rep, i, rows[i].name, {}, 0.1, {{"granted", 7}}};
      block.counted_s = 7;
      block.energy_j = 500;
      block.said = {{"verdict", "x"}};
      for (const Variant& v : rows[i].jobs) {
        const Times us = drawn(rep * 10 + i, 2000, v.job == 0 ? 2000 : 4000, 0.1 + 0.02 * i);
        block.jobs[s.jobs[v.job].name] = {us, 6, rep, us, {}, us};
      }
      result.add(block);
    }
    result.end_repetition();
  }
  Json& head = result.head();
  head["block_s"] = 6.0;
  head["sessions"].push_back({{"date", "2026-01-02T03:04:05Z"},
                              {"commit", "c"},
                              {"driver", "-"},
                              {"command", "run"},
                              {"host", {{"cpus", 2}}}});
  head["profile"] = {{"hp", {{"wall_s", 4}, {"kernel_s", 2}, {"iterations", 1000}}}};
  result.save_as(own("measured.json"));
  return read_json(result.path());
}

TEST(Kept, MakesTheTablesOfTheResult) {
  const Json result = mixed();
  const std::string from = own("measured.json");
  const std::string to = own("measured.raw");
  ASSERT_EQ(keep(from, to), 0);
  const Json whole = figured(result, from), small = figured(read_json(to), to);
  EXPECT_EQ(small["figures"], whole["figures"]);
  EXPECT_EQ(small["ratios"], whole["ratios"]);
  EXPECT_EQ(small["expect"], whole["expect"]);
  EXPECT_EQ(markdown(small, true), markdown(whole, true));
  EXPECT_EQ(brief({small}), brief({whole}));
  const Json& hp = small["figures"]["fifo@mps"]["jobs"]["hp"];
  EXPECT_EQ(hp["mean_over_alone"]["n"], 12);
  EXPECT_TRUE(hp.contains("mean_over_self")) << "the process of fifo@mps/hp";
  EXPECT_FALSE(small["raw"][0].contains("said"));
  EXPECT_EQ(kept(small), kept(result)) << "it may be kept again";
}

TEST(Kept, ABadFileIsNamedWithThePlaceInIt) {
  Json small = kept(mixed());
  std::string text = small["raw"][3]["jobs"]["hp"]["us"];
  small["raw"][3]["jobs"]["hp"]["us"] = text.substr(0, text.size() - 1);
  try {
    figured(small, "x.raw");
    FAIL();
  } catch (const std::runtime_error& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.rfind("x.raw: block of " + small["raw"][3]["row"].get<std::string>() +
                             " in repetition 0, job hp, us: character ",
                         0),
              0U)
        << said;
  }
  EXPECT_THROW(keep(own("nothing.json"), "y.raw"), std::runtime_error);
}

TEST(Kept, ResultsOfEarlierReleasesHaveTheFiguresThatTheyCameWith) {
  const Json old = {{"format", 1}, {"raw", Json::array()}, {"figures", {{"mps", 1}}}};
  EXPECT_EQ(figured(old, "old.json"), old);
}

}  // namespace
}  // namespace heddle::bench
