// `heddle plan` as it is typed: what it prints, and its errors.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/cli/plan/plan.h"
#include "daemon/plan/jobs.h"
#include "tests/folder.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

struct Said {
  int exit_code = 0;
  std::string out, err;
};

Said heddle(std::vector<std::string> words) {
  CLI::App app("heddle");
  PlanOptions options;
  bool as_json = false;
  Said said;
  app.add_flag("--json", as_json);
  const std::string socket = "/nowhere/heddle.sock";
  add_plan(app, options, socket, as_json, said.exit_code);
  for (CLI::App* sub : app.get_subcommands({})) sub->fallthrough();
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  app.parse(words);
  fflush(stdout);
  said.out = testing::internal::GetCapturedStdout();
  said.err = testing::internal::GetCapturedStderr();
  return said;
}

class PlanCliTest : public testing::Test {
 protected:
  std::string file(const char* name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  const TestFolder made_;
  const std::string directory_ = made_.path();
  std::string miso_ = std::string(HEDDLE_JOBS) + "/miso";
  std::string jobs_ = R"(
[[job]]
name = "api"
kind = "online"
like = "resnet/128"
[[job]]
name = "train"
memory_gib = 4
sm_pct = 60
iteration_ms = 20
)";
};

TEST_F(PlanCliTest, PlansTheJobsOfAFileWithReasonsAndAsJson) {
  const std::string path = file("jobs.toml", jobs_);
  const std::vector<std::string> command = {"plan", "jobs",  path,       "--data",
                                            miso_,  "--gpu", "a100-40gb"};
  std::vector<std::string> explained = command, machine = command;
  explained.push_back("--explain");
  machine.push_back("--json");
  const Said text = heddle(explained);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("- train: slice "), std::string::npos) << text.out;
  const json answer = json::parse(heddle(machine).out);
  ASSERT_EQ(answer["jobs"].size(), 2u);
  EXPECT_EQ(answer["jobs"][0]["share"], 1);  // online
  EXPECT_TRUE(answer["waiting"].empty());
}

// What had the shortest mean JCT where it was measured: not mmk.
TEST_F(PlanCliTest, PlansNameThePolicyThatSetsTheirShares) {
  const std::vector<std::string> of = {"--data", miso_, "--gpu", "a100-40gb"};
  const auto policy = [&](const std::string& jobs) {
    std::vector<std::string> words = {"plan", "jobs", file("jobs.toml", jobs), "--json"};
    words.insert(words.end(), of.begin(), of.end());
    return json::parse(heddle(words).out)["policy"];
  };
  EXPECT_EQ(policy(jobs_), "shares");
  EXPECT_EQ(policy("[[job]]\nname = \"api\"\nkind = \"online\"\nlike = \"resnet/128\"\n"), "none");
}

TEST_F(PlanCliTest, RulesGiveOfflineJobsSmsThatDoNotOverlap) {
  const std::string path = file("jobs.toml", jobs_ + R"(
[[job]]
name = "sweep"
memory_gib = 2
sm_pct = 30
iteration_ms = 20
)");
  const Said said =
      heddle({"plan", "jobs", path, "--data", miso_, "--gpu", "a100-40gb", "--rules"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.out.find("api"), std::string::npos);
  EXPECT_NE(said.out.find("label = \"sweep\""), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("sms = \"0%-"), std::string::npos) << said.out;
  EXPECT_EQ(heddle({"plan", "jobs", path, "--data", miso_, "--gpu", "a100-40gb", "--layout",
                    "4g.20gb+3g.20gb", "--rules"})
                .exit_code,
            1);
}

TEST_F(PlanCliTest, TrainsAFileThatPlansAlike) {
  const std::string path = file("jobs.toml", jobs_), forest = directory_ + "/forest";
  const Said trained = heddle({"plan", "train", "--data", miso_, "--output", forest});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  const std::vector<std::string> command = {"plan", "jobs",  path,        "--data",
                                            miso_,  "--gpu", "a100-40gb", "--json"};
  std::vector<std::string> saved = command;
  saved.insert(saved.end(), {"--predictor", forest});
  EXPECT_EQ(heddle(command).out, heddle(saved).out);
}

TEST_F(PlanCliTest, SimulatesAndLabelsWhatItPrints) {
  const std::vector<std::string> command = {
      "plan",      "simulate", "--data",  miso_, "--policy", "mps,mmk", "--online", "10",
      "--offline", "5",        "--seeds", "2",   "--error",  "10",      "--json"};
  const Said said = heddle(command);
  const json answer = json::parse(said.out);
  EXPECT_EQ(answer["mode"], "simulated");
  EXPECT_NE(answer["label"].get<std::string>().find("true paces: MISO"), std::string::npos);
  ASSERT_EQ(answer["policies"].size(), 2u);
  EXPECT_GT(answer["policies"][0]["jct_s"]["ci95"], 0);
  EXPECT_EQ(heddle(command).out, said.out);
}

TEST_F(PlanCliTest, PlacementsAreOfMeasuredPairsAlone) {
  file("jobs.csv",
       "model,batch,alone_ms,memory_mib,bandwidth_pct\na,1,1,1,\nb,1,2,1,\nc,1,3,1,\nd,1,4,1,\n");
  const std::string one_round =
      "model,batch,share,neighbour,neighbour_batch,neighbour_share,pace\n"
      "a,1,1,,,,1\nb,1,1,,,,1\nc,1,1,,,,1\nd,1,1,,,,1\n"
      "a,1,1,c,1,1,0.9\nc,1,1,a,1,1,0.8\na,1,1,d,1,1,0.5\nd,1,1,a,1,1,0.4\n"
      "b,1,1,c,1,1,0.6\nc,1,1,b,1,1,0.5\nb,1,1,d,1,1,0.7\nd,1,1,b,1,1,0.6\n";
  file("samples.csv", one_round);
  const Said said = heddle({"--json", "plan", "placements", "--data", directory_});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json rounds = json::parse(said.out)["rounds"];
  ASSERT_EQ(rounds.size(), 1u);
  EXPECT_DOUBLE_EQ(rounds[0]["best"], 1.5);
  EXPECT_DOUBLE_EQ(rounds[0]["worst"], 1.0);
  EXPECT_TRUE(rounds[0]["forest"].is_null()) << "it would know what it is asked";
  EXPECT_TRUE(rounds[0]["seen"].is_null()) << "nobody measured them at other shares";
  EXPECT_EQ(heddle({"plan", "placements", "--data", directory_}).out.find("forest"),
            std::string::npos);
  file("samples.csv", one_round +
                          "a,1,0.5,,,,0.8\nb,1,0.5,,,,0.8\n"
                          "a,1,0.5,c,1,1,0.7\nc,1,1,a,1,0.5,0.8\n"
                          "a,1,0.5,d,1,1,0.4\nd,1,1,a,1,0.5,0.4\n"
                          "b,1,0.5,c,1,1,0.5\nc,1,1,b,1,0.5,0.5\n"
                          "b,1,0.5,d,1,1,0.6\nd,1,1,b,1,0.5,0.6\n");
  const Said both = heddle({"--json", "plan", "placements", "--data", directory_});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  for (const json& round : json::parse(both.out)["rounds"]) {
    EXPECT_TRUE(round["forest"].is_null()) << "it has seen no pair of theirs";
    EXPECT_TRUE(round["seen"].is_number());
    EXPECT_EQ(round["group"], 1);
  }
  const Said none = heddle({"plan", "placements", "--data", miso_});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("measure with `heddle-bench collect`"), std::string::npos) << none.err;
}

TEST_F(PlanCliTest, ErrorsSayWhatToDo) {
  const std::string path = file("jobs.toml", jobs_);
  for (const auto& [words, complaint] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "jobs", path, "--data", miso_, "--gpu", "a100-40gb", "--apply", "--layout",
             "4g.20gb+3g.20gb"},
            "leave out --layout, or let them be"},
           {{"plan", "jobs", path, "--data", miso_, "--apply"}, "/nowhere/heddle.sock"},
           {{"plan", "jobs", path, "--gpu", "tpu"}, "there are a100-40gb"},
           {{"plan", "jobs", path}, "name a table with --data"},
           {{"plan", "jobs", path, "--data", "/none"}, "is no directory"},
           {{"plan", "jobs", path, "--data", miso_, "--predictor", path}, "is no predictor"},
           {{"plan", "jobs", path, "--data", miso_, "--layout", "9g"}, "has no slice '9g'"},
           {{"plan", "simulate", "--data", miso_, "--policy", "best"}, "there are default mps"}}) {
    const Said said = heddle(words);
    EXPECT_NE(said.exit_code, 0);
    EXPECT_NE(said.err.find(complaint), std::string::npos) << said.err;
  }
}

TEST(JobSetTest, BadFilesAreNamedByLine) {
  const std::string good = "[[job]]\nname = \"a\"\nmemory_gib = 1\nsm_pct = 10\niteration_ms = 1\n";
  EXPECT_TRUE(plan::parse_job_set(good, "f", nullptr));
  for (const auto& [text, complaint] : std::vector<std::pair<std::string, std::string>>{
           {"", "f:1: has no [[job]]"},
           {"job = 3", "f:1: has no [[job]]"},
           {"[[job]]\nsm_pct = 10", "f:1: a job needs a name"},
           {"[[job]]\nname = \"a\"\nsm = 10", "f:3: unknown key sm;"},
           {"[[job]]\nname = \"a\"\nkind = \"batch\"", "f:3: kind must be"},
           {"[[job]]\nname = \"a\"\nkind = 3", "f:3: kind must be a string"},
           {"[[job]]\nname = \"a\"\nsm_pct = 200", "f:3: sm_pct must be a number from 1 to 100"},
           {"[[job]]\nname = \"a\"", "f:1: a needs memory_gib"},
           {"[[job]]\nname = \"a\"\nlike = \"x/1\"", "f:3: no table has 'x/1'"},
           {"[[jobs]]\nname = \"a\"", "f:1:"},
           {good + good, "f:6: a is there twice"},
           {"[[job]", "f:1: "}}) {
    const auto read = plan::parse_job_set(text, "f", nullptr);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message.find(complaint), 0u) << read.error().message;
  }
}

}  // namespace
}  // namespace heddle::cli
