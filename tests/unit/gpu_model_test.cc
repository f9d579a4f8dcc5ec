#include "bench/sim/gpu_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

namespace heddle::sim {
namespace {

constexpr TimeNs kUs = 1'000;
constexpr TimeNs kMs = 1'000'000;

Op kernel(uint32_t blocks, TimeNs block_ns, uint32_t threads = 1024) {
  Op op;
  op.kind = OpKind::kKernel;
  op.kernel.blocks = blocks;
  op.kernel.threads = threads;
  op.kernel.block_ns = block_ns;
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
  EXPECT_EQ(when(second), 2 * (facts::kLaunchNs + kMs));
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

TEST_F(GpuModelTest, OverlappingKernelsShareBandwidth) {
  GpuModel gpu{GpuConfig{}};
  const ClientIndex client = gpu.add_client();
  // Blocks of 128 KiB: one per SM, though two of half the threads would fit otherwise.
  Op op = kernel(facts::kSmCount, kMs, 512);
  op.kernel.shared_bytes = 128 * 1024;
  op.kernel.bandwidth = 0.8F;
  Op beside = kernel(kWave / 2, kMs, 512);
  beside.kernel.bandwidth = 0.8F;
  const OpId alone = gpu.submit(0, gpu.open_stream(client), op);
  finish(gpu);
  EXPECT_EQ(when(alone), facts::kLaunchNs + kMs);
  const TimeNs start = gpu.now();
  const OpId one = gpu.submit(start, gpu.open_stream(client), op);
  gpu.submit(start, gpu.open_stream(client), beside);
  beside.kernel.blocks = kWave / 2;
  gpu.submit(start, gpu.open_stream(client), beside);
  finish(gpu);
  // 0.8 + 0.2 + 0.2 of the bandwidth: 0.8 of the time is stretched by 1.2.
  EXPECT_NEAR(static_cast<double>(when(one) - start - facts::kLaunchNs), 1.16 * kMs, 0.01 * kMs);
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

// FACTS, held out: "small kernel + sync every 200 µs (alone p50 11 µs) beside a deep queue of
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
    op.sms = {set, facts::kSmCount / 4};
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
