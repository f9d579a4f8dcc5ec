// bench/runner/rows: which rows a scenario has, and the processes that they need.
#include "bench/runner/rows.h"

#include <fstream>

#include "bench/runner/table.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> out;
  for (const Row& row : plan.rows) out.push_back(row.name);
  return out;
}

TEST(Rows, EveryPathInUseBringsItsBareBlocks) {
  const auto s = pair("policies = [\"gapfill\"]\nbaselines = [\"timeslice\"]");
  EXPECT_EQ(names(plan(s)), (Names{"alone/hp", "alone/be", "alone/hp@mps", "alone/be@mps",
                                   "timeslice", "gapfill", "gapfill@mps"}));
  const auto bare = pair("policies = []\nbaselines = [\"mps\"]");
  EXPECT_EQ(names(plan(bare)), (Names{"alone/hp@mps", "alone/be@mps", "mps"}));
}

TEST(Rows, NoneIsThereTwice) {
  const auto s = pair("policies = [\"fifo\", \"fifo@mps\"]\nbaselines = []");
  EXPECT_EQ(names(plan(s)),
            (Names{"alone/hp", "alone/be", "alone/hp@mps", "alone/be@mps", "fifo", "fifo@mps"}));
}

TEST(Rows, ASettingThatNeedsARestartIsADaemonOfItsOwn) {
  const auto s = pair(
      "policies = [\"fifo@mps+priority\"]\nbaselines = [\"mps\", \"mps+priority\", \"mps:25\"]");
  const Plan p = plan(s);
  ASSERT_EQ(p.rows.size(), 6U);
  const auto row = [&](const std::string& name) {
    for (const Row& r : p.rows) {
      if (r.name == name) return r;
    }
    ADD_FAILURE() << name;
    return Row{};
  };
  EXPECT_EQ(row("mps").jobs[0], row("mps+priority").jobs[0]) << "the important side is the same";
  EXPECT_TRUE(row("mps+priority").jobs[1].client_priority);
  EXPECT_EQ(row("mps:25").jobs[0].percent, 100U);
  EXPECT_EQ(row("mps:25").jobs[1].percent, 25U);
  EXPECT_TRUE(row("fifo@mps+priority").jobs[1].client_priority);
  EXPECT_TRUE(row("fifo@mps+priority").jobs[1].managed);
  EXPECT_FALSE(row("fifo@mps+priority").jobs[0].client_priority);
}

TEST(Rows, EveryBaselineCanBeHadOnTheSimulatedGpuToo) {
  const auto s = pair(
      "policies = []\nbaselines = [\"timeslice\", \"mps+priority\", \"mps:25\", "
      "\"split:25\"]");
  EXPECT_EQ(names(plan(s)), (Names{"alone/hp", "alone/be", "alone/hp@mps", "alone/be@mps",
                                   "timeslice", "mps+priority", "mps:25", "split:25"}));
  EXPECT_TRUE(plan(s).missing.empty());
}

TEST(Rows, InASplitEachJobHasItsSmsAndNobodyIsHeldBack) {
  const auto s = pair("policies = []\nbaselines = [\"split:25\", \"split:50/40\"]");
  const Plan p = plan(s);
  ASSERT_EQ(p.rows.size(), 4U);
  const auto& [hp, be] = std::tie(p.rows[2].jobs[0], p.rows[2].jobs[1]);
  EXPECT_TRUE(p.rows[2].mps && hp.managed && be.managed);
  EXPECT_EQ(share_text(hp.sms), "25%-100%");
  EXPECT_EQ(share_text(be.sms), "0%-25%");
  EXPECT_EQ(priority_of(hp, s), priority_of(be, s));
  EXPECT_EQ(share_text(p.rows[3].jobs[0].sms), "0%-50%");
  EXPECT_EQ(share_text(p.rows[3].jobs[1].sms), "50%-90%");
  EXPECT_NE(variant_name(be, s), variant_name(p.rows[3].jobs[1], s));
}

TEST(Rows, AJobAloneUnderHeddleIsARowOfItsOwnAndHasNoRival) {
  const auto s = pair("policies = [\"fifo@mps/hp\"]\nbaselines = [\"mps\"]");
  const Plan p = plan(s);
  EXPECT_EQ(names(p), (Names{"alone/hp@mps", "alone/be@mps", "mps", "fifo@mps/hp"}));
  ASSERT_EQ(p.rows[3].jobs.size(), 1U);
  EXPECT_TRUE(p.rows[3].jobs[0].managed && p.rows[3].jobs[0].job == 0 && !p.rows[3].alone);
  EXPECT_EQ(rival(p.rows[3], p.rows), "") << "the others share the GPU";
}

TEST(Rows, AnotherConfigurationHasProcessesOfItsOwn) {
  const auto s = pair(
      "policies = [\"fifo@mps\", \"fifo:gpu.idle_us=500@mps\", \"fifo:x=1@mps\"]\nbaselines = []");
  const Plan p = plan(s);
  ASSERT_EQ(p.rows.size(), 5U);
  EXPECT_EQ(p.rows[3].config, "gpu.idle_us = 500\n");
  EXPECT_TRUE(p.rows[3].params.empty());
  EXPECT_EQ(variant_name(p.rows[3].jobs[0], s), "hp.heddle.mps.gpu.idle_us=500");
  EXPECT_NE(p.rows[2].jobs, p.rows[3].jobs);
  EXPECT_EQ(p.rows[2].jobs, p.rows[4].jobs) << "parameters are switched live";
  EXPECT_EQ(variants(p.rows).size(), 2U + 2 + 2);
}

TEST(Rows, ApartTheyComeByTheirPath) {
  const auto s = pair("policies = [\"fifo\"]\nbaselines = []");
  const Plan p = plan(s);
  const auto parts = parts_of(p.rows, true);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].back().name, "fifo");
  EXPECT_EQ(parts[1].front().name, "alone/hp@mps");
  EXPECT_EQ(parts_of(p.rows, false).size(), 1U);
}

TEST(Rows, ABaselineAndAPolicyOfOneNameAreTold) {
  const auto s = pair("policies = [\"exclusive@timeslice\"]\nbaselines = [\"exclusive\"]");
  const Plan p = plan(s);
  EXPECT_EQ(names(p), (Names{"alone/hp", "alone/be", "exclusive"}));
  ASSERT_EQ(p.missing.size(), 1U);
  EXPECT_NE(p.missing[0].why.find("a baseline has this name"), std::string::npos);
}

TEST(Rows, APolicyIsHeldAgainstWhatIsFreeOnItsPath) {
  const auto s =
      pair("policies = [\"fifo\"]\nbaselines = [\"timeslice\", \"mps\", \"mps+priority\"]");
  const Plan p = plan(s);
  for (const Row& row : p.rows) {
    const std::string over = row.name == "fifo"       ? "timeslice"
                             : row.name == "fifo@mps" ? "mps+priority"
                                                      : "";
    EXPECT_EQ(rival(row, p.rows), over) << row.name;
  }
}

TEST(Table, AFileThatWasCutIsNamedWithWhatItLacks) {
  const std::string file = ::testing::TempDir() + "heddle-cut.json";
  std::ofstream(file) << R"({"benchmark": "scenario", "name": "pair", "figures": {}, "jobs": []})";
  for (const bool wide : {false, true}) {
    TableStyle style;
    style.wide = wide;
    try {
      print_tables({file}, style);
      ADD_FAILURE() << "printed";
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find(file + ": incomplete"), 0u) << text;
      EXPECT_NE(text.find("not found"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace heddle::bench
