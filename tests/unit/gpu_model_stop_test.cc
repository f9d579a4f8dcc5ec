// Clients that are stopped, and slices of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "daemon/sim/gpu_model.h"

namespace heddle::sim::stops {
namespace {

constexpr TimeNs kUs = 1'000;
constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kFirst =
    facts::kSwitchNs;  // when the first kernel runs, on the GPU switched to it

// One wave of the whole GPU.
Op kernel(TimeNs block_ns, uint32_t waves = 1) {
  Op op;
  op.kind = OpKind::kKernel;
  op.kernel.blocks = waves * 2 * facts::kSmCount;
  op.kernel.threads = 1024;
  op.kernel.block_ns = block_ns;
  return op;
}

class GpuModelStopTest : public ::testing::Test {
 protected:
  void start(Mode mode) {
    GpuConfig config;
    config.mode = mode;
    gpu_ = GpuModel(config);
    notices_.clear();
    low_ = gpu_.add_client();
    high_ = gpu_.add_client();
    low_stream_ = gpu_.open_stream(low_);
    high_stream_ = gpu_.open_stream(high_);
  }
  void SetUp() override { start(Mode::kTimeSlice); }
  void to(TimeNs at) { gpu_.advance(at, notices_); }
  void stop(TimeNs at) {
    to(at);
    gpu_.stop(at, low_);
  }
  void go_on(TimeNs at) {
    to(at);
    gpu_.go_on(at, low_);
  }
  OpId submit(TimeNs at, StreamIndex stream, const Op& op) {
    to(at);
    return gpu_.submit(at, stream, op);
  }
  void finish() {
    while (gpu_.next_event() != kNever) to(gpu_.next_event());
  }
  TimeNs when(OpId op, Notice::Kind kind = Notice::kCompleted) const {
    for (const Notice& notice : notices_) {
      if (notice.op == op && notice.kind == kind) return notice.at;
    }
    return -1;
  }
  double progress_ms(ClientIndex client) const { return gpu_.gpu_ns(client) / kMs; }

  GpuModel gpu_{GpuConfig{}};
  ClientIndex low_ = 0, high_ = 0;
  StreamIndex low_stream_ = 0, high_stream_ = 0;
  std::vector<Notice> notices_;
};

TEST_F(GpuModelStopTest, AStoppedKernelTakesExactlyItsRestAndOthersAreAsIfAlone) {
  for (const uint32_t waves : {1U, 40U}) {
    start(Mode::kTimeSlice);
    const OpId low = submit(0, low_stream_, kernel(20 * kMs / waves, waves));
    stop(10 * kMs);
    const TimeNs stands = 10 * kMs + facts::kStopNs;
    to(stands + kMs);
    const double before = gpu_.gpu_ns(low_);
    EXPECT_EQ(before, static_cast<double>(stands - kFirst));
    const TimeNs begin = stands + kMs;
    const OpId high = submit(begin, high_stream_, kernel(30 * kMs));
    go_on(begin + 50 * kMs);
    EXPECT_EQ(when(high), begin + facts::kSwitchNs + 30 * kMs);  // launched meanwhile
    EXPECT_EQ(gpu_.gpu_ns(low_), before);
    finish();
    const TimeNs goes_on = begin + 50 * kMs + facts::kGoOnNs + facts::kSwitchNs;
    EXPECT_EQ(when(low), goes_on + 20 * kMs - (stands - kFirst));
    EXPECT_EQ(gpu_.gpu_ns(low_), double{20 * kMs});
  }
}

TEST_F(GpuModelStopTest, AStopTakesTheGpuFromAKernelAtOnce) {
  gpu_.set_slice(0, low_, 100 * kMs);
  submit(0, low_stream_, kernel(1000 * kMs));
  const OpId high = submit(5 * kMs, high_stream_, kernel(kMs));
  stop(5 * kMs);
  finish();
  EXPECT_EQ(when(high), 5 * kMs + facts::kStopNs + facts::kSwitchNs + kMs);
  EXPECT_EQ(gpu_.next_event(), kNever);
}

TEST_F(GpuModelStopTest, AStoppedClientStartsNothingAndItsDelaysGoOn) {
  stop(0);
  Op copy;
  copy.kind = OpKind::kDelay;
  copy.delay_ns = kMs;
  to(kMs);
  const OpId empty = submit(kMs, low_stream_, [] {
    Op op = kernel(0);
    op.kernel.blocks = 0;
    return op;
  }());
  const OpId marker = submit(kMs, gpu_.open_stream(low_), Op{});
  const OpId copied = submit(kMs, gpu_.open_stream(low_), copy);
  go_on(5 * kMs);
  EXPECT_EQ(when(copied), 2 * kMs);
  finish();
  EXPECT_EQ(when(marker), 5 * kMs + facts::kGoOnNs);
  EXPECT_EQ(when(empty), 5 * kMs + facts::kGoOnNs + facts::kQueueNs);
}

TEST_F(GpuModelStopTest, TheLastOrderCounts) {
  const OpId low = submit(0, low_stream_, kernel(10 * kMs));
  stop(kMs);
  go_on(kMs + 100 * kUs);  // before it stands
  stop(2 * kMs);
  stop(2 * kMs + 100 * kUs);  // changes nothing
  go_on(5 * kMs);
  stop(5 * kMs + 100 * kUs);  // before it goes on
  to(6 * kMs);
  EXPECT_EQ(gpu_.gpu_ns(low_), static_cast<double>(2 * kMs + facts::kStopNs - kFirst));
  go_on(6 * kMs);
  finish();
  EXPECT_EQ(when(low), 6 * kMs + facts::kGoOnNs + 8 * kMs - facts::kStopNs + kFirst);
}

TEST_F(GpuModelStopTest, WhatIsRemovedWhileStoppedLeavesNothingBehind) {
  for (const Mode mode : {Mode::kTimeSlice, Mode::kMps}) {
    start(mode);
    gpu_.set_slice(0, low_, kMs);
    submit(0, low_stream_, kernel(1000 * kMs));
    stop(kMs);
    const OpId high = submit(2 * kMs, high_stream_, kernel(kMs));
    stop(5 * kMs);  // changes nothing
    gpu_.remove_client(5 * kMs, low_);
    const ClientIndex next = gpu_.add_client();
    EXPECT_EQ(next, low_);
    const OpId other = submit(5 * kMs, gpu_.open_stream(next), kernel(kMs));
    finish();
    EXPECT_NE(when(high), -1);
    EXPECT_NE(when(other), -1);
  }
}

// All clients of MPS are one context to the GPU.
TEST_F(GpuModelStopTest, UnderMpsOneStopsAllAndSlicesHaveNoEffect) {
  start(Mode::kMps);
  gpu_.set_slice(0, low_, 100 * kUs);
  Op small = kernel(10 * kMs);
  small.kernel.blocks = 10;
  const OpId low = submit(0, low_stream_, small);
  const OpId high = submit(0, high_stream_, small);
  stop(5 * kMs);
  gpu_.stop(5 * kMs, high_);
  go_on(8 * kMs);
  to(19 * kMs);  // the other one still stands
  EXPECT_EQ(when(high), -1);
  gpu_.go_on(20 * kMs, high_);
  finish();
  const TimeNs stood = 15 * kMs - facts::kStopNs + facts::kGoOnNs;
  EXPECT_EQ(when(low), facts::kLaunchNs + 10 * kMs + stood);
  EXPECT_EQ(when(high), when(low));
}

// Measured: 3 000 : 1 000 us gives 15.0 : 4.9 of progress.
TEST_F(GpuModelStopTest, SlicesAreTheSharesOfBusyEquals) {
  gpu_.set_slice(0, low_, 3 * kMs);
  gpu_.set_slice(0, high_, kMs);
  submit(0, low_stream_, kernel(1000 * kMs));
  submit(0, high_stream_, kernel(1000 * kMs));
  to(1000 * kMs);
  EXPECT_NEAR(progress_ms(low_) / progress_ms(high_), 3.0, 0.02);
  gpu_.set_slice(1000 * kMs, low_, 0);
  gpu_.set_slice(1000 * kMs, high_, 0);
  const double low = progress_ms(low_), high = progress_ms(high_);
  to(1200 * kMs);
  EXPECT_NEAR((progress_ms(low_) - low) / (progress_ms(high_) - high), 1.0, 0.03);
}

TEST_F(GpuModelStopTest, AShorterSliceCutsTheOneThatRuns) {
  gpu_.set_slice(0, low_, 20 * kMs);
  submit(0, low_stream_, kernel(1000 * kMs));
  const OpId high = submit(5 * kMs, high_stream_, kernel(kMs));
  gpu_.set_slice(5 * kMs, low_, 200 * kUs);
  to(10 * kMs);
  EXPECT_EQ(when(high), 5 * kMs + 200 * kUs + facts::kSwitchNs + kMs);
}

// Measured: "two contexts at 1 us beside each other make no progress at all and cannot even end;
// one at 1 us beside one at 1 000 makes none".
TEST_F(GpuModelStopTest, TheShortestSlicesGiveNothingToThoseWhoMeet) {
  gpu_.set_slice(0, low_, kUs);
  const OpId low = submit(0, low_stream_, kernel(50 * kMs));
  to(10 * kMs);
  const double alone = progress_ms(low_);
  EXPECT_NEAR(alone, 10, 0.1);
  const OpId high = submit(10 * kMs, high_stream_, kernel(50 * kMs));
  gpu_.set_slice(10 * kMs, high_, kUs);
  to(100 * kMs);
  EXPECT_NEAR(progress_ms(low_), alone, 0.01);
  EXPECT_EQ(progress_ms(high_), 0);
  gpu_.set_slice(100 * kMs, high_, kMs);
  finish();
  EXPECT_LT(when(high), 160 * kMs);
  EXPECT_NEAR(static_cast<double>(when(low) - when(high)), 40 * kMs, kMs);
}

// Requests of one kernel (alone 108 us), the next one about 1.4 ms after the one before, beside
// kernels of 20 ms on all SMs without end.
double wait_us(TimeNs low_slice_ns) {
  GpuConfig config;
  config.mode = Mode::kTimeSlice;
  GpuModel gpu{config};
  const ClientIndex low = gpu.add_client();
  const StreamIndex deep = gpu.open_stream(low), small = gpu.open_stream(gpu.add_client());
  gpu.set_slice(0, low, low_slice_ns);
  for (int i = 0; i < 1000; ++i) gpu.submit(0, deep, kernel(20 * kMs));
  std::vector<Notice> notices;
  TimeNs sum = 0, now = 5 * kMs;
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) {
    gpu.advance(now, notices);
    const TimeNs posted = now;
    const OpId waited = gpu.submit(now, small, kernel(105 * kUs));
    while (!gpu.done(waited)) gpu.advance(now = gpu.next_event(), notices);
    sum += now - posted;
    now += (1300 + i % 200) * kUs;
  }
  return static_cast<double>(sum) / kRequests / kUs;
}

// Measured, held out: what is missing is the switch, 180 us there and facts::kSwitchNs here.
TEST_F(GpuModelStopTest, AShortSliceBelowLowersTheWaitOfAnImportantRequest) {
  struct {
    TimeNs slice_ns;
    double measured_us;
  } const rows[] = {{20'000 * kUs, 19'171}, {2'048 * kUs, 968}, {1'000 * kUs, 851},
                    {200 * kUs, 416},       {100 * kUs, 335},   {kUs, 287}};
  double before = 1e9;
  for (const auto& row : rows) {
    const double model_us = wait_us(row.slice_ns);
    printf("slice %5.0f us: measured %6.0f us, model %6.0f us, error %+.0f %%\n",
           static_cast<double>(row.slice_ns) / kUs, row.measured_us, model_us,
           100 * (model_us / row.measured_us - 1));
    EXPECT_NEAR(model_us, row.measured_us, 0.4 * row.measured_us);
    EXPECT_LT(model_us, before);
    before = model_us;
  }
}

}  // namespace
}  // namespace heddle::sim::stops
