#include "daemon/sim/gpu_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

namespace heddle::sim {
namespace {

constexpr TimeNs kUs = 1'000;
constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kLater = 50 * kUs;

Op kernel(uint32_t blocks, TimeNs block_ns, uint32_t threads = 1024) {
  Op op;
  op.kind = OpKind::kKernel;
  op.kernel.blocks = blocks;
  op.kernel.threads = threads;
  op.kernel.block_ns = block_ns;
  return op;
}

// One that computes, as real ones do.
Op busy(uint32_t blocks, TimeNs block_ns) {
  Op op = kernel(blocks, block_ns);
  op.kernel.saturation = facts::kSaturation;
  return op;
}

// Two blocks of 1024 threads fit on an SM: one full wave of the default GPU.
constexpr uint32_t kWave = 2 * facts::kSmCount;

class GpuModelTest : public ::testing::Test {
 protected:
  // Runs until nothing is left; completion times by operation.
  void finish(GpuModel& gpu) {
    while (gpu.next_event() != kNever) gpu.advance(gpu.next_event(), notices_);
  }
  TimeNs when(OpId op, Notice::Kind kind = Notice::kCompleted) const {
    for (const Notice& notice : notices_) {
      if (notice.op == op && notice.kind == kind) return notice.at;
    }
    return -1;
  }
  std::vector<Notice> notices_;
};

TEST_F(GpuModelTest, KernelAloneTakesItsWaves) {
  GpuModel gpu{GpuConfig{}};
  const StreamIndex s = gpu.open_stream(gpu.add_client());
  const OpId op = gpu.submit(0, s, kernel(3 * kWave - 5, 100 * kUs));
  finish(gpu);
  EXPECT_EQ(when(op), facts::kLaunchNs + 3 * 100 * kUs);
  EXPECT_EQ(gpu.waves(kernel(3 * kWave - 5, 1).kernel), 3U);
  EXPECT_TRUE(gpu.done(op));
}

TEST_F(GpuModelTest, AKernelThatIsEndedTakesNoMoreTimeForBlocksWithoutRoom) {
  GpuModel gpu{GpuConfig{}};
  const StreamIndex s = gpu.open_stream(gpu.add_client());
  const OpId op = gpu.submit(0, s, kernel(3 * kWave, kNever / 4));
  gpu.advance(kMs, notices_);
  EXPECT_NE(when(op, Notice::kStarted), -1);
  gpu.end_kernel(s);
  gpu.advance(kMs, notices_);
  EXPECT_EQ(when(op), kMs);
}

TEST_F(GpuModelTest, AKernelOfManyWavesIsEndedWhileOneRuns) {
  for (const TimeNs block_ns : {10 * kUs, kNever / 4}) {
    GpuModel gpu{GpuConfig{}};
    notices_.clear();
    const StreamIndex s = gpu.open_stream(gpu.add_client());
    const OpId op = gpu.submit(0, s, kernel(1000 * kWave, block_ns));
    gpu.advance(kMs, notices_);
    EXPECT_GT(gpu.next_event(), kMs);
    gpu.end_kernel(s);
    gpu.advance(kMs, notices_);
    EXPECT_EQ(when(op), kMs);
  }
}

// The waves of a kernel that is alone are one step, unless something happens between them.
TEST_F(GpuModelTest, AnEventBetweenTwoWavesChangesNeither) {
  std::mt19937 random(1);
  for (const Mode mode : {Mode::kMps, Mode::kTimeSlice}) {
    GpuConfig config;
    config.mode = mode;
    GpuModel gpu{config};
    notices_.clear();
    const ClientIndex client = gpu.add_client();
    const StreamIndex other = gpu.open_stream(client);
    const OpId op = gpu.submit(0, gpu.open_stream(client), kernel(40 * kWave + 7, 10 * kUs));
    for (TimeNs at = 0; at < 400 * kUs; at += random() % 2 == 0 ? facts::kLaunchNs : 5 * kUs) {
      gpu.advance(at, notices_);
      gpu.submit(at, other, Op{});
    }
    finish(gpu);
    const TimeNs begin = mode == Mode::kMps ? facts::kLaunchNs : facts::kSwitchNs;
    EXPECT_EQ(when(op), begin + 41 * 10 * kUs);
  }
}

TEST_F(GpuModelTest, OccupancyIsTheTightestLimit) {
  const GpuModel gpu{GpuConfig{}};
  KernelShape shape;
  shape.threads = 256;
  EXPECT_EQ(gpu.blocks_per_sm(shape), 8U);
  shape.registers = 64;
  EXPECT_EQ(gpu.blocks_per_sm(shape), 4U);
  shape.shared_bytes = 100 * 1024;
  EXPECT_EQ(gpu.blocks_per_sm(shape), 2U);
  shape = {};
  EXPECT_EQ(gpu.blocks_per_sm(shape), facts::kBlocksPerSm);
}

TEST_F(GpuModelTest, OneStreamRunsInOrderAndMarkersFollow) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex client = gpu.add_client();
  const StreamIndex a = gpu.open_stream(client);
  const StreamIndex b = gpu.open_stream(client);
  const OpId first = gpu.submit(0, a, kernel(1, kMs));
  const OpId second = gpu.submit(0, a, kernel(1, kMs));
  Op wait;
  wait.after = first;
  gpu.submit(0, b, wait);
  const OpId third = gpu.submit(0, b, kernel(1, kMs));
  finish(gpu);
  EXPECT_EQ(when(first), facts::kLaunchNs + kMs);
  EXPECT_EQ(when(second), facts::kLaunchNs + kMs + facts::kQueueNs + kMs);
  EXPECT_EQ(when(third), when(second));
}

TEST_F(GpuModelTest, SmallKernelsOfTwoClientsOverlapUnderMpsOnly) {
  for (const Mode mode : {Mode::kMps, Mode::kTimeSlice}) {
    GpuConfig config;
    config.mode = mode;
    GpuModel gpu{config};
    notices_.clear();
    const OpId one = gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(10, kMs));
    const OpId two = gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(10, kMs));
    finish(gpu);
    if (mode == Mode::kMps) {
      EXPECT_EQ(when(one), when(two));
    } else {
      EXPECT_EQ(when(two) - when(one), kMs + facts::kSwitchNs);
    }
  }
}

TEST_F(GpuModelTest, HigherPriorityGetsFreedRoomFirstAndPreemptsNothing) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex client = gpu.add_client();
  const OpId running = gpu.submit(0, gpu.open_stream(client), kernel(kWave, kMs));
  gpu.advance(100 * kUs, notices_);
  const OpId low = gpu.submit(100 * kUs, gpu.open_stream(client), kernel(kWave, kMs));
  gpu.advance(200 * kUs, notices_);
  const OpId high = gpu.submit(200 * kUs, gpu.open_stream(client, -5), kernel(kWave, kMs));
  finish(gpu);
  EXPECT_EQ(when(high, Notice::kStarted), when(running));
  EXPECT_EQ(when(low, Notice::kStarted), when(high));
}

TEST_F(GpuModelTest, AKernelIsReadyAfterItsLaunchAndAfterTheOneBeforeIt) {
  GpuModel gpu{GpuConfig{}};
  const StreamIndex s = gpu.open_stream(gpu.add_client());
  const OpId first = gpu.submit(0, s, kernel(1, 10 * kUs));
  gpu.advance(11 * kUs, notices_);
  const OpId late = gpu.submit(11 * kUs, s, kernel(1, kUs));
  finish(gpu);
  EXPECT_EQ(when(first), facts::kLaunchNs + 10 * kUs);
  // Submitted 1.84 us before the first one ended: launching takes longer than following it.
  EXPECT_LT(when(first) + facts::kQueueNs, 11 * kUs + facts::kLaunchNs + 1 * kUs);
  EXPECT_EQ(when(late, Notice::kStarted),
            std::max(when(first) + facts::kQueueNs, 11 * kUs + facts::kLaunchNs));
}

// Half of the GPU each, of two clients: side by side under MPS. Blocks that only wait, as those of
// heddle_spin, take as long as alone; SMs that compute are busy with half of them, so that each
// kernel takes twice as long, and both together as long as one after the other.
TEST_F(GpuModelTest, TwoHalvesRunSideBySideAndThoseThatComputeShareTheSms) {
  for (const Op& half : {kernel(kWave / 2, kMs), busy(kWave / 2, kMs)}) {
    notices_.clear();
    GpuModel gpu{GpuConfig{}};
    const OpId one = gpu.submit(0, gpu.open_stream(gpu.add_client()), half);
    const OpId two = gpu.submit(0, gpu.open_stream(gpu.add_client()), half);
    finish(gpu);
    EXPECT_EQ(when(one, Notice::kStarted), when(two, Notice::kStarted));
    EXPECT_EQ(when(one), facts::kLaunchNs + (half.kernel.saturation < 1 ? 2 * kMs : kMs));
    EXPECT_EQ(when(two), when(one));
  }
}

// 11 of 264 blocks, far fewer than make the SMs busy: what it takes alone times what it is beside.
TEST_F(GpuModelTest, ASmallKernelStretchesBesideALargeOneAndTheLargeOneDoesNot) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex client = gpu.add_client();
  const OpId large = gpu.submit(0, gpu.open_stream(client), busy(kWave - 11, 100 * kUs));
  const OpId small = gpu.submit(0, gpu.open_stream(client), busy(11, 10 * kUs));
  finish(gpu);
  EXPECT_NEAR(static_cast<double>(when(small) - facts::kLaunchNs),
              10 * kUs / double{facts::kSaturation}, 2);
  // The full GPU is 1 / (253 / 264) of what it fills alone, for as long as the small one runs.
  const double slowed = 10 * kUs / double{facts::kSaturation} * 11 / 264;
  EXPECT_NEAR(static_cast<double>(when(large) - facts::kLaunchNs), 100 * kUs + slowed, 2);
}

// What a large kernel leaves in its last wave goes to whoever waits, and not before.
TEST_F(GpuModelTest, ASmallKernelBehindALargeOneStartsWithItsLastWave) {
  GpuModel gpu{GpuConfig{}};
  gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(3 * kWave - 20, 100 * kUs));
  gpu.advance(kLater, notices_);
  const OpId small = gpu.submit(kLater, gpu.open_stream(gpu.add_client()), kernel(20, kUs));
  const OpId wide = gpu.submit(kLater, gpu.open_stream(gpu.add_client()), kernel(21, kUs));
  finish(gpu);
  EXPECT_EQ(when(small, Notice::kStarted), facts::kLaunchNs + 2 * 100 * kUs);
  EXPECT_GT(when(wide, Notice::kStarted), when(small, Notice::kStarted));
}

// Client priority: the first wave that ends lets the important kernel in, two waves early.
TEST_F(GpuModelTest, AnImportantKernelStartsWhenAnyBlocksOfALargeOneEnd) {
  GpuModel gpu{GpuConfig{}};
  gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(3 * kWave, 100 * kUs));
  gpu.advance(kLater, notices_);
  const OpId small = gpu.submit(kLater, gpu.open_stream(gpu.add_client(), -1), kernel(20, kUs));
  finish(gpu);
  EXPECT_EQ(when(small, Notice::kStarted), facts::kLaunchNs + 100 * kUs);
}

// An active thread percentage: 33 SMs' worth of room, whichever these are. Its second kernel waits
// for its first, and nobody else waits for either.
TEST_F(GpuModelTest, ALimitedClientTakesItsShareOfTheRoomAndHoldsUpNobody) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex limited = gpu.add_client(33);
  const OpId wave = gpu.submit(0, gpu.open_stream(limited), kernel(2 * 2 * 33, 100 * kUs));
  const OpId more = gpu.submit(0, gpu.open_stream(limited), kernel(1, 100 * kUs));
  const OpId other = gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(2 * 99, 100 * kUs));
  finish(gpu);
  EXPECT_EQ(when(wave), facts::kLaunchNs + 2 * 100 * kUs);
  EXPECT_EQ(when(more, Notice::kStarted), when(wave));
  EXPECT_EQ(when(other), facts::kLaunchNs + 100 * kUs);
}

// A quarter of the SMs: alone it fills no more than that, however many blocks it has. Beside three
// quarters of somebody else's it runs at `saturation`, and at full speed when that one is over.
TEST_F(GpuModelTest, ALimitedClientsKernelsAreSmallOnes) {
  GpuModel gpu{GpuConfig{}};
  const OpId limited = gpu.submit(0, gpu.open_stream(gpu.add_client(33)), busy(132, 100 * kUs));
  const OpId other = gpu.submit(0, gpu.open_stream(gpu.add_client()), busy(198, 75 * kUs));
  finish(gpu);
  EXPECT_NEAR(static_cast<double>(when(other) - facts::kLaunchNs), 100 * kUs, 2);
  const double first_wave_ns = 100 * kUs + 100 * kUs * (1 - double{facts::kSaturation});
  EXPECT_NEAR(static_cast<double>(when(limited) - facts::kLaunchNs), first_wave_ns + 100 * kUs, 3);
}

// Measured, held out: two processes under MPS on disjoint groups run at full speed at
// the same time (566 + 566 kernels/s); on the same groups 345 + 345. A kernel of 264 blocks
// (probes, xproc.cu) on 64 SMs.
TEST_F(GpuModelTest, DisjointSmSetsDoNotMeetAndEqualOnesShare) {
  constexpr Place kLow{ipc::SmSet(1), ipc::SmCount(64)}, kHigh{ipc::SmSet(2), ipc::SmCount(64)};
  const auto together_ns = [&](Place first, Place second) {
    GpuModel gpu{GpuConfig{}};
    notices_.clear();
    for (const Place& place : {first, second}) {
      const StreamIndex s = gpu.open_stream(gpu.add_client());
      Op op = busy(264, 590 * kUs);
      op.place = place;
      for (int i = 0; i < 8; ++i) gpu.submit(0, s, op);
    }
    finish(gpu);
    return static_cast<double>(gpu.now());
  };
  const double apart = together_ns(kLow, kHigh), same = together_ns(kLow, kLow);
  EXPECT_EQ(apart, static_cast<double>(facts::kLaunchNs + 7 * facts::kQueueNs + 24 * 590 * kUs));
  printf("same groups / disjoint: measured %.2f, model %.2f\n", 566.0 / 345, same / apart);
  EXPECT_NEAR(same / apart, 566.0 / 345, 0.25 * 566 / 345);
}

TEST_F(GpuModelTest, RemovedClientFreesItsRoom) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex dying = gpu.add_client();
  gpu.submit(0, gpu.open_stream(dying), kernel(kWave, 1000 * kMs));
  const OpId other = gpu.submit(0, gpu.open_stream(gpu.add_client()), kernel(kWave, kMs));
  gpu.advance(5 * kMs, notices_);
  gpu.remove_client(5 * kMs, dying);
  finish(gpu);
  EXPECT_EQ(when(other), 6 * kMs);
}

// Whatever is submitted when, every operation completes once, streams complete in order, and a
// second run gives the same answers.
TEST_F(GpuModelTest, RandomWorkCompletesOnceInOrderAndAgain) {
  const unsigned seed = std::random_device{}();
  printf("seed %u\n", seed);
  for (const Mode mode : {Mode::kMps, Mode::kTimeSlice}) {
    std::vector<Notice> runs[2];
    for (auto& notices : runs) {
      std::mt19937 random(seed);
      const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
      GpuConfig config;
      config.mode = mode;
      GpuModel gpu{config};
      std::vector<StreamIndex> streams;
      for (int i = 0; i < 6; ++i) streams.push_back(gpu.open_stream(gpu.add_client(), -(i % 3)));
      TimeNs now = 0;
      std::vector<OpId> submitted;
      for (int i = 0; i < 500; ++i) {
        Op op = kernel(draw(1000), draw(300'000), 1 + draw(1024));
        if (draw(4) == 0) op.kind = OpKind::kMarker;
        if (draw(4) == 0 && !submitted.empty()) op.after = submitted[random() % submitted.size()];
        submitted.push_back(gpu.submit(now, streams[random() % streams.size()], op));
        now += draw(200'000);
        gpu.advance(now, notices);
      }
      while (gpu.next_event() != kNever) gpu.advance(gpu.next_event(), notices);
      for (OpId op : submitted) EXPECT_TRUE(gpu.done(op));
    }
    std::map<StreamIndex, uint64_t> last;
    size_t completed = 0;
    TimeNs before = 0;
    for (const Notice& notice : runs[0]) {
      EXPECT_GE(notice.at, before);
      before = notice.at;
      if (notice.kind != Notice::kCompleted) continue;
      EXPECT_EQ(notice.op.seq, ++last[notice.op.stream]);
      ++completed;
    }
    EXPECT_EQ(completed, 500U);
    ASSERT_EQ(runs[0].size(), runs[1].size());
    for (size_t i = 0; i < runs[0].size(); ++i) {
      EXPECT_EQ(runs[0][i].op, runs[1][i].op);
      EXPECT_EQ(runs[0][i].at, runs[1][i].at);
    }
  }
}

// Measured, held out: "small kernel + sync every 200 µs (alone p50 11 µs) beside a deep queue of
// full-GPU kernels". Median latency in µs.
double small_beside_deep_us(Mode mode, TimeNs deep_kernel_ns) {
  constexpr TimeNs kAloneNs = 11 * kUs;
  GpuConfig config;
  config.mode = mode;
  GpuModel gpu{config};
  const StreamIndex small = gpu.open_stream(gpu.add_client());
  const StreamIndex deep = gpu.open_stream(gpu.add_client());
  std::vector<Notice> notices;
  std::vector<TimeNs> latencies;
  int queued = 0;
  for (; queued < 16; ++queued) gpu.submit(0, deep, kernel(kWave, deep_kernel_ns));
  TimeNs posted = 0;
  OpId waited{};
  TimeNs next_post = 5 * kMs;
  while (latencies.size() < 500) {
    const TimeNs now = std::min(gpu.next_event(), next_post);
    notices.clear();
    gpu.advance(now, notices);
    for (const Notice& notice : notices) {
      if (notice.kind != Notice::kCompleted) continue;
      if (notice.op.stream == deep) gpu.submit(now, deep, kernel(kWave, deep_kernel_ns));
      if (notice.op == waited) {
        latencies.push_back(notice.at - posted);
        next_post = now + 200 * kUs;
      }
    }
    if (now == next_post) {
      posted = now;
      waited = gpu.submit(now, small, kernel(1, kAloneNs - facts::kLaunchNs));
      next_post = kNever;
    }
  }
  std::sort(latencies.begin(), latencies.end());
  return static_cast<double>(latencies[latencies.size() / 2]) / kUs;
}

TEST_F(GpuModelTest, SetsOfSmsAreApartAndAnEqualSetIsShared) {
  GpuModel gpu{GpuConfig{}};
  // Four waves of 33 SMs each.
  const auto confined = [](uint32_t set) {
    Op op = kernel(kWave, kMs);
    op.place = {ipc::SmSet(set), ipc::SmCount(facts::kSmCount / 4)};
    return op;
  };
  const OpId apart = gpu.submit(0, gpu.open_stream(gpu.add_client()), confined(1));
  const OpId first = gpu.submit(0, gpu.open_stream(gpu.add_client()), confined(2));
  const OpId second = gpu.submit(0, gpu.open_stream(gpu.add_client()), confined(2));
  finish(gpu);
  EXPECT_EQ(when(apart), facts::kLaunchNs + 4 * kMs);
  EXPECT_EQ(when(first), facts::kLaunchNs + 4 * kMs);
  EXPECT_EQ(when(second), facts::kLaunchNs + 8 * kMs);
}

TEST_F(GpuModelTest, HeldOutLatenciesBesideADeepQueue) {
  struct {
    const char* what;
    Mode mode;
    TimeNs deep_ns;
    double measured_us;
  } const rows[] = {{"time-slicing", Mode::kTimeSlice, 1400 * kUs, 2215},
                    {"MPS, 180 us kernels", Mode::kMps, 180 * kUs, 166},
                    {"MPS, 1.4 ms kernels", Mode::kMps, 1400 * kUs, 1225}};
  for (const auto& row : rows) {
    const double model_us = small_beside_deep_us(row.mode, row.deep_ns);
    const double error = model_us / row.measured_us - 1;
    printf("%-20s measured %6.0f us, model %6.0f us, error %+.1f %%\n", row.what, row.measured_us,
           model_us, 100 * error);
    EXPECT_LT(std::abs(error), 0.25) << row.what;
  }
}

}  // namespace
}  // namespace heddle::sim
