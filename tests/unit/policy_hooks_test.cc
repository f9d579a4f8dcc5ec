// Hooks around a policy's life and launches, and the maps that outlive a generation.
#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "daemon/policy/maps.h"
#include "daemon/policy/reference.h"
#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

std::string last_line(const LuaPolicy& policy) {
  return policy.trace_lines().empty() ? "" : policy.trace_lines().back();
}

TEST_F(PolicyTest, IdleSaysHowSoonItIsAskedAgain) {
  load(with_hooks("dispatch = function(g) return IDLE, 100, 'a pause that just began' end"));
  const core::DispatchVerdict verdict = policy_->dispatch(gpu_);
  EXPECT_EQ(verdict.result, HookResult::kDecided);
  EXPECT_EQ(verdict.again_us, 100);
  EXPECT_EQ(policy_->last_reason(), "a pause that just began");
  load(with_hooks("dispatch = function(g) return IDLE, -1 end"));
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
}

TEST_F(PolicyTest, ExitSaysWhyItsTimeIsOver) {
  load(with_hooks("exit = function(why) trace('%s', why) end"));
  policy_->exit(gpu_, core::Ending::kReplaced);
  EXPECT_EQ(last_line(*policy_), "replaced");
  policy_->exit(gpu_, core::Ending::kFaulted);
  EXPECT_EQ(last_line(*policy_), "faulted");
}

TEST_F(PolicyTest, HookTimesAreCountedByHook) {
  load(
      with_hooks("dispatch = function(g) return IDLE end, "
                 "enqueue = function(k) for i = 1, 9000 do local x = i end return RUN end"));
  for (int i = 0; i < 5; ++i) policy_->dispatch(gpu_);
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->times(Hook::kDispatch).calls(), 5u);
  const HookTimes& longer = policy_->times(Hook::kEnqueue);
  EXPECT_EQ(longer.calls(), 1u);
  EXPECT_EQ(policy_->times(Hook::kTick).calls(), 0u);
  EXPECT_GT(longer.sum_ns(), 9'000) << "so many turns of a loop";
  EXPECT_GE(longer.quantile_ns(1) * 2, static_cast<double>(longer.sum_ns()));
}

TEST(HookTimesTest, QuantilesLieInTheBucketOfTheirCall) {
  HookTimes times;
  for (const int64_t ns : {100, 125, 126, 3'000, 50'000'000}) times.add(ns);
  EXPECT_EQ(times.counts()[0], 2u);
  EXPECT_EQ(times.counts()[1], 1u);
  EXPECT_EQ(times.counts()[HookTimes::kBuckets - 1], 1u);
  EXPECT_EQ(times.sum_ns(), 50'003'351);
  EXPECT_DOUBLE_EQ(times.quantile_ns(0.4), 125);
  EXPECT_DOUBLE_EQ(times.quantile_ns(0.8), 4'000);
  EXPECT_DOUBLE_EQ(times.quantile_ns(1), HookTimes::bound_ns(HookTimes::kBuckets - 2));
}

TEST(HookTimesTest, ATimedCallStandsForThoseThatWereNot) {
  HookTimes times;
  uint64_t timed = 0;
  for (uint64_t call = 0; call < 3 * HookTimes::kTimedEvery + 1; ++call) {
    const bool this_one = times.times_next();
    this_one ? times.add(100) : times.pass();
    timed += this_one ? 1 : 0;
  }
  EXPECT_EQ(timed, 4u);
  EXPECT_EQ(times.calls(), 3 * HookTimes::kTimedEvery + 1);
  EXPECT_EQ(times.counts()[0], times.calls());
  EXPECT_EQ(times.sum_ns(), 100 * static_cast<int64_t>(times.calls()));
  times.pass();
  EXPECT_EQ(times.counts()[0] + 1, times.calls()) << "the next that is timed counts it";
  EXPECT_DOUBLE_EQ(times.quantile_ns(1), 125);
}

TEST_F(PolicyTest, DumpIsCutAndAFaultInItHidesNone) {
  load(
      with_hooks("dump = function() return string.rep('x', 5000) end, "
                 "dispatch = function(g) error('first') end"));
  EXPECT_EQ(policy_->dump(gpu_), std::string(kDumpBytes, 'x'));
  load(
      with_hooks("dump = function() error('second') end, exit = function() error('third') end, "
                 "dispatch = function(g) error('first') end"));
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->dump(gpu_), "(dump failed)");
  policy_->exit(gpu_, core::Ending::kFaulted);
  expect_fault("error", "first");
  load(with_hooks("dump = function() return 7 end"));
  EXPECT_EQ(policy_->dump(gpu_), "");
}

TEST_F(PolicyTest, AnUpdateGivesAnAllowance) {
  load(with_hooks("client_update = function(c, p) return LEASE end"));
  ASSERT_TRUE(policy_->hears_updates());
  const core::AllowanceVerdict verdict = policy_->client_update(gpu_, 2);
  EXPECT_EQ(verdict.result, HookResult::kDecided);
  EXPECT_EQ(verdict.allowed, core::Allowance::kLeased);
}

TEST_F(PolicyTest, RunningHearsOfALaunchWithoutAHandle) {
  load(
      with_hooks("running = function(k) trace('%s %g', k.kernel.name, k.predicted_us) end, "
                 "stopping = function(k) queue.insert('q', k, 1) end",
                 "queue.create('q')"));
  ASSERT_TRUE(policy_->hears_running());
  EXPECT_EQ(policy_->running(gpu_, gpu_.launches[7]), HookResult::kDefault);
  EXPECT_EQ(last_line(*policy_), "gemm 100");
  load(with_hooks("dispatch = function(g) return IDLE end"));
  EXPECT_FALSE(policy_->hears_running());
}

// ---- lib/labels.lua ---------------------------------------------------------------------------

class LabelsTest : public PolicyTest {
 protected:
  // Why the parameter refuses the load; "" if it does not.
  std::string refused(const std::string& policy, const std::string& param, const char* value) {
    auto loaded = load_policy_file(std::string(HEDDLE_POLICIES) + "/" + policy, {{param, value}});
    EXPECT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    policy_->init(gpu_);
    return policy_->last_fault().message;
  }
};

TEST_F(LabelsTest, AMalformedLabelRefusesTheLoadAndIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"api=64, embed", "sizes: entry 2, 'embed', is not LABEL=SMS; write api=64,embed=32"},
      {"api 64", "entry 1, 'api 64', is not"},
      {"=64", "entry 1, '=64', is not"},
      {"api=64,", "entry 2, '', is not"},
      {"api=64,,b=1", "entry 2, '', is not"},
      {"api=6 4", "entry 1, 'api=6 4', is not"},
      {"api=-1", "entry 1, 'api=-1', is not from 0 to 1024"},
      {"api=inf", "is not from 0 to 1024"},
      {"api=1.5", "is no whole number"},
      {"api=64, api =32", "entry 2, 'api =32', names its label again"},
  };
  for (const auto& [value, message] : cases) {
    for (const char* policy : {"shares.lua", "mmk.lua"}) {
      expect_contains(refused(policy, "sizes", value), message);
    }
  }
  expect_contains(refused("quota.lua", "quotas", "train=x"),
                  "quotas: entry 1, 'train=x', is not LABEL=SECONDS; write train=20,notebook=5");
  EXPECT_EQ(refused("quota.lua", "quotas", " train = 1.5 ,b=0"), "");
  EXPECT_EQ(refused("shares.lua", "sizes", "  "), "");
}

TEST_F(LabelsTest, ALabelWithoutAClientIsToldOnceSomebodyElseComes) {
  EXPECT_EQ(refused("shares.lua", "sizes", "api=64,embd=32"), "");
  LaunchView kernel;
  const auto come = [&](core::ClientId id, const char* label) {
    gpu_.label = label;
    policy_->client_init(gpu_, id);
    kernel.client = id;
    policy_->kernel_init(gpu_, kernel);
  };
  come(1, "api");
  EXPECT_EQ(policy_->trace_lines().size(), 0U) << "it may come yet";
  come(2, "embed");
  come(3, "embed");
  ASSERT_EQ(policy_->trace_lines().size(), 1U);
  EXPECT_EQ(policy_->trace_lines()[0],
            "sizes: no client has had the label 'embd' so far, and 'embed' is not named");
  come(2, "embd");
  come(3, "other");
  EXPECT_EQ(policy_->trace_lines().size(), 1U);
}

// ---- the reference ----------------------------------------------------------------------------

std::string file(const std::string& name) {
  std::ifstream stream(std::string(HEDDLE_POLICIES) + "/" + name);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(PolicyReference, DescribesWhatIsRegisteredAndNothingElse) {
  EXPECT_EQ(described_names(), registered_names());
  EXPECT_GT(registered_names().size(), 100u);
}

TEST(PolicyReference, TheFilesBeginWithWhatIsPrinted) {
  const std::string made = reference_markdown();
  EXPECT_EQ(file("REFERENCE.md").substr(0, made.size()), made)
      << "put what dist/bin/heddle policy reference prints above \"## Allowances\"";
  EXPECT_EQ(file("lib/api.lua"), reference_lua())
      << "run dist/bin/heddle policy reference --lua > policies/lib/api.lua";
}

// ---- maps -------------------------------------------------------------------------------------

TEST(PolicyMap, AHashIsFullAndAnLruForgetsTheOldest) {
  Map hash({MapForm::Kind::kHash, MapForm::Key::kNumber, 3, false});
  for (const uint64_t key : {10, 20, 30}) EXPECT_TRUE(hash.set(key, 1));
  EXPECT_FALSE(hash.set(40, 1));
  EXPECT_TRUE(hash.set(20, 2));
  EXPECT_TRUE(hash.erase(10));
  EXPECT_FALSE(hash.erase(10));
  EXPECT_TRUE(hash.set(40, 4));
  EXPECT_EQ(hash.size(), 3u);
  EXPECT_EQ(*hash.find(20), 2);
  Map lru({MapForm::Kind::kLru, MapForm::Key::kNumber, 3, false});
  for (const uint64_t key : {10, 20, 30}) EXPECT_TRUE(lru.set(key, 1));
  EXPECT_NE(lru.find(10), nullptr) << "now the newest";
  EXPECT_TRUE(lru.set(40, 1));
  EXPECT_EQ(lru.find(20), nullptr);
  EXPECT_NE(lru.find(10), nullptr);
  EXPECT_TRUE(lru.erase(40));
  EXPECT_TRUE(lru.set(50, 1));
  EXPECT_NE(lru.find(30), nullptr) << "there was room";
}

// As doubles, whole numbers differ in a few of their upper bits alone.
TEST(PolicyMap, KeysOfAnyStrideAreSpreadOverTheBuckets) {
  for (const double stride : {1.0, 8.0, 256.0, 65'536.0, 0.125, 1e9}) {
    Map map({MapForm::Kind::kHash, MapForm::Key::kNumber, 4096, false});
    for (int i = 0; i < 4096; ++i) map.set(std::bit_cast<uint64_t>(i * stride), i);
    EXPECT_LT(map.longest_chain(), 16u) << "stride " << stride;
  }
}

// Against a plain list, whatever the order of what is done.
TEST(PolicyMap, IsWhatAListWouldBe) {
  Map map({MapForm::Kind::kLru, MapForm::Key::kNumber, 16, false});
  std::vector<std::pair<uint64_t, double>> list;  // the oldest first
  uint64_t random = 7;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t key = random >> 59;
    const auto there =
        std::find_if(list.begin(), list.end(), [&](const auto& e) { return e.first == key; });
    const bool known = there != list.end();
    switch (random >> 40 & 3) {
      case 0:
        EXPECT_EQ(map.erase(key), known);
        if (known) list.erase(there);
        break;
      case 1:
        ASSERT_EQ(map.find(key) != nullptr, known);
        if (known) {
          EXPECT_EQ(*map.find(key), there->second);
          std::rotate(there, there + 1, list.end());
        }
        break;
      default:
        EXPECT_TRUE(map.set(key, i));
        if (known) list.erase(there);
        if (list.size() == 16) list.erase(list.begin());
        list.emplace_back(key, i);
    }
    ASSERT_EQ(map.size(), list.size());
  }
}

TEST_F(PolicyTest, MapsCountByNumberStringClientAndPlace) {
  dispatch(
      "n:set(1.5, 2) s:add('api', 3) s:add('api', 4) a:set(2, 9) "
      "for x in g:clients() do c:add(x, x.id) end "
      "trace('%g %g %g %s %s %d %d', n:get(1.5), s:get('api'), a:get(2), tostring(n:get(7)), "
      "tostring(n:set(2, 0)), c:len(), a:len()) n:erase(1.5) return IDLE, tostring(n:get(1.5))",
      "local n = map.hash('n', { max = 1 }) local s = map.lru('s', { key = 'string', max = 2 }) "
      "local a = map.array('a', { max = 4 }) local c = map.hash('c', { key = 'client', max = 8 })");
  EXPECT_EQ(policy_->last_fault().message, "");
  EXPECT_EQ(last_line(*policy_), "2 7 9 nil false 3 4");
  EXPECT_EQ(policy_->last_reason(), "nil");
}

TEST_F(PolicyTest, AClientsEntriesGoWithIt) {
  load(
      with_hooks("client_init = function(c) m:set(c, 1) end, "
                 "dispatch = function(g) return IDLE, tostring(m:len()) end",
                 "local m = map.hash('m', { key = 'client', max = 8 })"));
  policy_->client_init(gpu_, 1);
  policy_->client_init(gpu_, 2);
  policy_->client_exit(gpu_, 1);
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "1");
}

TEST_F(PolicyTest, KeptMapsGoOverToTheNextGeneration) {
  const std::string body = with_hooks(
      "dispatch = function(g) return IDLE, kept:add('x', 1) .. ' ' .. reset:add('x', 1) end",
      "local kept = map.hash('kept', { key = 'string', max = 8, reload = 'keep' }) "
      "local reset = map.hash('reset', { key = 'string', max = 8 })");
  load(body);
  policy_->dispatch(gpu_);
  const std::unique_ptr<LuaPolicy> before = std::move(policy_);
  load(body);
  EXPECT_TRUE(policy_->take_over(*before));
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "2 1");
  load(with_hooks("",
                  "local kept = map.hash('kept', { key = 'string', max = 9, reload = 'keep' })"));
  EXPECT_FALSE(policy_->take_over(*before));
  expect_fault("error", "test.lua: map 'kept' is kept over reloads, and of another form");
}

TEST_F(PolicyTest, AGenerationWritesIntoNoKeptMapOfAnother) {
  const std::string map = "local m = map.lru('m', { max = 8, reload = 'keep' })";
  const std::string told = "dispatch = function(g) return IDLE, m:get(1) .. ' ' .. m:len() end, ";
  load(with_hooks(told + "init = function() m:set(1, 1) end, exit = function() m:set(1, -1) end",
                  map));
  auto next = load_policy(
      text(with_hooks(told + "init = function() m:set(1, m:get(1) + 1) m:set(2, 2) end", map)));
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_TRUE((*next)->take_over(*policy_));
  (*next)->init(gpu_);
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "1 1") << "its successor may be refused yet";
  policy_->exit(gpu_, core::Ending::kReplaced);
  (*next)->dispatch(gpu_);
  EXPECT_EQ((*next)->last_reason(), "2 2");
}

TEST_F(PolicyTest, MapsWithoutSenseAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"map.hash('m', { max = 0 })", "map: max is from 1"},
      {"map.hash('m', { max = 65537 })", "65536 entries at most"},
      {"map.hash('m', { mx = 1 })", "unknown key 'mx'; did you mean 'max'?"},
      {"map.hash('m', { max = 1, key = 'strng' })", "map: key is \"number\" \"string\""},
      {"map.array('m', { max = 1, key = 'client' })", "leave key out"},
      {"local a = map.hash('m', { max = 1 }) map.lru('m', { max = 1 })", "made twice"},
  };
  for (const auto& [body, message] : cases) {
    const auto loaded = load_policy(text(with_hooks("", body)));
    ASSERT_FALSE(loaded) << body;
    expect_contains(loaded.error().message, message);
    expect_contains(loaded.error().message, "test.lua:1: ");
  }
  for (const char* body : {"m:get('x')", "m:set(1)", "m:get(0/0)", "m.x = 1", "m.get(1, 2)",
                           "map.hash('late', { max = 1 })"}) {
    EXPECT_EQ(dispatch(body, "local m = map.hash('m', { max = 1 })").result, HookResult::kFault)
        << body;
  }
}

}  // namespace
}  // namespace heddle::policy
