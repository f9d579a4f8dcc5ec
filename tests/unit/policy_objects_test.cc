// The objects that hooks see: fields, errors, and that each stays what it is.
#include <numeric>

#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

// ---- objects ----------------------------------------------------------------------------------

TEST_F(PolicyTest, FieldsAndMethods) {
  dispatch(
      "local ids = 0 for c in g:clients() do ids = ids * 10 + c.id end "
      "trace('%d %s %g %g %s', ids, g.mode, g:gap_us(3), now_us(), tostring(g:busy(1)))");
  ASSERT_EQ(policy_->trace_lines().size(), 1u);
  EXPECT_EQ(policy_->trace_lines()[0], "123 mps 400 5 false");
}

TEST_F(PolicyTest, AKernelIdReadsAsInProfiles) {
  facts_.id = 0xab;
  load(with_hooks("enqueue = function(k) trace('%s', k.kernel.id) return RUN end"));
  policy_->enqueue(gpu_, 7);
  ASSERT_EQ(policy_->trace_lines().size(), 1u);
  EXPECT_EQ(policy_->trace_lines()[0], "00000000000000ab");
}

TEST_F(PolicyTest, AnUnknownFieldNamesTheNearest) {
  EXPECT_EQ(dispatch("return IDLE, g.inflite_us").result, HookResult::kFault);
  expect_fault("error", "test.lua:2: g has no field 'inflite_us'; did you mean 'inflight_us'?");
}

TEST_F(PolicyTest, ObjectsKeptPastTheirHookAreStale) {
  load(
      with_hooks("enqueue = function(k) kept = k return RUN end, "
                 "dispatch = function(g) return IDLE, kept.kind end",
                 "local kept"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  expect_fault("stale", "test.lua:2: k is stale");
}

TEST_F(PolicyTest, AMethodOfAStaleGpuIsRefused) {
  load(
      with_hooks("dispatch = function(g) kept = g return IDLE, tostring(g:busy(5)) end, "
                 "enqueue = function(k) if kept:busy(5) then return RUN end end",
                 "local kept"));
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided);
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kFault);
  expect_fault("stale", "test.lua:2: g is stale");
}

TEST_F(PolicyTest, AStaleLaunchCannotBeRunOrInserted) {
  load(
      with_hooks("enqueue = function(k) kept = k return RUN end, "
                 "dispatch = function(g) return RUN, kept end, "
                 "stopping = function(k) queue.insert('q', k, 1) end",
                 "local kept queue.create('q')"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  EXPECT_EQ(policy_->stopping(gpu_, gpu_.launches[7]), HookResult::kFault);
}

TEST_F(PolicyTest, ALaunchThatLeftDuringTheHookIsStale) {
  load(
      with_hooks("dispatch = function(g) local k = queue.peek('q') return RUN, k, k.wait_us end, "
                 "enqueue = function(k) return queue.insert('q', k, 1) end",
                 "queue.create('q')"));
  policy_->enqueue(gpu_, 7);
  gpu_.launches.clear();
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  expect_fault("stale", "k is stale");
}

// ---- objects of one hook call stay what they are
// -------------------------------------------------

TEST_F(PolicyTest, AClientKeptDuringAHookStaysThatClient) {
  gpu_.ids.resize(300);
  std::iota(gpu_.ids.begin(), gpu_.ids.end(), 1);
  dispatch(
      "local first, n = nil, 0 "
      "for c in g:clients() do n = n + 1 first = first or c end "
      "return IDLE, first.id .. ' of ' .. n");
  EXPECT_EQ(policy_->last_reason(), "1 of 300");
}

TEST_F(PolicyTest, ALoopOverClientsEndsWhateverItLooksAt) {
  load(
      with_hooks("enqueue = function(k) return queue.insert('q', k, 1) end, "
                 "dispatch = function(g) local k, n = queue.peek('q'), 0 "
                 "for c in g:clients() do for i = 1, 99 do n = n + k.client.id end end "
                 "return IDLE, tostring(n) end",
                 "queue.create('q')"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided);
  EXPECT_EQ(policy_->last_reason(), "297");
}

TEST_F(PolicyTest, AKernelIsItsLaunchsHoweverOftenItIsAskedFor) {
  gpu_.launches[8] = gpu_.launches[7];
  ipc::KernelFacts norm{};
  std::strcpy(norm.name, "norm");
  gpu_.launches[8].facts = &norm;
  load(
      with_hooks("enqueue = function(k) return queue.insert('q', k, k.kernel.name == 'gemm' and 1 "
                 "or 2) end, "
                 "dispatch = function(g) local first = queue.peek('q').kernel "
                 "for i = 1, 99 do local other = queue.best_fit('q', 50).kernel.name end "
                 "return IDLE, first.name end",
                 "queue.create('q')"));
  gpu_.launches[8].predicted_us = 10;
  policy_->enqueue(gpu_, 7);
  policy_->enqueue(gpu_, 8);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided) << policy_->last_fault().message;
  EXPECT_EQ(policy_->last_reason(), "gemm");
}

TEST_F(PolicyTest, LaunchesThatRunOutAreAnErrorAndNoOtherLaunch) {
  load(
      with_hooks("enqueue = function(k) return queue.insert('q', k, 1) end, "
                 "dispatch = function(g) for i = 1, 256 do queue.peek('q') end "
                 "if more then queue.peek('q') end more = true return IDLE, 'enough' end",
                 "local more queue.create('q')"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  expect_fault("error", "test.lua:2: this hook call has looked at 256 launches");
}

TEST_F(PolicyTest, ClientsThatComeAndGoLeaveNothingBehind) {
  load(with_hooks("client_init = function(c) return GATE end"));
  const auto cycle = [&](core::ClientId from, core::ClientId to) {
    for (core::ClientId id = from; id < to; ++id) {
      gpu_.ids = {id};
      ASSERT_EQ(policy_->client_init(gpu_, id).result, HookResult::kDecided);
      ASSERT_EQ(policy_->client_exit(gpu_, id), HookResult::kDefault);
    }
  };
  cycle(1, 1'000);
  const size_t used = policy_->memory_used();
  cycle(1'000, 20'000);
  EXPECT_LT(policy_->memory_used(), used + (256 << 10));
}

TEST_F(PolicyTest, AClientForWhichThereIsNoMemoryIsAFault) {
  limits_.memory_bytes = 512 << 10;
  load(with_hooks(""));
  HookResult result = HookResult::kDefault;
  for (core::ClientId id = 1; result == HookResult::kDefault && id < 100'000; ++id) {
    result = policy_->client_init(gpu_, id).result;
  }
  EXPECT_EQ(result, HookResult::kFault);
  expect_fault("memory", "out of memory");
}

TEST_F(PolicyTest, ObjectsAreReadOnly) {
  EXPECT_EQ(dispatch("g.mode = 1").result, HookResult::kFault);
  EXPECT_EQ(dispatch("p.quantum_us = 1").result, HookResult::kFault);
}

TEST_F(PolicyTest, AnObjectOfTheWrongKindIsAnError) {
  for (const char* body :
       {"g.gap_us(p, 1)", "queue.insert('q', g, 1)", "queue.insert('q', p, 1)", "g.gap_us(1, 1)",
        "g.clients(nil)", "queue.peek('r')", "queue.peek(g)", "queue.peek('q', 0)",
        "queue.insert('q', nil, 0/0)", "queue.best_fit('q', 0/0)"}) {
    EXPECT_EQ(dispatch(body, "queue.create('q')").result, HookResult::kFault) << body;
  }
}

}  // namespace
}  // namespace heddle::policy
