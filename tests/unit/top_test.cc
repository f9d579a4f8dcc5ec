// heddle top: what is said of two samples, and that it fits a terminal.
#include "daemon/cli/look/look.h"

#include <gtest/gtest.h>

#include <sstream>

namespace heddle::cli {
namespace {

using nlohmann::json;

json client(int id, int priority, const std::string& label, int launches, double gpu_us,
            std::vector<int> waits) {
  return {{"id", id},
          {"pid", 1000 + id},
          {"label", label},
          {"exe", "/usr/bin/python3"},
          {"priority", priority},
          {"sm_set", 0},
          {"sm_count", 0},
          {"managed", true},
          {"counters", {{"launches", launches}}},
          {"devices",
           {{{"device", 0},
             {"active", true},
             {"allowed", priority == 0 ? json("lease") : json("gate")},
             {"queued", 0},
             {"launches", launches},
             {"gpu_us", gpu_us},
             {"memory_bytes", 1.25 * (1 << 30)},
             {"memory_limit_bytes", priority == 0 ? 20.0 * (1 << 30) : 0.0},
             {"memory_group_bytes", 2.5 * (1 << 30)},
             {"outstanding_us", priority == 0 ? 5.0 : 0.0},
             {"waits", {{"counts", waits}}}}}}};
}

TopSample sample(double at_s, std::vector<json> clients, int granted) {
  json status{
      {"mode", "mps"},
      {"bypass", false},
      {"policy", {{"name", "gapfill"}, {"hash", "abc"}, {"faults", 2}, {"error", ""}}},
      {"devices",
       {{{"index", 0},
         {"sm_total", 132},
         {"waiting", 1},
         {"stats",
          {{"granted", granted}, {"by_builtin", 0}, {"policy_faults", 2}, {"starved", 0}}}}}}};
  return {status, {{"clients", clients}}, at_s};
}

TEST(Top, RatesAndSharesAreOfWhatHappenedBetween) {
  const TopSample before =
      sample(10, {client(1, 0, "api", 100, 5e6, {}), client(2, 9, "train", 50, 1e6, {9, 9})}, 7);
  const TopSample after = sample(
      12, {client(1, 0, "api", 300, 6.2e6, {}), client(2, 9, "train", 90, 1.4e6, {9, 9, 0, 40})},
      47);
  const json top = top_between(before, after);
  const json &api = top["clients"][0], &train = top["clients"][1];
  EXPECT_DOUBLE_EQ(api["gpu_pct"], 60);
  EXPECT_DOUBLE_EQ(train["gpu_pct"], 20);
  EXPECT_DOUBLE_EQ(api["share_pct"], 75);
  EXPECT_DOUBLE_EQ(api["launches_per_s"], 100);
  EXPECT_DOUBLE_EQ(train["grants_per_s"], 20);
  EXPECT_GT(train["wait_p50_us"], 4) << "what was counted before is not of this interval";
  EXPECT_LE(train["wait_p99_us"], 8);
  EXPECT_EQ(api["wait_p99_us"], 0);
  EXPECT_TRUE(api["runs_now"]);
  EXPECT_FALSE(train["runs_now"]);
  EXPECT_EQ(api["memory"], "2.5/20") << "of its group's limit";
  EXPECT_EQ(train["memory"], "1.25") << "no limit holds it";
  EXPECT_DOUBLE_EQ(top["gpus"][0]["gpu_pct"], 80);
  EXPECT_DOUBLE_EQ(top["gpus"][0]["grants_per_s"], 20);
}

TEST(Top, WaitsFitTheirColumn) {
  std::vector<int> waits(18);
  waits[7] = 99;   // 64 to 128 us
  waits[17] = 99;  // 66 to 131 ms
  const json top = top_between(sample(0, {client(2, 9, "train", 0, 0, {})}, 0),
                               sample(1, {client(2, 9, "train", 0, 0, waits)}, 198));
  const std::string text = top_text(top, "gpu", 24);
  EXPECT_EQ(text.find('~'), text.npos) << text;
}

TEST(Top, TimeSlicedItShowsForHowLongClientsStoodInPlaceOfSmSets) {
  json before = client(2, 9, "train", 0, 0, {}), after = before;
  before["devices"][0].update({{"stops", 10}, {"stopped_us", 1e6}});
  after["devices"][0].update({{"stops", 40}, {"stopped_us", 1.5e6}});
  const json other = client(1, 0, "api", 0, 0, {});
  TopSample first = sample(0, {before, other}, 0), second = sample(2, {after, other}, 0);
  first.status["mode"] = second.status["mode"] = "timeslice";
  const json top = top_between(first, second);
  const auto& clients = top["clients"];
  EXPECT_DOUBLE_EQ(clients[1]["stood_pct"], 25);
  EXPECT_DOUBLE_EQ(clients[1]["stops_per_s"], 15);
  const std::string text = top_text(top, "priority", 24);
  EXPECT_NE(text.find("    MAY STOOD   MEM GiB\n"), text.npos) << text;
  EXPECT_NE(text.find("  lease     -    2.5/20\n"), text.npos) << text;
  EXPECT_NE(text.find("   gate   25%      1.25\n"), text.npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Top, ANewClientHasNoNegativeRates) {
  const TopSample before = sample(10, {client(1, 0, "api", 100, 5e6, {5})}, 7);
  const TopSample after =
      sample(11, {client(1, 0, "api", 10, 1e6, {}), client(2, 9, "new", 5, 1e5, {})}, 0);
  const json top = top_between(before, after);
  EXPECT_EQ(top["clients"][0]["launches_per_s"], 0);
  EXPECT_EQ(top["clients"][0]["gpu_pct"], 0);
  EXPECT_EQ(top["clients"][1]["launches_per_s"], 5);
  EXPECT_EQ(top["gpus"][0]["grants_per_s"], 0);
}

TEST(Top, NamesWhosePromiseIsBrokenNow) {
  json kept = client(1, 0, "api", 1, 1, {}), broken = client(2, 0, std::string(90, 'x'), 1, 1, {});
  kept["devices"][0]["promise"] = {
      {"slowdown_max", 1.1}, {"slowdown", 1.0}, {"blocks", 9}, {"broken", 2}, {"broken_by", ""}};
  broken["devices"][0]["promise"] = {
      {"slowdown_max", 1.1}, {"slowdown", 1.2467}, {"blocks", 6}, {"broken", 6}, {"broken_by", ""}};
  const TopSample now = sample(1, {kept, broken}, 0);
  const json top = top_between(now, now);
  EXPECT_EQ(top["clients"][1]["promise"]["broken"], 6);
  const std::string text = top_text(top, "gpu", 24);
  EXPECT_NE(text.find("\npromise 1.10: now 1.25, 6 of 6 blocks broken: pid 1002 xxx"), text.npos)
      << text;
  EXPECT_EQ(text.find("pid 1001"), text.npos) << "it is kept now";
  json tail = kept["devices"][0]["promise"];
  tail["slowdown"] = 1.12;
  tail["broken_now"] = false;
  kept["devices"][0]["promise_p99"] = tail;
  const auto first = [&] {
    const TopSample sampled = sample(1, {kept}, 0);
    return top_text(top_between(sampled, sampled), "gpu", 24);
  };
  EXPECT_EQ(first().find("promise"), text.npos) << "by chance alone, as heddled says";
  kept["devices"][0]["promise_p99"]["broken_now"] = true;
  EXPECT_NE(first().find("\npromise p99 1.10: now 1.12, 2 of 9 blocks broken: pid 1001"),
            text.npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Top, SortsAndFitsEightyColumnsAndTheLinesThereAre) {
  std::vector<json> many;
  for (int i = 1; i <= 40; ++i) {
    many.push_back(client(i, i % 10, std::string(30, 'x') + "\x1b[2J", 1'000'000'000, 1e6 * i, {}));
  }
  std::vector<json> none;
  const json top = top_between(sample(0, none, 0), sample(1, many, 1'000'000'000));
  const std::string text = top_text(top, "gpu", 24);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_NE(text.find("(20 more)"), text.npos) << text;
  EXPECT_EQ(text.find('\x1b'), text.npos) << "labels obey nobody's terminal";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_LT(text.find("1040 "), text.find("1039 ")) << text;
  const std::string by_priority = top_text(top, "priority", 100);
  EXPECT_LT(by_priority.find("1010 "), by_priority.find("1001 ")) << by_priority;
}

TEST(Top, HelpSaysWhatEachColumnMeans) {
  std::istringstream lines(top_help());
  size_t columns = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    if (!line.starts_with("  ")) continue;
    EXPECT_GT(line.size(), 20u) << line;
    ++columns;
  }
  EXPECT_EQ(columns, 14u);
}

}  // namespace
}  // namespace heddle::cli
