// GPU time by client: divided among all that are resident, and never more than there was.
#include <random>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

class GpuTimeTest : public CoreTest {
 protected:
  double gpu_us(ClientId id) {
    for (const ClientStatus& c : core_->view().clients()) {
      if (c.view.id == id) return c.gpu_us;
    }
    return 0;
  }
  void post(ClientId id, Admission admission) { step(launch(EventKind::kPosted, id, admission)); }
  void ended(ClientId id, float duration_us) { done(id, duration_us, Evidence::kMarker); }
};

TEST_F(GpuTimeTest, AClientAloneHasWhatItsLaunchesTook) {
  attach(1, 9);
  for (int i = 0; i < 100; ++i) {
    post(1, Admission::kLease);
    now_ += 300 * kUs;
    done(1, 280);
    now_ += 500 * kUs;
  }
  EXPECT_NEAR(gpu_us(1), 100 * 280, 1);
}

// Two clients, time-sliced: each launch takes twice its time, and both together what
// there was.
TEST_F(GpuTimeTest, EqualsThatAreSlicedHaveHalfOfItEach) {
  for (const ClientId id : {1, 2}) attach(id, 9, true);  // gates tell what is over
  const TimeNs start = now_;
  for (const ClientId id : {1, 2}) post(id, Admission::kLease);
  for (int i = 0; i < 200; ++i) {
    now_ += 500 * kUs;
    const ClientId id = 1 + i % 2;
    ended(id, 1'000);
    post(id, Admission::kLease);
  }
  const double elapsed_us = static_cast<double>(now_ - start) / 1e3;
  EXPECT_NEAR(gpu_us(1), elapsed_us / 2, 1'000);
  EXPECT_NEAR(gpu_us(2), elapsed_us / 2, 1'000);
}

// A client of short launches is told of one in many; what its rows leave of its part is for who is
// beside it.
TEST_F(GpuTimeTest, BesideRowsOfShortLaunchesALongOneHasTheRest) {
  attach_both();
  const TimeNs start = now_;
  post(2, Admission::kSelfStarved);
  for (int i = 0; i < 100; ++i) {
    Event e = launch(EventKind::kPosted, 1, Admission::kLease);
    e.launch.may_follow = 9;
    step(e);
    now_ += 10 * kUs;
    ended(1, 10);
    now_ += 390 * kUs;
    Event row(EventKind::kRow, now_, 1);
    row.untold = {9, 0, 0};
    step(row);
    if (i % 10 != 9) continue;
    ended(2, 4'000);
    post(2, Admission::kSelfStarved);
  }
  const double elapsed_us = static_cast<double>(now_ - start) / 1e3;
  EXPECT_NEAR(gpu_us(1), 100 * 10 * 10, 500);
  EXPECT_NEAR(gpu_us(2), elapsed_us - gpu_us(1), 2'000);
}

// Whatever clients do, in whatever order, and whatever they say that it took.
class GpuTimeSeedTest : public GpuTimeTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  std::mt19937 random_{GetParam()};

  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
  void act(ClientId id) {
    constexpr Admission kAdmissions[] = {Admission::kLease, Admission::kGated,
                                         Admission::kSelfStarved, Admission::kSelfExempt};
    Event untold(EventKind::kRow, now_, id);
    untold.untold = {below(24), 0, 0};
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return post(id, kAdmissions[below(4)]);
      case 3:
        return ask(id, static_cast<uint16_t>(below(3)));
      case 4:
        return wait(id);
      case 5:
      case 6:
        return done(id, static_cast<float>(below(5'000)));
      case 7:
        return ended(id, static_cast<float>(below(5'000)));
      case 8:
        untold.kind = below(2) == 0 ? EventKind::kUnobserved : EventKind::kObserved;
        [[fallthrough]];
      default:
        return step(untold);
    }
  }
};

TEST_P(GpuTimeSeedTest, TogetherClientsNeverHaveMoreThanThereWas) {
  Config config;
  config.mps = below(2) == 0;
  reset(config);
  const TimeNs start = now_;
  std::map<ClientId, double> had;
  ClientId newest = 0;
  for (int i = 0; i < 3'000; ++i) {
    now_ += below(4) == 0 ? below(3'000'000) : below(100'000);
    if (newest == 0 || below(100) == 0) {
      attach(++newest, static_cast<int>(below(10)));
      kernel(newest, 0, newest);
    } else if (below(300) == 0) {
      step(Event(EventKind::kDetached, now_, 1 + below(static_cast<uint32_t>(newest))));
    } else {
      act(1 + below(static_cast<uint32_t>(newest)));
    }
    if (core_->next_deadline() <= now_) tick(0);
    double sum_us = 0;
    for (const ClientStatus& c : core_->view().clients()) {
      ASSERT_GE(c.gpu_us, had[c.view.id]) << "it went back";
      had[c.view.id] = c.gpu_us;
    }
    for (const auto& [id, us] : had) sum_us += us;
    ASSERT_LE(sum_us, static_cast<double>(now_ - start) / 1e3 + 0.01)
        << "seed " << GetParam() << ", step " << i;
  }
  EXPECT_GT(had[1] + had[2] + had[3], 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuTimeSeedTest, ::testing::Range(1U, 21U));

}  // namespace
}  // namespace heddle::core
