// Profiles: written, read, refused by line, merged, compared; the command line.
#include "daemon/profile/profile.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/base/files.h"
#include "daemon/cli/profile/profile.h"
#include "tests/unit/profile_made.h"

namespace heddle::profiles {
namespace {

TEST(Profile, GivesBackWhatWasWritten) {
  const std::string text = format(profile());
  const Result<Profile> read = parse(text, "p.toml");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(format(*read), text);
  EXPECT_EQ(read->command, "python3 serve.py --quote \"x\" \\ \t ? \xc3\xa9");
  EXPECT_EQ(read->task.task, 0xfedcba9876543210u);
  ASSERT_EQ(read->task.kernels.size(), 2u);
  EXPECT_STREQ(read->task.kernels[0].facts.name, "a_gemm");
  EXPECT_FLOAT_EQ(read->task.kernels[0].duration.p90_us, 24.68f);
  EXPECT_EQ(read->task.kernels[0].gap_launching.count, 300u);
  EXPECT_EQ(read->task.kernels[0].gap_synchronized.count, 0u);
  EXPECT_TRUE(read->task.kernels[0].after.empty());
  EXPECT_EQ(read->task.kernels[0].facts.metrics.get("ipc"), 1.75);
  EXPECT_EQ(read->task.kernels[0].facts.metrics.get("us_on_12"), 13);
  EXPECT_EQ(read->task.kernels[0].facts.metrics.get("dram_pct"), std::nullopt);
  EXPECT_EQ(read->task.kernels[1].facts.metrics.there, 0u);
  ASSERT_EQ(read->task.kernels[1].after.size(), 2u);
  EXPECT_EQ(read->task.kernels[1].after[1].before, 0xfffefffdfffcfffbu);
  EXPECT_FLOAT_EQ(read->task.kernels[1].after[1].mean_us, 3.5f);
  EXPECT_EQ(read->task.kernels[1].after[1].count, 20u);
}

// It runs inside graphs alone: nobody timed it, and a profiler measured it.
TEST(Profile, KernelWithoutATimeOfItsOwnKeepsItsMetricsUntilItIsTimed) {
  Profile p = profile();
  core::KernelProfile& inside = p.task.kernels[0];
  inside.duration = inside.gap_launching = {};
  const Result<Profile> read = parse(format(p), "p.toml");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->task.kernels[0].duration.count, 0u);
  core::TaskProfile task = read->task;
  core::TaskProfile later{task.task, 100, {kernel(1, "a_gemm", 7)}};
  later.kernels[0].facts.metrics.set(ipc::metric_of("ipc"), 3);
  later.kernels[0].facts.metrics.set(ipc::metric_of("dram_pct"), 40);
  EXPECT_TRUE(add_kernels(task, later));
  EXPECT_EQ(task.kernels[0].duration.mean_us, 7);
  EXPECT_EQ(task.kernels[0].facts.metrics.get("ipc"), 1.75) << "an administrator's comes first";
  EXPECT_EQ(task.kernels[0].facts.metrics.get("dram_pct"), 40);
  EXPECT_FALSE(add_kernels(task, later));
}

TEST(Profile, PruneKeepsAKernelThatOnlyGraphsLaunchIfItHasMetrics) {
  Profile p = profile();
  for (core::KernelProfile& inside : p.task.kernels) inside.duration = {};
  EXPECT_EQ(prune(p, 10), 1u);
  ASSERT_EQ(p.task.kernels.size(), 1u);
  EXPECT_EQ(p.task.kernels[0].facts.id, 1u);
}

TEST(Profile, RefusesWhatIsWrongByFileAndLine) {
  const std::string good = format(profile());
  const struct {
    const char *what, *with, *error;
  } cases[] = {
      {"version = 4", "version = 5", "p.toml:2: version must be 4"},
      {"version = 4", "version = 3", "p.toml:2: version must be 4"},
      {"version = 4", "", "p.toml:1: version is missing"},
      {"gpu = \"NVIDIA H200\"", "gpu = 7", "p.toml:3: gpu must be a text"},
      {"key = \"fedcba9876543210\"", "key = \"fedcba\"", "p.toml:7: key must be 16 hexadecimal"},
      {"runs = 100", "runs = 0", "p.toml:10: runs must be a whole number from 1"},
      {"runs = 100", "runs = 100\nrun = 3", "p.toml:11: unknown key run"},
      {"mean = 12.34", "mean = -1", "p.toml:22: mean must be a number"},
      {"mean = 12.34", "mean = nan", "p.toml:22: mean must be a number"},
      {"p90 = 24.68", "p90 = 1", "p.toml:22: p90 must be no less than p50"},
      {"count = 300", "count = 0", "p.toml:23: count must be a whole number from 1"},
      {"id = \"0000000000000002\"", "id = \"0000000000000001\"", "p.toml:27: id must be of a"},
      {"grid_blocks = 512\n", "", "p.toml:13: grid_blocks is missing"},
      {"driver = ", "driver ", "p.toml:4: "},
      {"kernels = \"0001", "kernels = \"0000", "p.toml:36: kernels must be four kernels"},
      {"kernels = \"0001", "kernels = \"1", "p.toml:36: kernels must be 16 hexadecimal"},
      {"count = 12 }", "count = 0 }", "p.toml:36: count must be a whole number from 1"},
      {"count = 12 }", "count = 12, p50 = 1 }", "p.toml:36: unknown key p50"},
      {"duration_us_after = [", "duration_us_after = [ 7, ", "p.toml:35: duration_us_after must"},
  };
  for (const auto& c : cases) {
    const Result<Profile> read = parse(lines(good, c.what, c.with), "p.toml");
    ASSERT_FALSE(read) << c.with;
    EXPECT_EQ(read.error().message.rfind(c.error, 0), 0u) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
}

TEST(Profile, RefusesATruncatedFileWhereverItEnds) {
  const std::string whole = format(profile());
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string text = whole.substr(0, length);
    const Result<Profile> read = parse(text, "cut.toml");
    // Behind a distribution a kernel may end: nothing says that another one was to come.
    const size_t array = text.rfind("= [\n");
    const bool open = array != std::string::npos && text.find("]\n", array) == std::string::npos;
    const bool may_end = text[std::min(text.size(), text.find_last_not_of('\n'))] == '}';
    EXPECT_EQ(read.has_value(), may_end && !open) << length;
    if (read) continue;
    EXPECT_EQ(read.error().message.rfind("cut.toml:", 0), 0u) << read.error().message;
  }
}

TEST(Profile, SurvivesAnyDamage) {
  const std::string whole = format(profile());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 3'000; ++round) {
    std::string text = whole;
    for (int i = 0; i < 3; ++i) text[random() % text.size()] = static_cast<char>(random());
    const Result<Profile> read = parse(text, "d.toml");
    if (!read) {
      EXPECT_EQ(read.error().message.rfind("d.toml:", 0), 0u) << read.error().message;
    }
  }
}

TEST(Profile, OfAnotherGpuOrDriverIsRefusedByLine) {
  Profile p = *parse(format(profile()), "p.toml");
  EXPECT_TRUE(fits(p, "NVIDIA H200", "580.159.04"));
  EXPECT_EQ(fits(p, "NVIDIA A100", "580.159.04").error().message.rfind("p.toml:3: measured on", 0),
            0u);
  EXPECT_EQ(fits(p, "NVIDIA H200", "590").error().message.rfind("p.toml:4: measured on driver", 0),
            0u);
  const std::string before = file_name(p);
  p.driver = "590";
  EXPECT_NE(file_name(p), before) << "both may lie in one directory";
  EXPECT_EQ(file_name(p).rfind("api-", 0), 0u);
}

TEST(Profile, MergesByTheNumberOfSamples) {
  Profile a = profile(), b = profile();
  b.task.kernels = {kernel(2, "b_relu", 5, 64), kernel(3, "c_new", 7)};
  b.task.runs = 300;
  const Result<Profile> all = merge(a, b);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->task.kernels.size(), 3u);
  EXPECT_FLOAT_EQ(all->task.kernels[1].duration.mean_us, 5);
  EXPECT_EQ(all->task.runs, 300u);
  EXPECT_EQ(all->task.kernels[1].after.size(), 2u);
  EXPECT_EQ(format(*all), format(*merge(b, a))) << "in either order";
  b.task.task = 1;
  EXPECT_FALSE(merge(a, b));
  b = profile();
  b.driver = "590";
  EXPECT_FALSE(merge(a, b));
}

TEST(Profile, CurveGetsTheMeansOfKernelsThatBothHave) {
  core::TaskProfile into = profile().task, on = into;
  on.kernels.erase(on.kernels.begin());
  on.kernels[0].duration.mean_us = 7;
  EXPECT_EQ(add_to_curve(into, on, core::GroupCount(4)), 1u);
  EXPECT_EQ(into.kernels[1].facts.metrics.get("us_on_4"), 7);
  EXPECT_FALSE(into.kernels[0].facts.metrics.has(ipc::metric_of("us_on_4")));
  EXPECT_EQ(add_to_curve(into, on, core::GroupCount(0)), 1u);
  EXPECT_EQ(into.kernels[1].facts.metrics.get("us_on_all"), 7);
  EXPECT_EQ(add_to_curve(into, on, core::GroupCount(5)), 0u) << "no metric is of 5 groups";
}

TEST(Profile, DiffNamesWhatIsFurtherApart) {
  Profile a = profile(), b = profile();
  EXPECT_TRUE(diff(a, b, 0, 0).empty());
  b.task.kernels[0].duration.mean_us = 13;  // 5 %
  b.task.kernels[1].gap_launching.mean_us = 200;
  b.task.kernels.push_back(kernel(3, "c_new", 7));
  const std::vector<Difference> found = diff(a, b, 0.1, 1);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].what, "gap_launching");
  EXPECT_EQ(found[0].kernel_id, 2u);
  EXPECT_EQ(found[1].what, "only in B");
  EXPECT_EQ(diff(a, b, 0.01, 0.1).size(), 3u);
}

TEST_F(ProfileFiles, AFailedWriteLeavesTheOldFile) {
  const std::string path = write("p.toml", "old");
  fs::create_directory(path + ".new");  // in the way of the new one
  const Result<void> saved = replace_file(path, "new", 0600);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().message.rfind(path + ": ", 0), 0u);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "old");
}

TEST_F(ProfileFiles, AFullDiskLeavesTheOldFile) {
  const std::string path = write("p.toml", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{4, before.rlim_max};
  auto* handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &full);
  const Result<void> saved = replace_file(path, "longer than that", 0600);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(saved);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "old");
  EXPECT_EQ(files(), 1u) << "nothing half-written stays";
}

TEST_F(ProfileFiles, TheCommandLineComparesJoinsAndThinsOut) {
  Profile other = profile();
  other.task.kernels[1] = kernel(2, "b_relu", 30, 3);
  other.task.kernels[1].gap_launching = {};
  const std::string a = write("a.toml", format(profile())), b = write("b.toml", format(other));
  cli::ProfileOptions o;
  o.as_json = true;
  const auto run = [&o](int (*command)(const cli::ProfileOptions&)) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = command(o);
    const std::string out = ::testing::internal::GetCapturedStdout();
    ::testing::internal::GetCapturedStderr();
    return std::pair(code, out.empty() ? nlohmann::json() : nlohmann::json::parse(out));
  };
  o.paths = {a, b};
  const auto [differs, differences] = run(cli::profile_diff);
  EXPECT_EQ(differs, 1);
  EXPECT_EQ(differences["differences"].at(0)["name"], "b_relu");
  o.paths = {a, a};
  EXPECT_EQ(run(cli::profile_diff).first, 0);

  o.paths = {b, a};
  o.output = directory_ + "/all.toml";
  EXPECT_EQ(run(cli::profile_merge).first, 0);
  EXPECT_EQ(format(*load(o.output)), format(profile()));
  struct stat info {};
  ASSERT_EQ(stat(o.output.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  o.paths = {directory_};
  EXPECT_EQ(run(cli::profile_show).second["profiles"].size(), 3u);
  o.samples = 10;
  o.dry_run = true;
  EXPECT_EQ(run(cli::profile_prune).second["removed"].size(), 1u);
  EXPECT_EQ(load(b)->task.kernels.size(), 2u);
  o.dry_run = false;
  EXPECT_EQ(run(cli::profile_prune).first, 0);
  EXPECT_EQ(load(b)->task.kernels.size(), 1u);
  EXPECT_EQ(load(a)->task.kernels.size(), 2u);
  Profile old = profile();
  old.measured = "2001-01-01T00:00:00Z";
  write("old.toml", format(old));
  o.days = 30;
  run(cli::profile_prune);
  EXPECT_FALSE(fs::exists(directory_ + "/old.toml"));
  EXPECT_TRUE(fs::exists(a));

  old.measured = "";
  write("undated.toml", format(old));
  EXPECT_EQ(run(cli::profile_prune).first, 0);
  EXPECT_TRUE(fs::exists(directory_ + "/undated.toml"));
  old.measured = "2001-01-01T00:00:00Z";
  write("old.toml", format(old));
  write("bad.toml", "version = 4");
  const size_t others = files() - 1;
  const auto [show_code, shown] = run(cli::profile_show);
  EXPECT_EQ(show_code, 1);
  EXPECT_EQ(shown["profiles"].size(), others);
  EXPECT_EQ(shown["errors"].size(), 1u);
  const auto [prune_code, pruned] = run(cli::profile_prune);
  EXPECT_EQ(prune_code, 1);
  EXPECT_EQ(pruned["errors"].size(), 1u);
  EXPECT_FALSE(fs::exists(directory_ + "/old.toml")) << "it comes after the bad one";
  o.days = 0;
  run(cli::profile_prune);
  EXPECT_FALSE(fs::exists(a)) << "of any age";
  EXPECT_TRUE(fs::exists(directory_ + "/bad.toml"));
}

}  // namespace
}  // namespace heddle::profiles
