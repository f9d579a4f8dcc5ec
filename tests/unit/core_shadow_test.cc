// A candidate beside the policy that decides: what it would have done is counted, and not done.
#include "daemon/core/shadow.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

// Places every launch, and runs the first one while it is open.
class Gate : public Policy {
 public:
  explicit Gate(bool is_open = false) : open(is_open) {}
  std::string_view name() const override { return "gate"; }
  AllowanceVerdict client_init(Gpu&, ClientId) override { return window; }
  AllowanceVerdict client_active(Gpu&, ClientId) override { return window; }
  EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
    if (at_once) return {HookResult::kDecided, true};
    gpu.queue_insert(gpu.queue_create("be"), id, 0);
    return {HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu& gpu) override {
    ++asked;
    if (stale) return {HookResult::kDecided, 77};
    if (fails) return {HookResult::kFault};
    const bool fits = gpu.gpu().inflight_us <= inflight_max_us;
    DispatchVerdict verdict{HookResult::kDecided};
    if (open && fits) verdict.run = gpu.queue_peek(gpu.queue_create("be"));
    return verdict;
  }
  void exit(Gpu&, Ending) override { ++exits; }

  bool open, at_once = false, stale = false, fails = false;
  double inflight_max_us = 1e9;
  AllowanceVerdict window;
  int asked = 0, exits = 0;
};

TimeNs fake_now = 0;
TimeNs slow_clock() { return fake_now += 1'000'000; }  // each look at it takes a millisecond

class ShadowTest : public CoreTest {
 protected:
  void shadow(Policy& candidate, const ShadowLimits& limits = {}) {
    ASSERT_TRUE(core_->begin_shadow(candidate, limits, now_));
  }
  using CoreTest::contend;
  void contend(Policy& live, Policy& candidate) {
    use(&live);
    shadow(candidate);
    contend();
  }
  ShadowOfClient of(ClientId id) {
    const ShadowReport report = core_->shadow().value();
    for (const ShadowOfClient& one : report.clients) {
      if (one.id == id) return one;
    }
    return {};
  }
};

TEST_F(ShadowTest, NothingThatACandidateSaysIsDone) {
  Gate live, candidate(true);
  contend(live, candidate);
  tick(1500 * kUs);
  EXPECT_TRUE(grants_.empty());
  live.open = true;
  tick(kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kPolicy);
  const ShadowOfClient two = of(2);
  EXPECT_EQ(two.counts.sooner, 1u);
  EXPECT_EQ(two.counts.alike + two.counts.later + two.counts.unseen, 0u);
  EXPECT_DOUBLE_EQ(two.counts.live.sum_us(), 2500);
  EXPECT_DOUBLE_EQ(two.counts.candidate.sum_us(), 0);
}

TEST_F(ShadowTest, ThePolicyBesideItselfDecidesAlike) {
  Gate live(true), candidate(true);
  use(&live);
  shadow(candidate);
  attach(1, 0);
  for (const ClientId id : {2u, 3u, 4u}) attach(id, 9);
  post(1);
  for (int i = 0; i < 50; ++i) {
    live.open = candidate.open = i % 3 == 0;
    for (const ClientId id : {2u, 3u, 4u}) ask(id);
    live.open = candidate.open = true;
    tick(kMs);
    for (const ClientId id : {2u, 3u, 4u}) done(id, 10);
  }
  for (const ClientId id : {2u, 3u, 4u}) {
    EXPECT_EQ(of(id).counts.alike, 50u) << id;
    EXPECT_EQ(of(id).counts.sooner + of(id).counts.later + of(id).counts.unseen, 0u) << id;
  }
}

TEST_F(ShadowTest, ALaunchThatTheCandidateStillHoldsIsLater) {
  Gate live(true), candidate;
  contend(live, candidate);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(of(2).counts.later, 1u);
}

TEST_F(ShadowTest, RunAtOnceByEnqueueIsAlikeWithRunByDispatch) {
  Gate live(true), candidate(true);
  live.at_once = true;
  contend(live, candidate);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(of(2).counts.alike, 1u);
}

TEST_F(ShadowTest, ALaunchThatTheCandidateLetGoIsInFlightForIt) {
  Gate live, candidate(true);
  candidate.inflight_max_us = 0;
  contend(live, candidate);
  attach(3, 9);
  ask(3);
  tick(10 * kUs);
  live.open = true;
  attach(4, 9);
  ask(4);
  EXPECT_EQ(grants_.size(), 3u);
  EXPECT_EQ(of(2).counts.sooner, 1u);
  EXPECT_EQ(of(3).counts.later, 1u) << "the first one would still be running";
}

TEST_F(ShadowTest, BesideTheBuiltInACandidateThatSaysNothingDecidesAlike) {
  class Silent : public Policy {
    std::string_view name() const override { return "silent"; }
  } candidate;
  shadow(candidate);
  contend();
  done(1, 100);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kBuiltin);
  EXPECT_EQ(of(2).counts.alike, 1u);
}

TEST_F(ShadowTest, WhatTheCoreForcesGoesThereAsWell) {
  Gate live, candidate;
  contend(live, candidate);
  tick(1'100 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kStarvation);
  EXPECT_EQ(of(2).counts.alike, 1u);
  EXPECT_EQ(of(2).counts.later, 0u);
}

TEST_F(ShadowTest, AClientThatTheCandidateLeasesNeverWaitsThere) {
  Gate live, candidate;
  candidate.window = {HookResult::kDecided, false, Allowance::kLeased};
  contend(live, candidate);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  live.open = true;
  tick(kMs);
  const ShadowOfClient two = of(2);
  EXPECT_EQ(two.counts.sooner, 1u);
  EXPECT_EQ(two.allowed, Allowance::kLeased);
  EXPECT_EQ(two.live_allowed, Allowance::kGated);
}

TEST_F(ShadowTest, ACandidatesFirstFaultEndsIt) {
  Gate live(true);
  for (const bool stale : {false, true}) {
    Gate candidate;
    candidate.fails = !stale;
    candidate.stale = stale;
    reset({});
    contend(live, candidate);
    ASSERT_TRUE(core_->shadow_is_over());
    EXPECT_TRUE(core_->shadow()->faulted);
    EXPECT_EQ(candidate.exits, 1);
    EXPECT_EQ(core_->stats().policy_faults, 0u);
    const int asked = candidate.asked;
    done(2, 10);
    ask(2);
    EXPECT_EQ(candidate.asked, asked) << "it is asked no more";
    EXPECT_TRUE(core_->end_shadow("")->faulted);
    EXPECT_FALSE(core_->shadow());
  }
  EXPECT_EQ(live.exits, 0);
}

TEST_F(ShadowTest, AnotherLivePolicyEndsIt) {
  Gate live, next, candidate(true);
  contend(live, candidate);
  use(&next);
  EXPECT_FALSE(core_->shadow());
  EXPECT_EQ(candidate.exits, 1);
  EXPECT_EQ(live.exits, 1);
  next.open = true;
  tick(kMs);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(ShadowTest, TheLivePolicysFaultsAreItsOwn) {
  Gate live, candidate(true);
  contend(live, candidate);
  wait(1);
  live.fails = true;
  for (int i = 0; i < 20; ++i) tick(2 * kMs);
  EXPECT_TRUE(core_->take_quarantined());
  EXPECT_TRUE(core_->shadow_is_over());
  EXPECT_FALSE(core_->shadow()->faulted);
  EXPECT_EQ(candidate.exits, 1);
}

TEST_F(ShadowTest, ACostlyCandidateIsSkippedAndWhatWaitsThenIsNotCompared) {
  Gate live(true), candidate(true);
  use(&live);
  shadow(candidate, {slow_clock, 0.05, 5'000'000});
  attach_both();
  post(1);
  for (int i = 0; i < 100; ++i) {
    ask(2);
    tick(100 * kUs);
    done(2, 10);
  }
  const ShadowReport report = *core_->shadow();
  EXPECT_GT(report.skipped, 90u);
  EXPECT_GT(of(2).counts.unseen, 90u);
  EXPECT_DOUBLE_EQ(report.longest_us, 1000);
  // A burst of 5 ms, a twentieth of the 10 ms that passed, and the hooks that are never left out.
  EXPECT_LT(report.spent_us, 9'000);
  EXPECT_EQ(grants_.size(), 100u);
}

TEST_F(ShadowTest, ClientsThatComeAndGoAreCountedApartUpToABound) {
  Gate live(true), candidate(true);
  use(&live);
  shadow(candidate);
  attach(1, 0);
  post(1);
  for (ClientId id = 2; id < 500; ++id) {
    attach(id, 9);
    ask(id);
    step(Event(EventKind::kDetached, now_, id));
  }
  const ShadowReport report = *core_->shadow();
  EXPECT_EQ(report.clients.size(), 256u);
  uint64_t sum = 0;
  for (const ShadowOfClient& one : report.clients) sum += one.counts.alike;
  EXPECT_EQ(sum, 498u);
  EXPECT_EQ(of(0).counts.alike, 498u - 255u);
}

// Does at random whatever a policy may do.
class Random : public Policy {
 public:
  Random(uint64_t seed, bool faults) : random_(seed), faults_(faults) {}
  std::string_view name() const override { return "random"; }
  AllowanceVerdict client_init(Gpu& gpu, ClientId id) override { return window(gpu, id); }
  AllowanceVerdict client_active(Gpu& gpu, ClientId id) override { return window(gpu, id); }
  AllowanceVerdict client_idle(Gpu& gpu, ClientId id) override { return window(gpu, id); }
  AllowanceVerdict client_update(Gpu& gpu, ClientId id) override { return window(gpu, id); }
  bool hears_updates() const override { return true; }
  KernelVerdict kernel_init(Gpu&, const LaunchView&) override {
    return {HookResult::kDecided, SmCount(8)};
  }
  bool hears_kernels() const override { return true; }
  bool hears_running() const override { return true; }
  bool hears_stopping() const override { return true; }
  bool hears_tick() const override { return false; }
  EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
    const auto what = random_() % 4;
    if (what < 2)
      gpu.queue_insert(gpu.queue_create(what == 0 ? "a" : "b"), id, static_cast<double>(what));
    if (what == 3) return {};
    return {HookResult::kDecided, what == 2};
  }
  DispatchVerdict dispatch(Gpu& gpu) override {
    if (faults_ && random_() % 50 == 0) return {HookResult::kFault};
    DispatchVerdict verdict{HookResult::kDecided};
    if (random_() % 3 == 0) return {};
    verdict.run = gpu.queue_peek(gpu.queue_create(random_() % 2 == 0 ? "a" : "b"));
    verdict.open = random_() % 2 == 0;
    return verdict;
  }

 private:
  AllowanceVerdict window(Gpu& gpu, ClientId id) {
    gpu.set_launch_priority(id, -static_cast<int>(random_() % 6));
    gpu.resize(id);
    if (random_() % 2 == 0) gpu.set_allowance(id, allowance(), random_() % 2 == 0 ? 0 : 500);
    if (random_() % 2 == 0) return {};
    return {HookResult::kDecided, random_() % 8 == 0, allowance()};
  }
  Allowance allowance() { return random_() % 2 == 0 ? Allowance::kLeased : Allowance::kGated; }

  std::mt19937_64 random_;
  const bool faults_;
};

// The same clients for every run: what they do depends on the seed and the decisions alone.
std::vector<Decision> decisions_of(uint64_t seed, bool shadowed) {
  Scheduler core{Config{}};
  Random live(seed, false), candidate(seed + 1, seed % 3 == 0);
  std::vector<Decision> all;
  bool ok = false;
  core.set_policy(&live, 1, ok);
  std::mt19937_64 random(seed);
  std::map<ClientId, uint32_t> asked, sequence;
  TimeNs now = 1;
  for (int i = 0; i < 3000; ++i) {
    if (shadowed && i == 100) core.begin_shadow(candidate, {}, now);
    if (shadowed && core.shadow_is_over()) core.end_shadow("");
    if (shadowed && i == 2500) core.end_shadow("enough");
    now += static_cast<TimeNs>(random() % 200) * kUs;
    const ClientId id = 1 + random() % 6;
    Event e(EventKind::kTick, now, id);
    switch (random() % 8) {
      case 0:
        e.kind = EventKind::kAttached;
        e.attached = {};
        e.attached.priority = static_cast<uint8_t>(random() % 10);
        break;
      case 1:
        e.kind = random() % 8 == 0 ? EventKind::kDetached : EventKind::kTick;
        break;
      case 2:
        e.kind = EventKind::kTerms;
        e.terms = {1, 0, static_cast<uint8_t>(random() % 10), {}};
        break;
      case 3:
      case 4:
        e.kind = EventKind::kCompleted;
        e.done = {sequence[id], 10, 0, Evidence::kSynchronized};
        break;
      default:
        e.kind = random() % 3 == 0 ? EventKind::kPosted : EventKind::kAsked;
        e.launch.stream_seq = ++sequence[id];
        if (e.kind == EventKind::kAsked) e.launch.ask_seq = ++asked[id];
    }
    for (const Decision& d : core.step(e)) all.push_back(d);
  }
  return all;
}

TEST(Shadow, ChangesNoDecisionWhateverTheCandidateDoes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto without = decisions_of(seed, false), with = decisions_of(seed, true);
    ASSERT_EQ(without.size(), with.size()) << "seed " << seed;
    ASSERT_GT(with.size(), 500u);
    for (size_t i = 0; i < with.size(); ++i) {
      ASSERT_EQ(std::tuple(without[i].kind, without[i].at, without[i].client, without[i].ask_seq,
                           without[i].allowed, without[i].decider, without[i].launch_priority),
                std::tuple(with[i].kind, with[i].at, with[i].client, with[i].ask_seq,
                           with[i].allowed, with[i].decider, with[i].launch_priority))
          << "seed " << seed << ", decision " << i;
    }
  }
}

}  // namespace
}  // namespace heddle::core
