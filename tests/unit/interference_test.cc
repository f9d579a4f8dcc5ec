// The interference estimator against what two papers measured on an H100 ("SoCC", "Measuring":
// daemon/model/interference.h). Rows that a constant was fitted to are named `fitted`; the others
// are held out, and each test prints its rows' errors and bounds those of the held-out ones.
#include "daemon/model/interference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "daemon/profile/gpu_model.h"

namespace heddle::core {
namespace {

// The file that is shipped: what is fitted is fitted there.
const DeviceModel& h100() {
  static const DeviceModel model = [] {
    const Result<DeviceModel> read =
        profiles::load_gpu_model(HEDDLE_GPU_MODELS "/nvidia-h100.toml");
    if (!read) ADD_FAILURE() << read.error().message;
    return read ? *read : DeviceModel{};
  }();
  return model;
}

struct Row {
  std::string name;
  double predicted, measured;
  bool fitted = false;
};

// Prints all; the held-out ones must be within `bound`, and nearer on average than `mean`.
void check_rows(const char* table, const std::vector<Row>& rows, double bound, double mean) {
  std::printf("%s\n", table);
  double sum = 0;
  int held_out = 0;
  for (const Row& r : rows) {
    const double error = r.predicted / r.measured - 1;
    std::printf("  %-34s predicted %6.3f  measured %6.3f  error %+5.1f %%%s\n", r.name.c_str(),
                r.predicted, r.measured, 100 * error, r.fitted ? "  (fitted)" : "");
    if (r.fitted) continue;
    EXPECT_LE(std::abs(error), bound) << table << ", " << r.name;
    sum += std::abs(error);
    ++held_out;
  }
  std::printf("  held out: %d rows, mean error %.1f %%\n", held_out, 100 * sum / held_out);
  EXPECT_LE(sum / held_out, mean) << table;
}

LaunchShape shape(uint32_t blocks, uint32_t threads, uint32_t registers = 16) {
  return {blocks, threads, registers, 0, 0};
}

Mix kernel(double us, LaunchShape s = shape(132, 128)) {
  Mix m;
  m.shape = s;
  m.duration_us = us;
  return m;
}

Mix computing(double ipc, uint32_t threads = 128) {
  Mix m = kernel(1000, shape(132, threads));
  m.use[Channel::kIssue] = static_cast<float>(ipc / h100().issue_per_cycle);
  return m;
}

Mix fp64(double pipe_pct, double ipc) {
  Mix m = computing(ipc);
  m.use[Channel::kFp64] = static_cast<float>(pipe_pct / 100);
  return m;
}

// Of 4 GB, with so much of the achievable DRAM bandwidth.
Mix copying(double ipc, double dram) {
  Mix m = kernel(1000, shape(132, 1024));
  m.use[Channel::kIssue] = static_cast<float>(ipc / h100().issue_per_cycle);
  m.use[Channel::kDram] = static_cast<float>(dram);
  return m;
}

double slowdown(const Mix& victim, const Mix& other) {
  const Mix both[] = {victim, other};
  return predict(both, 0, h100()).slowdown;
}

Channel binds(const Mix& victim, const Mix& other) {
  const Mix both[] = {victim, other};
  return predict(both, 0, h100()).binds;
}

// When one launch of each ends, in us: `first` was launched first. Who is done leaves the other
// alone.
struct Ends {
  double first_us = 0, second_us = 0;
};
Ends together(const Mix& first, const Mix& second) {
  const Mix both[] = {first, second};
  const Prediction of_first = predict(both, 0, h100()), of_second = predict(both, 1, h100());
  if (of_second.waits_for_us > 0) {  // launched first, the first was let in first
    return {first.duration_us, first.duration_us + second.duration_us};
  }
  const double slots = of_first.waits_for_us > 0 ? of_first.by[index_of(Channel::kSlots)] - 1 : 0;
  const double stretch[] = {of_first.slowdown - slots, of_second.slowdown};
  const double ends[] = {first.duration_us * stretch[0], second.duration_us * stretch[1]};
  const size_t early = ends[0] <= ends[1] ? 0 : 1, late = 1 - early;
  const double done = ends[early] / stretch[late];
  double out[2];
  out[early] = ends[early];
  out[late] = ends[early] + (late == 0 ? first : second).duration_us - done;
  return {out[0], out[1]};
}

// The papers' "speedup": one after the other over both together.
double speedup(const Mix& first, const Mix& second) {
  const Ends ends = together(first, second);
  return (first.duration_us + second.duration_us) / std::max(ends.first_us, ends.second_us);
}

constexpr SmSet kLowHalf(0x00ff), kHighHalf(0xff00);

TEST(InterferenceTest, AKernelAloneIsNotStretched) {
  const Mix alone[] = {copying(0.61, 0.9)};
  const Prediction p = predict(alone, 0, h100());
  EXPECT_EQ(p.slowdown, 1);
}

TEST(InterferenceTest, AnUnknownUseIsNotJudged) {
  Mix blank;
  const Mix both[] = {blank, copying(0.61, 0.9)};
  const Prediction p = predict(both, 0, h100());
  EXPECT_EQ(p.slowdown, 1);
}

// Pitfall 1 (SoCC) is pitfall 2 of Measuring: occupancy says nothing.
TEST(InterferenceTest, TwoComputingKernelsOfLowOccupancy) {
  const Mix compute = computing(3.45);
  EXPECT_EQ(binds(compute, compute), Channel::kIssue);
  check_rows(
      "pitfall: compute beside itself, 6.25 % occupancy (IPC 3.45 of S4)",
      {{"SoCC", slowdown(compute, compute), 1.73}, {"Measuring", slowdown(compute, compute), 1.85}},
      0.10, 0.07);
}

// Pitfall 2 (SoCC), and Table 3 of Measuring.
TEST(InterferenceTest, ACopyBesideComputingKernels) {
  const Mix copy = copying(0.61, 0.6918);
  std::vector<Row> rows;
  const double ipc[] = {1.08, 2.06, 2.9, 3.45, 4};
  const double measured[] = {1.915, 1.896, 1.893, 1.65, 1.001};
  for (int i = 0; i < 5; ++i) {
    const Mix compute = computing(ipc[i], i == 4 ? 256 : 128);
    rows.push_back({"S" + std::to_string(i + 1), speedup(compute, copy), measured[i], i == 3});
  }
  check_rows("Measuring, Table 3: speedup of copy beside compute", rows, 0.06, 0.05);
  EXPECT_EQ(binds(copy, computing(3.45)), Channel::kIssue);
  EXPECT_EQ(binds(copy, computing(4, 256)), Channel::kIssue);
  // "The execution time of copy doubles": it gets next to nothing while the other runs.
  const Mix saturating = computing(3.99, 1024);
  const double copy_ends = together(saturating, copying(0.57, 0.6918)).second_us / 1000;
  check_rows("SoCC, pitfall 2: copy beside compute at IPC 3.99", {{"copy", copy_ends, 2}}, 0.05,
             0.05);
  EXPECT_LT(slowdown(saturating, copying(0.57, 0.6918)), 1.05);  // and the other loses nothing
}

// Table 2 of SoCC: decode of Gemma3-1B on an RTX 3090, whose own IPC stands in a figure only: it is
// fitted to S4.
TEST(InterferenceTest, LlmDecodeBesideComputingKernels) {
  Mix decode = kernel(5590);
  decode.use[Channel::kIssue] = 0.232F;
  decode.use[Channel::kDram] = 0.6F;
  std::vector<Row> rows;
  const double ipc[] = {1.18, 2.06, 2.9, 3.45}, tbt[] = {5.75, 6.00, 6.24, 10.74};
  for (int i = 0; i < 4; ++i) {
    rows.push_back(
        {"S" + std::to_string(i + 1), slowdown(decode, computing(ipc[i])), tbt[i] / 5.59, i == 3});
  }
  check_rows("SoCC, Table 2: P90 TBT, batch 1", rows, 0.08, 0.06);
}

TEST(InterferenceTest, Fp64KernelsBesideThemselves) {
  const double pct[] = {24.22, 47.71, 69.42, 90.68}, ipc[] = {0.64, 1.10, 1.53, 1.96};
  const double socc[] = {1.93, 1.87, 1.33, 1.03};
  const double pct2[] = {24.96, 49.32, 72.99, 96.59}, ipc2[] = {0.51, 1.02, 1.53, 2.01};
  const double measuring[] = {1.988, 1.977, 1.356, 1.018};
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) {
    const Mix a = fp64(pct[i], ipc[i]), b = fp64(pct2[i], ipc2[i]);
    const std::string s = "S" + std::to_string(i + 1);
    rows.push_back({"SoCC, Table 3, " + s, speedup(a, a), socc[i], i == 3});
    rows.push_back({"Measuring, Table 4, " + s, speedup(b, b), measuring[i], i == 3});
    if (i >= 2) {
      EXPECT_EQ(binds(a, a), Channel::kFp64);
    }
  }
  check_rows("fp64: speedup of two", rows, 0.06, 0.04);
}

// Table 2 of Measuring: two copies on disjoint halves of the SMs.
TEST(InterferenceTest, CopiesOnDisjointSmsShareTheDram) {
  const double pct[] = {21.33, 40.12, 55.06, 69.18}, measured[] = {1.06, 1.14, 1.23, 1.36};
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) {
    Mix a = copying(0.61, pct[i] / 100), b = a;
    a.sm_set = kLowHalf, b.sm_set = kHighHalf;
    rows.push_back({std::to_string(33 * (i + 1)) + " blocks", slowdown(a, b), measured[i], i == 3});
    EXPECT_EQ(binds(a, b), Channel::kDram);
  }
  check_rows("Measuring, Table 2: two copies of 4 GB", rows, 0.06, 0.03);
}

// Table 1 of SoCC: Llama decode on 64 SMs beside a copy on 68. Its own use of the DRAM is not
// printed: it is fitted to the last column.
TEST(InterferenceTest, LlmDecodeBesideACopyOnOtherSms) {
  Mix decode = kernel(16900);
  decode.use[Channel::kDram] = 0.275F;
  decode.sm_set = kLowHalf;
  const double pct[] = {27, 51, 69, 81}, tbt[] = {17.6, 18.38, 19.92, 22};
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) {
    Mix copy = copying(0.61, pct[i] / 100);
    copy.sm_set = kHighHalf;
    rows.push_back(
        {std::to_string(34 * (i + 1)) + " blocks", slowdown(decode, copy), tbt[i] / 16.9, i == 3});
  }
  check_rows("SoCC, Table 1: P90 TBT beside a copy", rows, 0.05, 0.04);
}

Mix cached_copy(double array_mb) {
  Mix m = kernel(1000, shape(66, 1024));
  m.use[Channel::kL2Capacity] = static_cast<float>(2 * array_mb / h100().l2_mb);  // in and out
  return m;
}

// Figure 3 of SoCC and Figure 2 of Measuring: what the texts print of them. The cost of a miss is
// fitted to both peaks.
TEST(InterferenceTest, CopiesThatFitTheL2AloneDoNotFitTogether) {
  std::vector<Row> rows;
  const double mb[] = {4, 8, 16, 22.5, 26}, measured[] = {1, 1, 2.15, 1.79, 1.12};
  for (int i = 0; i < 5; ++i) {
    Mix a = cached_copy(mb[i]), b = a;
    a.sm_set = kLowHalf, b.sm_set = kHighHalf;
    char name[32];
    std::snprintf(name, sizeof name, "%.1f MB", mb[i]);
    rows.push_back({name, slowdown(a, b), measured[i], i == 2 || i == 3});
    if (measured[i] > 1.5) {
      EXPECT_EQ(binds(a, b), Channel::kL2Capacity);
    }
  }
  check_rows("L2 capacity: two copies on disjoint SMs", rows, 0.05, 0.03);
}

// Figure 3 of Measuring: alone the knee is at arrays of 108 KB (fitted: the size of the L1), two
// have it at 54.
TEST(InterferenceTest, TheKneeOfTheL1HalvesForTwo) {
  const auto copy = [](double array_kb) {
    Mix m = kernel(1000, shape(132, 64));
    m.use[Channel::kL1Capacity] = static_cast<float>(2 * array_kb / h100().l1_kb);
    return m;
  };
  EXPECT_LT(slowdown(copy(48), copy(48)), 1.05);
  EXPECT_GT(slowdown(copy(60), copy(60)), 1.3);
  EXPECT_EQ(binds(copy(60), copy(60)), Channel::kL1Capacity);
  EXPECT_LT(slowdown(copy(130), copy(130)), 1.05);  // it had no hits to lose
  Mix a = copy(60), b = copy(60);
  a.sm_set = kLowHalf, b.sm_set = kHighHalf;
  EXPECT_EQ(slowdown(a, b), 1);
}

// Figure 4 of SoCC: torch.mm beside a copy in shared memory of n-way conflicts. The use of
// torch.mm is not printed, and fitted to 32-way. Printed beside that: the knee is past 4-way.
TEST(InterferenceTest, BankConflictsOfANeighbourHoldUpSharedMemory) {
  const auto mm = [](float smem) {
    Mix m = kernel(1000);
    m.use[Channel::kSmem] = smem;
    return m;
  };
  const auto conflicts = [](float ways) {
    Mix m = kernel(1000);
    m.use[Channel::kSmem] = 1;
    m.use.smem_ways = ways;
    return m;
  };
  check_rows("SoCC, Figure 4: torch.mm beside n-way conflicts",
             {{"1024, 32-way", slowdown(mm(0.1135F), conflicts(32)), 3.75, true},
              {"2048, 32-way", slowdown(mm(0.0525F), conflicts(32)), 1.79, true},
              {"1024, 4-way", slowdown(mm(0.1135F), conflicts(4)), 1},
              {"2048, 4-way", slowdown(mm(0.0525F), conflicts(4)), 1}},
             0.05, 0.03);
  double last = 1;
  for (const float ways : {2.F, 4.F, 8.F, 16.F, 32.F}) {
    const double now = slowdown(mm(0.1135F), conflicts(ways));
    EXPECT_GE(now, last);
    last = now;
  }
}

// Measuring 4.3: torch.mm of 4 MB, IPC 3.0, FMA pipeline 60 %. Nothing is fitted to it.
TEST(InterferenceTest, TorchMmBesideItself) {
  Mix mm = computing(3.0);
  mm.shape.blocks = 128;
  mm.use[Channel::kFma] = 0.6F;
  check_rows("Measuring 4.3: torch.mm beside itself", {{"torch.mm", slowdown(mm, mm), 1.7}}, 0.12,
             0.12);
}

// SoCC 4.2: a decode kernel of 64 512 registers a block finds no room beside a sleeping kernel of
// 128 threads of 16 registers, and waits for its end.
TEST(InterferenceTest, ADecodeWaitsForASleepingKernel) {
  const Mix sleep = kernel(10'000, shape(132, 128, 16));
  const Mix decode = kernel(7'530, {132, 384, 168, 0, 0});
  const Company c = company(decode.shape, sleep.shape, SmCount(132), h100());
  EXPECT_EQ(c.alone, 1u);
  EXPECT_EQ(c.beside, 0u);
  EXPECT_EQ(c.limit, SlotLimit::kRegisters);
  const Mix both[] = {decode, sleep};
  const Prediction p = predict(both, 0, h100());
  EXPECT_EQ(p.binds, Channel::kSlots);
  EXPECT_EQ(p.waits_for_us, 10'000);
  // One sleep each step; the paper's first three kernels still overlap.
  check_rows("SoCC 4.2: P90 TBT beside a sleeping kernel, ms",
             {{"Llama-3.1-8B", together(sleep, decode).second_us / 1e3, 16.56}}, 0.07, 0.07);
}

// Measuring 4.1.1: 132 blocks of 1 024 threads overlap, 264 do not.
TEST(InterferenceTest, SleepingKernelsOverlapAsFarAsThreadsGo) {
  const Mix few = kernel(1000, shape(132, 1024)), many = kernel(1000, shape(264, 1024));
  const Ends side_by_side = together(few, few), in_turn = together(many, many);
  EXPECT_EQ(side_by_side.second_us, 1000);
  EXPECT_EQ(in_turn.first_us, 1000);
  EXPECT_EQ(in_turn.second_us, 2000);
  EXPECT_EQ(company(many.shape, many.shape, SmCount(132), h100()).limit, SlotLimit::kThreads);
}

// One block an SM, by registers.
Mix filling(uint32_t blocks, double us) { return kernel(us, {blocks, 1024, 64, 0, 1}); }

TEST(InterferenceTest, KernelsOfSeveralWavesTakeTurns) {
  const Mix slow = filling(1320, 100), fast = filling(264, 10);
  EXPECT_NEAR(slowdown(slow, fast) * 100, slowdown(fast, slow) * 10, 1e-6) << "one period";
  EXPECT_NEAR(slowdown(slow, fast), 1.1, 0.02);
  EXPECT_EQ(binds(fast, slow), Channel::kSlots);
}

// Two waves of 100 us, of which the last has 26 of 132 blocks: both fill 240 us, and take 400 us
// one after the other.
TEST(InterferenceTest, ALastWaveLeavesSlotsToWhoWaits) {
  const Mix a = filling(158, 200);
  EXPECT_GE(slowdown(a, a) * 200, 240);
  EXPECT_LT(slowdown(a, a) * 200, 320);
}

TEST(InterferenceTest, SmsThatASmallKernelLeavesAreUsed) {
  EXPECT_EQ(slowdown(filling(30, 10), filling(102, 1000)), 1);
  EXPECT_NEAR(slowdown(filling(60, 10), filling(102, 1000)), 2, 0.1) << "two waves on thirty SMs";
  EXPECT_GT(slowdown(filling(60, 10), filling(132, 1000)), 90) << "it leaves none";
}

// On an H100 such predictions were a quarter to seven times what was measured.
TEST(InterferenceTest, BesideALongKernelThatLeavesSomeSlotsASlowdownIsUnknown) {
  const auto known = [](Mix victim, Mix other, bool disjoint = false) {
    if (disjoint) victim.sm_set = kLowHalf, other.sm_set = kHighHalf;
    const Mix both[] = {victim, other};
    return predict(both, 0, h100()).known;
  };
  EXPECT_FALSE(known(filling(60, 10), filling(102, 40)));
  EXPECT_TRUE(known(filling(60, 10), filling(102, 39))) << "it does not stay for long";
  EXPECT_TRUE(known(filling(30, 10), filling(102, 40))) << "what it leaves is enough";
  EXPECT_TRUE(known(filling(60, 10), filling(132, 40))) << "it leaves none";
  EXPECT_TRUE(known(filling(60, 10), filling(264, 40))) << "it takes turns";
  EXPECT_TRUE(known(filling(60, 10), filling(102, 40), true)) << "each has its SMs";
}

// On 30 of 132 SMs a launch of 10 us takes five waves. Where blocks end from 60 % of the
// neighbour's time on, more of them end beside it.
TEST(InterferenceTest, BlocksThatEndEarlyLeaveTheirSlots) {
  const auto beside = [](float active) {
    Mix other = filling(102, 200);
    other.use.active = active * 102 / 132;
    return slowdown(filling(132, 10), other);
  };
  EXPECT_NEAR(beside(1), 4.2, 0.2) << "210 us for four launches beside it and one after it";
  EXPECT_EQ(beside(kUnknown), beside(1));
  EXPECT_NEAR(beside(0.8F), 2.6, 0.1) << "seven launches beside it";
  EXPECT_EQ(beside(0.1F), beside(0.5F)) << "a half at the least";
}

TEST(InterferenceTest, OnlyTheFirstLaunchAfterALongOneFindsTheL2Empty) {
  Mix victim = filling(132, 10), other = filling(102, 200);
  victim.use.dram_cold = victim.use[Channel::kDram] = 1.8F;
  victim.use[Channel::kL2Capacity] = 0.3F;
  other.use[Channel::kL2Capacity] = 2;
  EXPECT_NEAR(slowdown(victim, other), 4.4, 0.2) << "four launches of 42 us, and one of 18 us";
}

TEST(InterferenceTest, OneRunsInTheGapOfTheOthersStream) {
  const Mix a = filling(132, 10);
  EXPECT_NEAR(slowdown(a, a) * 10, 20 - 2 * h100().launch_gap_us, 1e-6);
}

// A kernel of one wave that leaves 30 SMs is never alone beside who is launched there.
TEST(InterferenceTest, LaunchesInTheSlotsThatItLeavesSlowAKernelByTheirTraffic) {
  const auto beside = [](float dram) {
    Mix kernel = filling(102, 200), other = filling(132, 10);
    kernel.use[Channel::kDram] = 1;
    other.use[Channel::kDram] = dram;
    return slowdown(kernel, other);
  };
  EXPECT_LT(beside(0), 1.05);
  EXPECT_GT(beside(1), beside(0) + 0.1);
}

TEST(InterferenceTest, KernelsThatFitBesideEachOtherDoNotWait) {
  const Mix half = kernel(10, shape(132, 1024, 16));
  EXPECT_EQ(slowdown(half, half), 1);
  Mix low = filling(264, 20), high = filling(264, 10);
  low.sm_set = kLowHalf, high.sm_set = kHighHalf;
  EXPECT_EQ(slowdown(low, high), 1);
}

// A working set that fits alone does not beside one that goes through as much meanwhile, and does
// beside one that is slow about it.
TEST(InterferenceTest, TheL2IsLostToWhoGoesThroughItMeanwhile) {
  const auto beside = [](double other_us) {
    Mix a = filling(66, 10), b = filling(66, other_us);
    a.sm_set = kLowHalf, b.sm_set = kHighHalf;
    for (Mix* m : {&a, &b}) {
      m->use.dram_cold = m->use[Channel::kDram] = 0.9F;
      m->use[Channel::kL2Capacity] = 0.8F;
    }
    return slowdown(a, b);
  };
  EXPECT_GT(beside(10), 1.5);
  EXPECT_LT(beside(1000), 1.25);
}

// Beside itself, each in two waves of all SMs: alone it finds its data in the L2.
TEST(InterferenceTest, KernelsThatTakeTurnsTakeTheL2FromEachOther) {
  const auto beside_itself = [](float l2) {
    Mix a = filling(264, 20);
    a.use.dram_cold = a.use[Channel::kDram] = 1.8F;
    a.use[Channel::kL2Capacity] = l2;
    return slowdown(a, a);
  };
  EXPECT_NEAR(beside_itself(0.4F), 2, 0.1) << "the L2 holds what both go through";
  EXPECT_NEAR(beside_itself(0.52F), 2.56, 0.1) << "a part of it is still there";
  EXPECT_NEAR(beside_itself(0.7F), 2 * 1.8, 0.3) << "it comes from the DRAM each time";
}

TEST(InterferenceTest, APredictionIsFiniteWhateverTheLaunches) {
  Mix nowhere = filling(132, 10);
  nowhere.shape.smem_bytes = 1 << 20;
  nowhere.use.active = 0;
  for (const double us : {0., 1e-3, 1e6}) {
    for (const uint32_t blocks : {0U, 1U, 131U, 4'000'000'000U}) {
      Mix kernel = filling(blocks, us);
      kernel.use.active = 0.5F;
      for (const Mix& other : {filling(264, 10), nowhere, filling(102, 10), kernel}) {
        for (const double s : {slowdown(kernel, other), slowdown(other, kernel)}) {
          EXPECT_TRUE(std::isfinite(s) && s >= 1) << us << ' ' << blocks;
        }
      }
    }
  }
}

TEST(InterferenceTest, SmChannelsCountWhereSmSetsOverlap) {
  Mix a = computing(3.45), b = computing(3.45);
  a.sm_set = kLowHalf, b.sm_set = kHighHalf;
  EXPECT_EQ(slowdown(a, b), 1);
  b.sm_set = SmSet(0x0ff0);
  EXPECT_GT(slowdown(a, b), 1.5);  // its slowest SM decides
  a.shape.blocks = 132 * 100;
  const double many_waves = slowdown(a, b);
  EXPECT_GT(many_waves, 1.1);
  EXPECT_LT(many_waves, 1.5);  // its blocks go where there is room
}

TEST(InterferenceTest, AThirdClientAddsToWhatTwoAskFor) {
  const Mix three[] = {copying(0.6, 0.4), copying(0.6, 0.4), copying(0.6, 0.4)};
  const double beside_two = predict(three, 0, h100()).slowdown;
  EXPECT_GT(beside_two, slowdown(three[0], three[1]) + 0.05);
}

TEST(InterferenceTest, AProbeFindsTheUseThatItsNeighbourFelt) {
  Mix neighbour = copying(0.2, 0.7), workload = copying(0.2, 0.45);
  neighbour.use[Channel::kIssue] = workload.use[Channel::kIssue] = kUnknown;
  const double felt = slowdown(neighbour, workload);
  EXPECT_NEAR(use_from_probe(Channel::kDram, 0.7, felt, h100()), 0.45, 0.01);
  EXPECT_EQ(use_from_probe(Channel::kL2Capacity, 0.7, 1.5, h100()), kUnknown);
}

}  // namespace
}  // namespace heddle::core
