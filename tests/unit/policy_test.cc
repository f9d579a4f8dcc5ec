// The Lua engine: what a policy can say, what happens when it is wrong, and what it cannot reach.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "tests/sanitized.h"
#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

using namespace std::string_literals;

// For what ends by fuel or memory, however slow the build and the machine.
Limits patient() { return {.cpu_ms = 1000}; }

std::string load_error(const std::string& body) {
  const auto policy = load_policy(text(body), {}, patient());
  return policy ? "" : policy.error().message;
}

TEST_F(PolicyTest, AKernelsMeanIsOfItsIdAndAPredictionOfTheLaunch) {
  gpu_.launches[7].mean_us = 90;
  load(
      with_hooks("enqueue = function(k) "
                 "  assert(k.kernel.mean_us == 90 and k.predicted_us == 100) "
                 "  return queue.insert('q', k, 0) "
                 "end",
                 "queue.create('q')"));
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kDecided)
      << policy_->last_fault().message;
}

// ---- verdicts ---------------------------------------------------------------------------------

TEST_F(PolicyTest, RunsWhatDispatchNames) {
  load(
      with_hooks("enqueue = function(k) return queue.insert('q', k, k.priority) end, "
                 "dispatch = function(g) return OPEN, queue.peek('q'), 23.5, -2, 'why' end",
                 "queue.create('q')"));
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kDecided);
  const auto verdict = policy_->dispatch(gpu_);
  EXPECT_EQ(verdict.result, HookResult::kDecided);
  EXPECT_EQ(verdict.run, 7u);
  EXPECT_EQ(verdict.sm.get(), 24u);
  EXPECT_EQ(verdict.launch_priority, -2);
  EXPECT_TRUE(verdict.open);
  EXPECT_EQ(policy_->last_reason(), "why");
}

TEST_F(PolicyTest, IdleKeepsItsReason) {
  const auto verdict = dispatch("return IDLE, 'gap too short'");
  EXPECT_EQ(verdict.result, HookResult::kDecided);
  EXPECT_EQ(verdict.run, 0u);
  EXPECT_EQ(policy_->last_reason(), "gap too short");
  EXPECT_EQ(policy_->last_verdict(), "IDLE");
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->said().at(0).count, 2u);
}

TEST_F(PolicyTest, NilAndAbsentHooksLeaveTheDecisionToTheBuiltin) {
  EXPECT_EQ(dispatch("return nil").result, HookResult::kDefault);
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kDefault);
  EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kDefault);
}

TEST_F(PolicyTest, AllowanceVerdicts) {
  load(
      with_hooks("client_init = function(c) if c.id == 1 then return LEASE end "
                 "return REFUSE, 'full' end, "
                 "client_active = function(c) return GATE end, "
                 "client_idle = function(c) c:gate(20) c:launch_priority(-3) end, "
                 "client_exit = function(c) c:launch_priority() end"));
  EXPECT_EQ(policy_->client_init(gpu_, 1).allowed, core::Allowance::kLeased);
  EXPECT_TRUE(policy_->client_init(gpu_, 3).refuse);
  EXPECT_EQ(policy_->last_reason(), "full");
  EXPECT_EQ(policy_->client_active(gpu_, 1).allowed, core::Allowance::kGated);
  EXPECT_EQ(policy_->client_idle(gpu_, 2).result, HookResult::kDefault);
  EXPECT_EQ(gpu_.cut_set, std::tuple(core::ClientId{2}, core::Allowance::kGated, 20.0));
  EXPECT_EQ(gpu_.launch_priority_set, std::pair(core::ClientId{2}, -3));
  EXPECT_EQ(policy_->client_exit(gpu_, 2), HookResult::kDefault);
  EXPECT_EQ(gpu_.launch_priority_set.second, core::kBuiltinPriority);
}

TEST_F(PolicyTest, ALaunchPriorityThatCudaDoesNotHaveIsAnError) {
  for (const char* level : {"-6", "1", "0/0", "'high'"}) {
    load(with_hooks("client_init = function(c) c:launch_priority("s + level + ") end"));
    EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kFault) << level;
  }
  load(with_hooks("client_init = function(c) c:launch_priority(-6) end"));
  policy_->client_init(gpu_, 1);
  expect_fault("error", "a launch priority is -5 (first) to 0 (last)");
}

TEST_F(PolicyTest, APolicySaysWhoIsStoppedAndForHowLongEachHasTheGpu) {
  load(with_hooks("client_init = function(c) c:stop('long') c:slice(500) end"));
  EXPECT_EQ(policy_->client_init(gpu_, 2).result, HookResult::kDefault);
  EXPECT_EQ(gpu_.stop_set, std::pair(core::ClientId{2}, core::StopWhen::kLong));
  EXPECT_EQ(gpu_.slice_set, std::pair(core::ClientId{2}, 500u));
  for (const char* order : {"stop()", "stop('now')", "stop(1)", "slice()", "slice(99)", "slice(-1)",
                            "slice(0/0)", "slice(1000001)"}) {
    load(with_hooks("client_init = function(c) c:"s + order + " end"));
    EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kFault) << order;
  }
}

TEST_F(PolicyTest, APolicyParksAClient) {
  load(with_hooks("client_init = function(c) if not c.parked then c:park() end end"));
  EXPECT_EQ(policy_->client_init(gpu_, 2).result, HookResult::kDefault);
  EXPECT_EQ(gpu_.parked_set, std::pair(core::ClientId{2}, true));
  load(with_hooks("client_init = function(c) if c.resident_bytes == 0 then c:unpark() end end"));
  EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kDefault);
  EXPECT_EQ(gpu_.parked_set, std::pair(core::ClientId{1}, false));
}

TEST_F(PolicyTest, APolicyKeepsAClientToSomeSms) {
  load(with_hooks("client_init = function(c) c:keep_to(31.5, 500) end"));
  EXPECT_EQ(policy_->client_init(gpu_, 2).result, HookResult::kDefault);
  EXPECT_EQ(gpu_.kept_to, std::tuple(core::ClientId{2}, core::SmCount(32), 500.0));
  for (const char* order : {"keep_to()", "keep_to('x')", "keep_to(-1)", "keep_to(0/0)",
                            "keep_to(1e5)", "keep_to(8, -1)", "keep_to(8, 2e6)"}) {
    load(with_hooks("client_init = function(c) c:"s + order + " end"));
    EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kFault) << order;
  }
}

TEST_F(PolicyTest, BadVerdictsAreFaults) {
  for (const char* body :
       {"return 1", "return 'RUN'", "return {}", "return LEASE", "return RUN", "return RUN, 7",
        "return RUN, g", "return RUN, p", "return true", "return function() end"}) {
    EXPECT_EQ(dispatch(body).result, HookResult::kFault) << body;
    expect_fault("verdict", "test.lua:2: dispatch returned");
  }
  load(with_hooks("client_init = function(c) return 750 end"));
  EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kFault);
}

TEST_F(PolicyTest, EnqueueThatPlacesNothingIsToldOnce) {
  load(with_hooks("enqueue = function(k) if k.priority == 0 then return RUN end end"));
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kDefault);
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kDefault);
  ASSERT_EQ(policy_->trace_lines().size(), 1u);
  expect_contains(policy_->trace_lines()[0], "neither inserted nor returned");
}

// ---- loading ----------------------------------------------------------------------------------

TEST(PolicyLoad, ErrorsNameThePlaceAndTheRemedy) {
  const std::pair<std::string, const char*> cases[] = {
      {"x = 1", "test.lua:1: assignment to global 'x'; write local x"},
      {"\nlocal y = quueue", "test.lua:2: unknown global 'quueue'; did you mean 'queue'?"},
      {"local function f() return pcall(f) end", "test.lua:1: pcall: an error ends the hook"},
      {"partition.take(1)", "this build hands out no SM groups; return RUN, k, sm"},
      {"return 1 +", "test.lua:1:"},
      {"return {}", "must end with return policy"},
      {"", "must end with return policy"},
      {with_hooks("dipatch = function() end"), "unknown hook 'dipatch'; did you mean 'dispatch'?"},
      {with_hooks("dispatch = 1"), "must be a function"},
      {with_hooks("enqueue = function(k) queue.insert('q', k, 1) end"), "enqueue never returns"},
      {"return policy { nane = 1 }", "unknown key 'nane'; did you mean 'name'?"},
      {"return policy { name = 'a', version = '1', api = 2, hooks = {} }", "api must be 1"},
      {"return policy { name = 'a', version = '1', api = 1, hooks = {}, "
       "params = { q = { type = 'int', min = 1, max = 5, default = 9 } } }",
       "outside 1 to 5"},
      {"return policy { name = 'a', version = '1', api = 1, hooks = {}, "
       "params = { q = { type = 'inn', default = 9 } } }",
       "unknown type 'inn'; did you mean 'int'?"},
      {"error({})", "an error without text"},
      {"import 'lib/x'", "this policy has no directory"},
      {"import '../x'", "a name is like lib/budget"},
      {"queue.insert('q', 1, 1)", "works inside hooks only"},
      {"sm_set.family { distribution = 'conserved' }", "no distribution \"conserved\": sets are"},
      {"sm_set.family { distribution = 'packed' }", "leave it out, or write \"distributed\""},
      {"sm_set.family { distribution = 'distributed' }", "must end with return policy"},
  };
  for (const auto& [body, message] : cases) {
    const std::string error = load_error(body);
    EXPECT_NE(error.find(message), error.npos) << body << "\n gives: " << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
}

// policy { ... } is a tail call, so that nothing on the stack knows the line.
TEST(PolicyLoad, ErrorsOfDeclarationsNameTheLineOfWhatIsWrong) {
  const std::string before =
      "-- q = 1 in a comment\nlocal name = 'a'\n"
      "return policy {\n name = name, version = '1',\n api = 1,\n";
  const std::pair<std::string, const char*> cases[] = {
      {"params = { r = { type = 'int', default = 1 },\n"
       "  q = { type = 'int', max = 5, default = 9 } }, hooks = {} }",
       "test.lua:7: params.q: '9' is outside"},
      {"params = {\n q = { type = 'inn', default = 9 } }, hooks = {} }", "test.lua:7: params: un"},
      {"params = {\n q = 1 }, hooks = {} }", "test.lua:7: params.q must be a table"},
      {"params = {\n q = { type = 'int' } }, hooks = {} }", "test.lua:7: params.q: a default is"},
      {"params = {\n q = { defualt = 1 } }, hooks = {} }", "test.lua:7: params: unknown key"},
      {"hooks = { dispatch = function() end,\n running = 1 } }", "test.lua:7: hook 'running'"},
      {"hooks = {\n\n dipatch = function() end } }", "test.lua:8: unknown hook 'dipatch'"},
      {"hooks = 1 }", "test.lua:6: policy: hooks must be"},
      {"}", "test.lua:3: policy: hooks must be"},
      {"hoks = {} }", "test.lua:6: policy: unknown key 'hoks'"},
  };
  for (const auto& [body, message] : cases) {
    const std::string error = load_error(before + body);
    EXPECT_EQ(error.find(message), 0U) << body << "\n gives: " << error;
  }
  EXPECT_EQ(load_error("queue.create('q')\nqueue.create('q')").find("test.lua:2: queue 'q' is"),
            0U);
}

TEST(PolicyLoad, ParametersAreListedByName) {
  std::string params;
  for (const char* name : {"m", "z", "a", "k", "b_us", "b", "x", "c"}) {
    params += std::string(name) + " = { type = 'int', default = 1 }, ";
  }
  const auto policy =
      load_policy(text("return policy { name = 'a', version = '1', api = 1, "
                       "hooks = {}, params = { " +
                       params + " } }"));
  ASSERT_TRUE(policy);
  std::string names;
  for (const Param& param : (*policy)->params()) names += param.name + " ";
  EXPECT_EQ(names, "a b b_us c k m x z ");
}

TEST_F(PolicyTest, AFaultInATailCallNamesTheHooksLine) {
  load(
      with_hooks("\nenqueue = function(k) return queue.insert('r', k, 1) end, "
                 "dispatch = function(g)\n\n return queue.best_fit('q', 0/0) end",
                 "queue.create('q')"));
  policy_->enqueue(gpu_, 7);
  expect_fault("error", "test.lua:3: queue.insert: no queue 'r'");
  policy_->dispatch(gpu_);
  expect_fault("error", "test.lua:3: queue.best_fit: argument 2 is not a number");
}

TEST(PolicyLoad, BytecodeIsRefused) {
  lua_State* L = luaL_newstate();
  luaL_loadstring(L, "return 1");
  std::string code;
  lua_dump(
      L,
      [](lua_State*, const void* p, size_t n, void* out) {
        static_cast<std::string*>(out)->append(static_cast<const char*>(p), n);
        return 0;
      },
      &code);
  lua_close(L);
  ASSERT_EQ(code[0], '\x1b');
  EXPECT_NE(load_error(code), "");
}

TEST(PolicyLoad, EqualTextHasEqualHash) {
  const auto a = load_policy(text(with_hooks("")));
  const auto b = load_policy(text(with_hooks("")));
  const auto c = load_policy(text(with_hooks("") + " "));
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ((*a)->content_hash(), (*b)->content_hash());
  EXPECT_NE((*a)->content_hash(), (*c)->content_hash());
}

TEST_F(PolicyTest, ParametersAreCheckedAndLive) {
  const std::string body =
      "return policy { name = 'test', api = 1, version = '1', "
      "params = { quantum_us = { type = 'int', min = 20, max = 500, default = 300, doc = 'd' }, "
      "on = { type = 'bool', default = true } }, "
      "hooks = { dispatch = function(g, p) "
      "return IDLE, tostring(p.quantum_us) .. tostring(p.on) end } }";
  load(body, {{"quantum_us", "40"}});
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "40true");
  EXPECT_TRUE(policy_->set_param("on", "false"));
  EXPECT_TRUE(policy_->set_param("quantum_us", "50"));
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "50false");
  for (const char* bad : {"19", "501", "2.5", "x", "", "nan", "1e999"}) {
    EXPECT_FALSE(policy_->set_param("quantum_us", bad)) << bad;
  }
  expect_contains(policy_->set_param("quantum", "40").error().message, "did you mean 'quantum_us'");
  policy_->dispatch(gpu_);
  EXPECT_EQ(policy_->last_reason(), "50false");
}

TEST_F(PolicyTest, AnUnknownParameterIsAnError) {
  EXPECT_EQ(dispatch("return IDLE, p.nothing").result, HookResult::kFault);
  expect_fault("error", "unknown parameter 'nothing'");
}

// ---- escapes that must stay closed --------------------------------------------------------------

TEST(PolicySandbox, AnUnlistedFunctionIsOutOfReach) {
  for (const char* name :
       {"load",         "loadstring",     "loadfile", "dofile", "pcall",    "xpcall", "coroutine",
        "getmetatable", "setmetatable",   "rawget",   "rawset", "rawequal", "rawlen", "setfenv",
        "getfenv",      "collectgarbage", "newproxy", "ffi",    "jit",      "debug",  "io",
        "os",           "package",        "require",  "module", "_G",       "print",  "gcinfo"}) {
    const std::string error = load_error(std::string("local x = ") + name);
    expect_contains(error, "test.lua:1: ");
  }
  for (const char* name :
       {"string.dump", "string.match", "string.gmatch", "string.gsub", "string.gfind",
        "math.randomseed", "table.foreach", "(''):dump", "(''):gsub", "(''):match"}) {
    EXPECT_NE(load_error(std::string("local x = ") + name + " x()"), "") << name;
  }
}

struct Escape {
  const char* body;
  const char* kind;  // of the fault
};

void PrintTo(const Escape& escape, std::ostream* out) { *out << escape.kind; }

class PolicyEscape : public PolicyTest, public ::testing::WithParamInterface<Escape> {};

TEST_P(PolicyEscape, EndsAsAFaultInTimeAndTheNextCallWorks) {
  const std::string hook =
      std::string("if now_us() < 10 then ") + GetParam().body + " end return IDLE, 'fine'";
  if (GetParam().kind == "memory"s) limits_ = patient();
  ASSERT_NO_FATAL_FAILURE(load(with_hooks("dispatch = function(g, p) " + hook + " end")));
  const std::clock_t start = std::clock();  // what others do on the machine does not count
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC) << "generous: these run for minutes when open";
  EXPECT_EQ(policy_->last_fault().kind, GetParam().kind) << policy_->last_fault().message;
  EXPECT_EQ(policy_->last_fault().hook, "dispatch");
  if (GetParam().kind != "error"s) expect_contains(policy_->last_fault().message, "test.lua:2: ");
  gpu_.now_ns = 20'000;
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided);
  EXPECT_EQ(policy_->last_reason(), "fine");
  EXPECT_LT(policy_->memory_used(), Limits{}.memory_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, PolicyEscape,
    ::testing::Values(
        Escape{"while true do end", "fuel"}, Escape{"repeat until false", "fuel"},
        Escape{"for i = 1, 1e12 do end", "fuel"}, Escape{"::again:: goto again", "fuel"},
        Escape{"local function f() return f() end f()", "fuel"},
        Escape{"local function f() return 1 + f() end f()", "memory"},
        Escape{"string.find(('a'):rep(5000), '.-.-.-.-b$')", "error"},
        Escape{"for i = 1, 1e9 do string.find(('a'):rep(4000), ('a'):rep(63) .. 'b') end", "fuel"},
        Escape{"string.rep('x', 1e9)", "error"}, Escape{"('x'):rep(2^40)", "error"},
        Escape{"local t = {} for i = 1, 1000 do t[i] = ('x'):rep(60000) end table.concat(t)",
               "memory"},
        Escape{"local t = {} for i = 1, 2000 do t[i] = 'x' end table.concat(t)", "error"},
        Escape{"local s = 'x' while true do s = s .. s end", "memory"},
        Escape{"local s = ('x'):rep(15000) s = s .. s .. s .. s while true do local u = s .. 'a' "
               "end",
               "fuel"},
        Escape{"local t = {} while true do t = { t } end", "fuel"},
        Escape{"local t = {} for i = 1, 1e9 do t[i] = i end", "memory"},
        Escape{"local t = {} for i = 1, 4000 do t[i] = i end "
               "while true do table.insert(t, 1, 0) table.remove(t, 1) end",
               "fuel"},
        Escape{"string.format(('%s'):rep(1000), 1)", "error"}, Escape{"error({})", "error"},
        Escape{"error(p)", "error"}, Escape{"error()", "error"},
        Escape{"unpack({}, 1, 1e8)", "error"}, Escape{"return g.nothing", "error"}),
    [](const auto& info) { return info.param.kind + std::to_string(info.index); });

TEST(PolicySandbox, LoadingIsBoundedToo) {
  expect_contains(load_error("while true do end"), "test.lua:1: out of fuel");
  expect_contains(load_error("local t = {} for i = 1, 1e9 do t[i] = {} end"),
                  "test.lua:1: out of memory");
}

TEST_F(PolicyTest, EveryHookFaultsAlone) {
  const std::string loop = "function() while true do end end";
  std::string hooks;
  for (const std::string_view name : kHookNames) {
    if (name == "enqueue") {
      hooks += "enqueue = function() while true do end return RUN end, ";
    } else if (name != "init") {
      hooks += std::string(name) + " = " + loop + ", ";
    }
  }
  load(with_hooks(hooks));
  EXPECT_EQ(policy_->client_init(gpu_, 1).result, HookResult::kFault);
  EXPECT_EQ(policy_->client_active(gpu_, 1).result, HookResult::kFault);
  EXPECT_EQ(policy_->client_idle(gpu_, 1).result, HookResult::kFault);
  EXPECT_EQ(policy_->client_exit(gpu_, 1), HookResult::kFault);
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kFault);
  EXPECT_EQ(policy_->dispatch(gpu_).result, HookResult::kFault);
  EXPECT_EQ(policy_->stopping(gpu_, gpu_.launches[7]), HookResult::kFault);
  EXPECT_EQ(policy_->last_fault().count, 7u);
  auto looping = load_policy(text(with_hooks("init = " + loop)));
  ASSERT_TRUE(looping);
  EXPECT_EQ((*looping)->init(gpu_), HookResult::kFault);
}

TEST_F(PolicyTest, AFaultKeepsTheTraceback) {
  dispatch("inner()", "local function inner() error('boom') end");
  expect_fault("error", "boom");
  expect_contains(policy_->last_fault().traceback, "test.lua:1");
}

TEST_F(PolicyTest, GarbageIsCollectedUnderLoad) {
  load(
      with_hooks("dispatch = function(g) local t = { g.inflight_us, 2, 3, {} } "
                 "return IDLE, 'a' .. tostring(t[2]) end"));
  for (int i = 0; i < 200'000; ++i) {
    ASSERT_EQ(policy_->dispatch(gpu_).result, HookResult::kDecided)
        << i << ": " << policy_->last_fault().message;
  }
  EXPECT_LT(policy_->memory_used(), size_t{1} << 20);
}

TEST_F(PolicyTest, ShippedPoliciesDecideQuicklyAndWithoutGarbage) {
  for (const char* name : {"papers/fifo", "priority", "gapfill", "fair"}) {
    gpu_ = FakeGpu();
    gpu_.launches[7] = {};
    gpu_.launches[7].client = 1;
    gpu_.launches[7].predicted_us = 100;
    auto loaded = load_policy_file(std::string(HEDDLE_POLICIES) + "/" + name + ".lua");
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    policy_->init(gpu_);
    size_t before = 0;
    std::vector<double> ns;
    for (int i = 0; i < 4100; ++i) {
      if (i == 100) before = policy_->memory_used();  // it has met what it keeps
      for (auto& queue : gpu_.queues) queue.clear();
      const auto start = std::chrono::steady_clock::now();
      policy_->enqueue(gpu_, 7);
      policy_->dispatch(gpu_);
      const auto took = std::chrono::steady_clock::now() - start;
      ns.push_back(std::chrono::duration<double, std::nano>(took).count());
      policy_->stopping(gpu_, gpu_.launches[7]);
    }
    std::nth_element(ns.begin(), ns.begin() + 2000, ns.end());
    std::printf("%s: enqueue + dispatch p50 %.0f ns\n", name, ns[2000]);
    EXPECT_EQ(policy_->last_fault().count, 0u) << policy_->last_fault().message;
    EXPECT_LE(policy_->memory_used(), before) << name;
#ifndef HEDDLE_SANITIZED
    EXPECT_LT(ns[2000], 10'000) << "ten times the target, for slow machines";
#endif
  }
}

}  // namespace
}  // namespace heddle::policy
