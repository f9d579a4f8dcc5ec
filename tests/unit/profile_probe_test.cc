// A probe in a profile: what is measured, what is read and written, and what the core is told.
#include "daemon/profile/profile.h"

#include "tests/unit/profile_made.h"

namespace heddle::profiles {
namespace {

using core::Channel;

Probe probe() {
  Probe p;
  p.busy = 0.5;
  p.beside = {{Channel::kSlots, "sleep,threads=512", 0, 1.25, 0},
              {Channel::kDram, "dram,blocks=132", 1, 1.5, 1.2}};
  p.metrics.set(ipc::metric_of("dram_pct"), 24.5);
  p.metrics.set(ipc::metric_of("ipc"), 0.5);
  return p;
}

Profile probed() {
  Profile p = profile();
  p.probe = probe();
  return p;
}

TEST(Probe, SurvivesItsFile) {
  const std::string text = format(probed());
  const Result<Profile> again = parse(text, "x.toml");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_TRUE(again->probe);
  EXPECT_EQ(again->probe->busy, 0.5);
  ASSERT_EQ(again->probe->beside.size(), 2u);
  EXPECT_EQ(again->probe->beside[1].channel, Channel::kDram);
  EXPECT_EQ(again->probe->beside[1].spec, "dram,blocks=132");
  EXPECT_EQ(again->probe->beside[1].stretched, 1.2);
  EXPECT_EQ(format(*again), text);
  EXPECT_FALSE(parse(format(profile()), "x.toml")->probe);
}

TEST(Probe, ABadOneIsNamedByLine) {
  const std::string good = format(probed());
  for (const auto& [what, with, complaint] : std::initializer_list<std::array<const char*, 3>>{
           {"channel = \"dram\"", "channel = \"drum\"", "channel must be one"},
           {"busy = 0.50", "busy = 0", "busy must be more than 0"},
           {"busy = 0.50", "busy = 1.5", "busy must be a number from 0 to 1"},
           {"busy = 0.50", "busy = 0.50\nidle = 1", "unknown key idle"},
           {"slowdown = 1.50", "slow = 1.50", "slowdown is missing"},
           {"beside = [", "near = [", "beside is missing"}}) {
    const Result<Profile> bad = parse(lines(good, what, with), "x.toml");
    ASSERT_FALSE(bad) << with;
    EXPECT_NE(bad.error().message.find(complaint), std::string::npos) << bad.error().message;
    EXPECT_EQ(bad.error().message.rfind("x.toml:1", 0), 0u) << bad.error().message;
  }
}

// What a profiler measured is better.
TEST(Probe, StandsInForKernelsWithoutMetricsAlone) {
  const core::TaskProfile task = told(probed());
  EXPECT_EQ(task.kernels[0].facts.metrics.get("ipc"), 1.75);
  EXPECT_FALSE(task.kernels[0].facts.metrics.get("dram_pct"));
  EXPECT_EQ(task.kernels[1].facts.metrics.get("dram_pct"), 24.5);
  // A curve of durations says nothing of channels.
  Profile with_curve = probed();
  with_curve.task.kernels[1].facts.metrics.set(ipc::metric_of("us_on_4"), 9);
  EXPECT_EQ(told(with_curve).kernels[1].facts.metrics.get("dram_pct"), 24.5);
  EXPECT_EQ(told(with_curve).kernels[1].facts.metrics.get("us_on_4"), 9);
}

TEST(Probe, ASubstituteIsNotTakenForMeasured) {
  Profile recorded = probed();
  recorded.task = told(recorded);
  recorded.probe.reset();
  take_probe(recorded, probe());
  EXPECT_EQ(format(recorded), format(probed()));
}

TEST(Probe, AMergeHasTheNewerOne) {
  Profile older = profile(), newer = probed();
  EXPECT_TRUE(merge(older, newer)->probe);
  older.probe = probe();
  older.probe->busy = 0.9;
  newer.measured = "2027-01-01T00:00:00Z";
  EXPECT_EQ(merge(older, newer)->probe->busy, 0.5);
  EXPECT_EQ(merge(newer, older)->probe->busy, 0.5);
}

TEST_F(ProfileFiles, TheStoreTellsWhatTheProbeFoundAndDescribesWhatWasMeasured) {
  write("a.toml", format(probed()));
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  const auto task = store.find(kUser, 0xfedcba9876543210);
  ASSERT_TRUE(task);
  EXPECT_EQ(task->kernels[1].facts.metrics.get("dram_pct"), 24.5);
  const Profile described = store.describe(*task, kUser, "api", "serve");
  EXPECT_TRUE(described.probe);
  EXPECT_EQ(described.task.kernels[1].facts.metrics.there, 0u);
  EXPECT_EQ(described.task.kernels[0].facts.metrics.get("ipc"), 1.75);
}

TEST(Probe, MetricsAreOfAKernelOnTheGpu) {
  const core::DeviceModel device;
  Probe p;
  p.beside = {{Channel::kDram, "weak", 0.5, 1, 1}, {Channel::kDram, "strong", 1, 1.5, 1.25}};
  p.busy = 1;
  const double always = *probed_metrics(p, device).get("dram_pct");
  EXPECT_GT(always, 0);
  EXPECT_LT(always, device.dram_peak_pct);
  p.busy = 0.5;
  EXPECT_NEAR(*probed_metrics(p, device).get("dram_pct"),
              std::min(2 * always, device.dram_peak_pct), 1e-3);
  p.beside = {{Channel::kSlots, "sleep", 0, 2, 0}, {Channel::kL2Capacity, "l2", 1, 2, 2}};
  EXPECT_EQ(probed_metrics(p, device).there, 0u) << "neither tells of a use";
}

TEST(Probe, NeighboursAreInPartsOfTheirChannelsPeak) {
  const std::vector<Neighbour> all = neighbours({
      {{Channel::kDram, "weak"}, 500, 500, 10, 10, 10},
      {{Channel::kDram, "strong"}, 2000, 1000, 10, 5, 8},
      {{Channel::kIssue, "issue"}, 3, 2, 10, 10, 10},
      {{Channel::kSlots, "sleep"}, 132, 66, 10, 5, 10},
  });
  EXPECT_EQ(all[0].use, 0.25);
  EXPECT_EQ(all[0].stretched, 1);
  EXPECT_EQ(all[1].use, 1);
  EXPECT_EQ(all[1].stretched, 2);
  EXPECT_EQ(all[1].slowdown, 1.8);
  EXPECT_EQ(all[2].use, 0.75) << "of four instructions a cycle";
  EXPECT_EQ(all[3].stretched, 0) << "sleepers feel nothing";
  EXPECT_EQ(all[3].slowdown, 2);
}

TEST(Probe, PressesOnEachChannelAtTwoLevels) {
  std::string unknown;
  EXPECT_EQ(pressures("", unknown).size(), 18u);
  EXPECT_EQ(pressures("dram,issue", unknown).size(), 4u);
  EXPECT_EQ(unknown, "");
  pressures("dram,drum", unknown);
  EXPECT_EQ(unknown, "drum");
}

}  // namespace
}  // namespace heddle::profiles
