// heddle policy list and diff as people read them, and who heddle explain means.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/cli/look/look.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/policy/policy.h"
#include "tests/folder.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

TEST(PolicyList, NamesThePapersApart) {
  const auto one = [](const char* name, bool papers) {
    return json{{"name", name}, {"running", papers}, {"version", "1"}, {"papers", papers}};
  };
  std::ostringstream out;
  print_policies(out, {{"policies", {one("fifo", false), one("fikit", true), one("mmk", true)}}});
  EXPECT_EQ(out.str(),
            "   POLICY   VERSION  PARAMETERS\n"
            "   fifo     1        -\n"
            "   papers:           their rules, and baselines\n"
            "*  fikit    1        -\n"
            "*  mmk      1        -\n");
}

TEST(LineDiff, ShowsWhatChangedWithWhatIsAround) {
  EXPECT_EQ(line_diff("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(line_diff("a\nb\nc\n", "a\nx\nc\n"), "@@ line 1\n a\n-b\n+x\n c\n");
  EXPECT_EQ(line_diff("", "a\n"), "@@ line 1\n+a\n");
  EXPECT_EQ(line_diff("a\n", ""), "@@ line 1\n-a\n");
  std::string before, after;
  for (int i = 1; i <= 30; ++i) {
    before += std::to_string(i) + "\n";
    after += i == 20 ? "twenty\n" : i == 2 ? "" : std::to_string(i) + "\n";
  }
  EXPECT_EQ(line_diff(before, after),
            "@@ line 1\n 1\n-2\n 3\n 4\n 5\n@@ line 17\n 17\n 18\n 19\n-20\n+twenty\n 21\n 22\n "
            "23\n");
  EXPECT_NE(line_diff("a", "a\n"), "") << "the end of the last line is a difference";
}

TEST(PolicyWord, ALuaFileThatIsHereIsAPath) {
  const TestFolder folder;
  const std::filesystem::path before = std::filesystem::current_path(), here = folder.path();
  std::filesystem::current_path(here);
  std::ofstream("mine.lua") << "return policy {}";
  std::filesystem::create_directory("priority");
  EXPECT_EQ(policy_named("mine.lua"), here / "mine.lua");
  EXPECT_EQ(policy_named("./other.lua"), here / "./other.lua");
  EXPECT_EQ(policy_named("other.lua"), "other.lua") << "the daemon says that there is none";
  EXPECT_EQ(policy_named("priority"), "priority");
  EXPECT_EQ(policy_named(""), "");
  std::filesystem::current_path(before);
}

TEST(ExplainClient, IsMeantByItsPidItsIdOrALabelOfItsOwn) {
  const json ps{{"clients",
                 {{{"id", 1}, {"pid", 2}, {"label", "api"}},
                  {{"id", 2}, {"pid", 500}, {"label", "train"}},
                  {{"id", 3}, {"pid", 501}, {"label", "train"}}}}};
  EXPECT_EQ(client_meant(ps, "500"), 2u);
  EXPECT_EQ(client_meant(ps, "3"), 3u);
  EXPECT_EQ(client_meant(ps, "2"), 1u) << "a PID goes first";
  EXPECT_EQ(client_meant(ps, "api"), 1u);
  EXPECT_EQ(client_meant(ps, "train"), 0u) << "two have it";
  EXPECT_EQ(client_meant(ps, "nobody"), 0u);
}

// What `heddle explain` prints of a client, and of what waits.
std::string explained(const json& client, int device, const json& now = json::array()) {
  const json answer{{"devices",
                     {{{"device", device},
                       {"granted", 0},
                       {"waited", 0},
                       {"now", now},
                       {"past", json::array()}}}}};
  std::ostringstream out;
  print_explanation(out, client, answer);
  return out.str();
}

TEST(ExplainClient, HearsOfThePromiseOfTheGpuInQuestion) {
  const json promise{{"slowdown_max", 1.1},
                     {"slowdown", 1.2467},
                     {"blocks", 6},
                     {"broken", 6},
                     {"broken_by", "l2"}};
  const json client{
      {"id", 1},
      {"pid", 2},
      {"label", "api"},
      {"priority_text", "Q0"},
      {"devices", {{{"device", 3}, {"promise", promise}}, {{"device", 4}, {"promise", nullptr}}}}};
  const auto told = [&](int device) { return explained(client, device); };
  EXPECT_NE(told(3).find("  promise 1.10: now 1.25, 6 of 6 blocks broken, by l2\n"),
            std::string::npos)
      << told(3);
  EXPECT_EQ(told(4).find("promise"), std::string::npos);
}

TEST(ExplainClient, HearsNothingOfWhatThePolicyDidNotLookAt) {
  const json client{{"id", 1}, {"pid", 2}, {"label", "train"}, {"priority_text", "Q9"}};
  json held{{"by", "policy"},        {"generation", 1},     {"reason", "enough"}, {"us_ago", 1},
            {"gap_us", "not asked"}, {"inflight_us", 1500}, {"waiting", 1}};
  const json wait{
      {"kernel", "k"}, {"placed", true}, {"queue", "be"}, {"waited_us", 9}, {"held", held}};
  json answer{{"devices",
               {{{"device", 0},
                 {"policy", "p"},
                 {"granted", 0},
                 {"waited", 0},
                 {"now", {wait}},
                 {"past", json::array()}}}}};
  std::ostringstream out;
  print_explanation(out, client, answer);
  EXPECT_NE(out.str().find("it saw: in flight 1.5 ms, 1 waiting\n"), std::string::npos)
      << out.str();
}

TEST(ExplainClient, HearsWhatTheCoreHoldsBack) {
  const json client{{"id", 1}, {"pid", 2}, {"label", "train"}, {"priority_text", "Q9"}};
  json wait{{"waited_us", 300}, {"kernel", "gemm"}, {"placed", true},     {"queue", "be"},
            {"early", true},    {"held", nullptr},  {"why", "it is long"}};
  EXPECT_NE(
      explained(client, 0, json::array({wait})).find("    the core holds it back: it is long\n"),
      std::string::npos);
  wait["early"] = false;
  EXPECT_EQ(explained(client, 0, json::array({wait})).find("it is long"), std::string::npos);
}

TEST(ExplainClient, HearsHowToMeasureWhatIsUnknown) {
  const auto told = [](double unknown) {
    const json ceiling{{"channel", "dram"}, {"max", 0.3}, {"use", 0.1}, {"unknown", unknown}};
    const json client{{"id", 1},
                      {"pid", 2},
                      {"label", "train"},
                      {"priority_text", "Q9"},
                      {"command", "python3 train.py"},
                      {"devices", {{{"device", 0}, {"ceilings", {ceiling}}}}}};
    return explained(client, 0);
  };
  EXPECT_NE(told(0.25).find("heddle profile collect-metrics -- python3 train.py;"),
            std::string::npos)
      << told(0.25);
  EXPECT_EQ(told(0).find("collect-metrics"), std::string::npos);
}

}  // namespace
}  // namespace heddle::cli
