// Policies that mean harm, those of tests/attack and some in one line: none stops the daemon, and
// none holds it up for long.
#include <time.h>
#include <unistd.h>

#include <chrono>

#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

using std::chrono::steady_clock;

// A hook may have 20 ms; the rest is what a loaded machine takes away.
constexpr double kCallMs = 100;

class PolicyAttackTest : public PolicyTest {
 protected:
  static std::string file(const std::string& name) { return HEDDLE_ATTACKS "/" + name; }

  void load_file(const std::string& name) {
    auto loaded = load_policy_file(file(name), {}, limits_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    ASSERT_EQ(policy_->init(gpu_), HookResult::kDefault);
  }

  // How long the longest of so many calls of enqueue took.
  double longest_ms(int calls) {
    double longest = 0;
    for (int i = 0; i < calls; ++i) {
      const auto start = steady_clock::now();
      policy_->enqueue(gpu_, 7);
      const std::chrono::duration<double, std::milli> took = steady_clock::now() - start;
      longest = std::max(longest, took.count());
    }
    return longest;
  }
};

TEST_F(PolicyAttackTest, AFullHeapDoesNotStopTheCollector) {
  load_file("gcpanic.lua");
  longest_ms(30'000);  // it ended the process
  EXPECT_GT(policy_->last_fault().count, 0u);
  EXPECT_LE(policy_->memory_used(), limits_.memory_bytes + limits_.block_bytes);
}

TEST_F(PolicyAttackTest, ALongTopLevelIsRefused) {
  std::string body =
      "local t, s = {}, ('x'):rep(60000) for i = 1, 1024 do t[i] = s .. 10 + i * 7 % 12 end\n";
  for (int i = 0; i < 40; ++i) body += "table.sort(t) ";
  const auto start = steady_clock::now();
  const auto loaded = load_policy(text(body));
  const std::chrono::duration<double, std::milli> took = steady_clock::now() - start;
  ASSERT_FALSE(loaded);
  expect_contains(loaded.error().message, "test.lua:2: out of fuel");
  EXPECT_LT(took.count(), 2 * kCallMs);
}

TEST_F(PolicyAttackTest, NoBuiltinRunsLongWithoutFuel) {
  const std::string before =
      "local s = ('x'):rep(60000) local n = (' '):rep(60000) .. '1' local t, u, e = {}, {}, {}\n"
      "for i = 1, 1000 do t[i] = 1001 - i u[i] = '' end for i = 1, 4000 do e[i] = i end\n"
      "local a, b = s .. 'a', s .. 'b' local w, x = {}\n"
      "for i = 1, 1024 do w[i] = s .. 10 + i * 7 % 12 end\n";
  for (const char* body : {"x = s:lower()",
                           "x = s:upper()",
                           "x = s:reverse()",
                           "x = s:sub(2)",
                           "x = s:byte(1, 4000)",
                           "x = tonumber(n)",
                           "x = n + 1",
                           "x = a < b",
                           "x = ('%s'):format(s)",
                           "x = ('x'):rep(60000)",
                           "x = table.concat(u, 'xxxxxxxxxxxxxxxxxxxx')",
                           "table.sort(t)",
                           "table.sort(w)",
                           "table.sort(w, function(p, q) return p > q end)",
                           "table.sort(t, math.max)",
                           "table.insert(e, 1, 1) table.remove(e, 1)",
                           "x = unpack(e)",
                           "x = select('#', unpack(e))",
                           "x = s == s:sub(1)",
                           "x = math.max(n, n)",
                           "for _ in pairs(e) do break end x = #e",
                           "x = bit.tohex(n)",
                           "x = queue.len(n)",
                           "trace('%s', s)"}) {
    std::string often;  // few instructions, so that the fuel is seldom looked at
    for (int i = 0; i < 180; ++i) often.append("do ").append(body).append(" end\n");
    load(with_hooks("enqueue = function(k) " + often + " return RUN end", before));
    const double longest = longest_ms(3);
    EXPECT_LT(longest, kCallMs) << body;
  }
}

TEST_F(PolicyAttackTest, ACallOfMoreThanItsTimeIsAFaultAndWeighsMore) {
  struct SlowGpu final : FakeGpu {
    core::TimeNs now() const override {
      const auto clock = [&] {
        timespec t{};
        clock_gettime(burns ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1'000'000'000 + t.tv_nsec;
      };
      const core::TimeNs until = clock() + 50'000'000;
      while (clock() < until) {
        if (!burns) usleep(1'000);  // as when others have the core
      }
      return 0;
    }
    bool burns = false;
  } gpu;
  load(with_hooks("dispatch = function(g) now_us() return IDLE end"));
  EXPECT_EQ(policy_->dispatch(gpu).result, HookResult::kDecided);
  gpu.burns = true;
  EXPECT_EQ(policy_->dispatch(gpu).result, HookResult::kFault);
  expect_fault("slow", "test.lua:2: took ");
  EXPECT_GE(policy_->fault_weight(), 3u);
}

TEST_F(PolicyAttackTest, ErrorTextsAndDocsAreCut) {
  load(with_hooks("enqueue = function(k) error(('x'):rep(60000)) return RUN end"));
  policy_->enqueue(gpu_, 7);
  expect_fault("error", "test.lua:2: xxx");
  EXPECT_LE(policy_->last_fault().message.size(), 2 * kLineBytes);

  const auto refused = load_policy(text("error(('x'):rep(60000))"));
  ASSERT_FALSE(refused);
  expect_contains(refused.error().message, "test.lua:1: xxx");
  EXPECT_LE(refused.error().message.size(), 2 * kLineBytes);

  const std::string params =
      "params = { a = { type = 'int', default = 1, doc = ('d'):rep(60000) },"
      " [('n'):rep(60000)] = { type = 'int', default = 1 } }";
  const auto named = load_policy(
      text("return policy { name = 'n', api = 1, version = '1', hooks = {}, " + params + " }"));
  ASSERT_FALSE(named);
  expect_contains(named.error().message, "1 to 64 characters");
  EXPECT_LE(named.error().message.size(), 2 * kLineBytes);
}

TEST_F(PolicyAttackTest, EveryFaultNamesItsLine) {
  for (const char* body : {"string.rep('x', 1e9)", "('x'):lower(1, {}):rep({})", "tonumber({}, 77)",
                           "table.sort({{}, {}})", "queue.insert('none', k, 1)", "math.max({})"}) {
    load(with_hooks(std::string("enqueue = function(k)\n") + body + " return RUN end"));
    policy_->enqueue(gpu_, 7);
    expect_fault("error", "test.lua:3: ");
  }
}

}  // namespace
}  // namespace heddle::policy
