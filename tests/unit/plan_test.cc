// daemon/plan: MIG layouts and measured tables.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "daemon/plan/mig.h"
#include "daemon/plan/table.h"

namespace heddle::plan {
namespace {

TEST(MigTest, AnA100HasTheNineteenConfigurationsOfNvidiasGuide) {
  EXPECT_EQ(layouts(*gpu_model("a100-40gb")).size(), 19u);
  EXPECT_EQ(layouts(*gpu_model("h100-80gb")).size(), 19u);
}

TEST(MigTest, NoLayoutOverlapsOrExceedsSevenComputeSlices) {
  for (const Layout& layout : layouts(*gpu_model("h100-80gb"), Wide::kYes)) {
    uint32_t end = 0, compute = 0;
    for (const Slice& slice : layout) {
      EXPECT_GE(slice.start, end) << to_string(layout);
      EXPECT_TRUE(slice.profile->starts >> slice.start & 1) << to_string(layout);
      end = slice.start + slice.profile->memory;
      compute += slice.profile->compute;
    }
    EXPECT_LE(end, kMemorySlices) << to_string(layout);
    EXPECT_LE(compute, kComputeSlices) << to_string(layout);
  }
}

TEST(MigTest, PlacesWhatIsLegalAndSaysWhyNotOtherwise) {
  const GpuModel& gpu = *gpu_model("a100-80gb");
  EXPECT_EQ(to_string(*place(gpu, "3g.40gb+4g.40gb")), "4g.40gb+3g.40gb");
  EXPECT_EQ(to_string(*place(gpu, "1g.10gb+2g.20gb+3g.40gb")), "3g.40gb+2g.20gb+1g.10gb");
  // Seven compute slices would do, but two slices of four must not begin at 0 both.
  EXPECT_NE(place(gpu, "4g.40gb+4g.40gb").error().message.find("does not fit"), std::string::npos);
  EXPECT_NE(place(gpu, "3g.40gb+3g.40gb+1g.10gb").error().message.find("layouts"),
            std::string::npos);
  EXPECT_NE(place(gpu, "5g.50gb").error().message.find("4g.40gb"), std::string::npos);
}

TEST(MigTest, WhereSlicesLieMakesNoDifference) {
  const std::vector<Layout> kinds = distinct(layouts(*gpu_model("a100-80gb")));
  EXPECT_EQ(kinds.size(), 14u);
}

std::string jobs(const char* name) { return std::string(HEDDLE_JOBS) + "/" + name; }

TEST(TableTest, ReadsParvagpu) {
  const auto table = read_jobs(jobs("parvagpu"));
  ASSERT_TRUE(table) << table.error().message;
  const JobCurve* job = table->find("resnet50/16");
  ASSERT_NE(job, nullptr);
  EXPECT_NEAR(job->pace[size_index(7)][1], 1262.687 / 2211.111, 1e-9);
  EXPECT_EQ(job->pace[size_index(1)][3], kNotMeasured);             // a row of zeros
  EXPECT_EQ(table->find("resnet50/32")->pace[1][3], kNotMeasured);  // a copy of the row above it
  EXPECT_NEAR(job->use.sm, 2211.111 / 2582.226, 1e-9);
  EXPECT_NEAR(job->memory_gib, 9.5 / 3, 1e-9);  // three fit into 1g.10gb
}

TEST(TableTest, ReadsMiso) {
  const auto table = read_jobs(jobs("miso"));
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->find("dummy/32"), nullptr);  // without slices
  const JobCurve* job = table->find("bert/2");
  ASSERT_NE(job, nullptr);
  EXPECT_FALSE(job->fits(0));
  EXPECT_NEAR(job->pace[size_index(2)][0], 0.0472 / 0.1213, 1e-9);
  EXPECT_NEAR(job->use.bandwidth, 0.3394, 1e-9);
}

TEST(TableTest, BadTablesAreNamedByFileAndLine) {
  const std::string directory = testing::TempDir() + "heddle_plan_bad";
  std::filesystem::create_directories(directory);
  const char* header = "Mig instance,Batch size,Workload Number,Throughput,Latency\n";
  for (const auto& [row, complaint] : std::vector<std::pair<std::string, std::string>>{
           {"7,1,1,fast,0", "m.csv:2: Throughput must be a number"},
           {"5,1,1,10,0", "m.csv:2: a slice has"},
           {"7,1,9,10,0", "m.csv:2: Workload Number"},
           {"7,1,1,10", "m.csv:2: 4 cells, not 5"},
           {"7,0,1,10,0", "m.csv:2: Batch size"},
           {"", "m.csv: has no rows"}}) {
    std::ofstream(directory + "/m.csv") << header << row << '\n';
    const auto table = read_jobs(directory);
    ASSERT_FALSE(table) << row;
    EXPECT_NE(table.error().message.find(complaint), std::string::npos) << table.error().message;
  }
  EXPECT_NE(read_jobs(directory + "/no").error().message.find("is no directory"),
            std::string::npos);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace heddle::plan
