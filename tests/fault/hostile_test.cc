// Hostile policies, each run under load in virtual time: two clients launch, wait and compute, and
// each launch must run once, in order, within the starvation bound, whatever the policy does; a
// fault names its line. Each is also asked beside the built-in, which must not notice.
//
// HEDDLE_SEED=N repeats the random ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "daemon/core/scheduler.h"
#include "daemon/policy/lua_policy.h"

namespace heddle {
namespace {

using core::Event;
using core::EventKind;
using core::TimeNs;

constexpr TimeNs kUs = 1'000, kMs = 1'000'000;

// A client of one thread that launches, and synchronizes after every fourth. Its result is a hash
// of what ran, in the order in which it ran.
class Worker {
 public:
  Worker(core::ClientId id, int priority, uint32_t launches)
      : id_(id), priority_(priority), launches_(launches) {}

  bool done() const { return ran_ == launches_; }
  uint64_t result() const { return result_; }
  static uint64_t expected(uint32_t launches) {
    uint64_t hash = 1;
    for (uint32_t i = 1; i <= launches; ++i) hash = hash * 31 + i;
    return hash;
  }
  // When it does something next by itself.
  TimeNs at() const { return ends_ != 0 ? ends_ : asked_at_ != 0 ? asked_at_ + kBoundNs : next_; }

  Event attach(TimeNs now) const {
    Event e(EventKind::kAttached, now, id_);
    e.attached = {};
    e.attached.task = id_;
    e.attached.priority = static_cast<uint8_t>(priority_);
    e.attached.share = 1;
    std::snprintf(e.attached.label, sizeof e.attached.label, "worker%d", static_cast<int>(id_));
    return e;
  }
  void take(const core::Decision& d, TimeNs now) {
    if (d.client != id_) return;
    if (d.kind == core::DecisionKind::kAllowance) {
      allowed_ = d.allowed;
    }
    if (d.kind != core::DecisionKind::kGrant) return;
    ASSERT_NE(asked_at_, 0) << "a grant that nobody asked for";
    ASSERT_EQ(d.ask_seq, ask_seq_) << "a grant of another ask";
    start(now);
  }
  // What it does at at(); empty: nothing.
  std::vector<Event> act(TimeNs now) {
    if (now < at() || done()) return {};
    if (ends_ != 0) {  // its kernel has ended, and it synchronized
      ends_ = 0;
      ++ran_;
      result_ = result_ * 31 + seq_;
      next_ = now + (ran_ % 10 == 0 ? 60 * kMs : 50 * kUs);  // now and then it is idle
      Event e(EventKind::kCompleted, now, id_);
      e.done = {seq_, 100, 0, core::Evidence::kSynchronized};
      return {e};
    }
    const bool starved = asked_at_ != 0;
    if (!starved) ++seq_;
    const bool asks = !starved && allowed_ != core::Allowance::kLeased;
    Event e(asks ? EventKind::kAsked : EventKind::kPosted, now, id_);
    e.launch = {};
    e.launch.kernel = 0;
    e.launch.stream_seq = seq_;
    e.launch.admission = asks      ? core::Admission::kAsk
                         : starved ? core::Admission::kSelfStarved
                                   : core::Admission::kLease;
    if (asks) ++ask_seq_;
    if (asks || starved) e.launch.ask_seq = ask_seq_;
    if (asks) asked_at_ = now;
    if (!asks) start(now);
    return {e};
  }

 private:
  static constexpr TimeNs kBoundNs = 1'000 * kMs;
  void start(TimeNs now) {
    asked_at_ = 0;
    ends_ = now + 100 * kUs;
  }

  const core::ClientId id_;
  const int priority_;
  const uint32_t launches_;
  core::Allowance allowed_ = core::Allowance::kLeased;
  uint32_t ran_ = 0, ask_seq_ = 0;
  uint64_t seq_ = 0, result_ = 1;
  TimeNs next_ = 1, ends_ = 0, asked_at_ = 0;
};

// The two, and a third that comes and goes and gets other terms, until both are done.
class Load {
 public:
  explicit Load(core::Scheduler& scheduler) : scheduler_(scheduler) {}

  void run() {
    feed(workers_[0].attach(now_));
    feed(workers_[1].attach(now_));
    kernel(1);
    kernel(2);
    while (!workers_[0].done() || !workers_[1].done()) {
      TimeNs next = std::min(scheduler_.next_deadline(), next_change_);
      for (const Worker& w : workers_) next = w.done() ? next : std::min(next, w.at());
      now_ = std::max(now_ + kUs, next);
      ASSERT_LT(now_, 200'000 * kMs) << "a launch was lost";
      for (Worker& w : workers_) {
        for (const Event& e : w.act(now_)) feed(e);
      }
      if (now_ >= next_change_) change();
      if (now_ >= scheduler_.next_deadline()) feed(Event(EventKind::kTick, now_, 0));
    }
    for (const Worker& w : workers_) EXPECT_EQ(w.result(), Worker::expected(kLaunches));
    EXPECT_EQ(scheduler_.waiting(), 0u);
  }
  TimeNs now() const { return now_; }

 private:
  static constexpr uint32_t kLaunches = 30;

  void feed(const Event& e) {
    for (const core::Decision& d : scheduler_.step(e)) {
      for (Worker& w : workers_) w.take(d, now_);
    }
  }
  void kernel(core::ClientId id) {
    Event e(EventKind::kKernel, now_, id);
    e.kernel = {};
    e.kernel.id = 7 + id;
    e.kernel.grid_blocks = 132;
    e.kernel.block_threads = 128;
    std::strcpy(e.kernel.name, "spin");
    feed(e);
  }
  void change() {
    next_change_ = now_ + 700 * kUs;
    const core::ClientId id = 3;
    switch (changes_++ % 3) {
      case 0:
        return feed(Worker(id, 5, 0).attach(now_));
      case 1: {
        Event e(EventKind::kTerms, now_, id);
        e.terms = {1, 0, 6, {}};
        return feed(e);
      }
      default:
        return feed(Event(EventKind::kDetached, now_, id));
    }
  }

  core::Scheduler& scheduler_;
  Worker workers_[2] = {Worker(1, 0, kLaunches), Worker(2, 9, kLaunches)};
  TimeNs now_ = kMs, next_change_ = 2 * kMs;
  int changes_ = 0;
};

// ---- what they do ----

struct Kind {
  const char* name;
  const char* body;  // a and b are what the hook gets
};

constexpr Kind kKinds[] = {
    {"error", "error('on purpose')"},
    {"loop", "while true do end"},
    {"swallowed_loop", "pcall(function() while true do end end)"},
    {"loop_in_sort", "table.sort({3, 2, 1}, function() while true do end end)"},
    {"pattern_bomb", "local x = string.find(('a'):rep(5000), '.-.-.-.-b$')"},
    {"huge_string", "local s = ('x'):rep(1e9)"},
    {"growing_string", "local s = 'x' while true do s = s .. s end"},
    {"table_bomb", "local t = {} for i = 1, 1e9 do t[i] = {} end"},
    {"recursion", "local function f(n) return 1 + f(n + 1) end f(1)"},
    {"wrong_types", "queue.insert({}, 'x', trace) "},
    {"wrong_verdict", "do return {}, 'x', 1e308, {} end"},
    {"stale",
     "if kept[1] == nil then kept[1] = a else local x = kept[1].predicted_us or kept[1].id end"},
    {"queue_flood", "for i = 1, 1e6 do queue.insert('q', a, i) end"},
    {"map_flood", "for i = 1, 1e6 do m:set(i, i) end"},
    {"trace_flood", "for i = 1, 1e6 do trace('%d %s', i, ('x'):rep(999)) end"},
    {"idle_for_ever", "do return IDLE, 'never' end"},
    {"run_everything", "do return RUN, queue.peek('q'), 1e9, 7, 1e300 end"},
    {"anothers_launch", "kept[#kept + 1] = a if #kept > 3 then do return RUN, kept[1] end end"},
    {"gates_everybody", "for c in pairs(clients) do c:gate() end"},
    {"refuses", "do return REFUSE, 'go away' end"},
};
constexpr const char* kHooks[] = {"load",        "init",          "exit",        "client_init",
                                  "client_exit", "client_update", "client_idle", "client_active",
                                  "kernel_init", "enqueue",       "dispatch",    "running",
                                  "stopping",    "tick",          "dump"};

// Everybody is gated, so that every hook is called; the hostile line is 8.
std::string policy_text(const std::string& hook, const std::string& body) {
  std::string text =
      "queue.create('q')\n"
      "local kept = {}\n"
      "local clients = {}\n"
      "local m = map.hash('m', { key = 'number', max = 64 })\n"
      "-- a comment\n";
  if (hook == "load") {
    text += "local a, b\n\n" + body + "\n";
  } else {
    text += "local function hostile(a, b)\n\n  " + body + "\nend\n";
  }
  const auto hooked = [&](const char* name, const std::string& does) {
    const bool here = hook == name;
    text += std::string("  ") + name + " = function(a, b, c) " +
            (here ? "local x, y, z, u, v = hostile(a, b) if x ~= nil then return x, y, z, u, v end "
                  : "") +
            does + " end,\n";
  };
  text += "return policy { name = 'hostile', api = 1, version = '1', hooks = {\n";
  hooked("client_init", "clients[a] = true return GATE");
  hooked("client_active", "return GATE");
  const bool faults = hook == "dump" || hook == "exit";  // both come after that
  hooked("enqueue",
         faults ? "error('to be quarantined') return RUN" : "return queue.insert('q', a, 0)");
  hooked("dispatch", "local k = queue.peek('q') if k then return RUN, k end return IDLE, 'none'");
  for (const char* name : kHooks) {
    const std::string_view plain = name;
    const bool there = plain == "load" || plain == "client_init" || plain == "client_active" ||
                       plain == "enqueue" || plain == "dispatch";
    if (!there && hook == plain) hooked(name, "");
  }
  return text + "} }\n";
}

Result<std::unique_ptr<policy::LuaPolicy>> load(const std::string& text) {
  policy::Source source;
  source.text = text;
  source.chunk = "hostile.lua";
  return policy::load_policy(source, {});
}

// Runs it as the live policy, and once more beside the built-in. Says what became of it.
std::string survive(const std::string& text) {
  auto live = load(text);
  if (!live) {
    EXPECT_TRUE(live.error().message.starts_with("hostile.lua:")) << live.error().message;
    return "refused: " + live.error().message;
  }
  std::string became = "ran";
  {
    core::Scheduler scheduler{core::Config{}};
    bool ok = false;
    scheduler.set_policy(live->get(), kMs, ok);
    Load load(scheduler);
    load.run();
    if (!ok) became = "init said no";
    if (scheduler.take_quarantined()) {
      became = "quarantined";
      EXPECT_GE(scheduler.view().last_words().at, 0);
    }
    const policy::Fault& fault = (*live)->last_fault();
    if (fault.count > 0) {
      became += ": " + fault.kind + " in " + fault.hook + ": " + fault.message;
      EXPECT_TRUE(fault.message.starts_with("hostile.lua:")) << fault.message;
    }
    scheduler.set_policy(nullptr, load.now(), ok);  // exit
    EXPECT_LE((*live)->memory_used(), policy::Limits().memory_bytes + policy::Limits().block_bytes);
  }
  auto candidate = load(text);
  core::Scheduler scheduler{core::Config{}};
  if (candidate && scheduler.begin_shadow(**candidate, {}, kMs)) {
    Load(scheduler).run();
    scheduler.end_shadow("the test ends");
  }
  EXPECT_EQ(scheduler.stats().policy_faults, 0u) << "the built-in has none";
  EXPECT_EQ(scheduler.stats().starved, 0u);
  return became;
}

class HostilePolicy : public ::testing::Test {
 protected:
  void one(const Kind& kind, const char* hook) {
    SCOPED_TRACE(std::string(kind.name) + " in " + hook);
    const std::string became = survive(policy_text(hook, kind.body));
    std::cout << kind.name << " in " << hook << ": " << became << '\n';
  }
  // A policy of several things at once, in any hooks.
  static std::string random_text(std::mt19937_64& random) {
    constexpr const char* kMore[] = {
        "for c in pairs(clients) do c:lease() end",
        "for c in pairs(clients) do c:gate(37) end",
        "do return GATE, -1 end",
        "do return 10 end",
        "do return LEASE end",
        "do return RUN end",
        "do return RUN, a end",
        "m:set(1, (m:get(1) or 0) + 1)",
        "if now_us() % 2 < 1 then error('now and then') end",
        "kept[#kept + 1] = ('y'):rep(1000) .. #kept",
        "local k = queue.best_fit('q', 1e9) if k then queue.insert('q', k, -k.predicted_us) end",
        "do return nil end",
        "local x = a.nothing_of_the_kind",
        "local x = 1 / 0 do return GATE, x end",
        "local x = 0 / 0 do return RUN, queue.peek('q'), x, x, x end",
    };
    const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::string body;
    for (size_t i = 0, n = 1 + pick(3); i < n; ++i) {
      const size_t which = pick(std::size(kMore) + std::size(kKinds));
      const char* what =
          which < std::size(kMore) ? kMore[which] : kKinds[which - std::size(kMore)].body;
      // Mostly now and then, so that it lives for a while.
      body += pick(3) == 0 ? std::string(what) + "\n"
                           : "count = count + 1 if count % " + std::to_string(2 + pick(9)) +
                                 " == 0 then " + what + " end\n";
    }
    std::string text = policy_text(kHooks[1 + pick(std::size(kHooks) - 1)], body);
    text.replace(text.find("-- a comment"), 12, "local count = 0");
    return text;
  }
  static uint64_t seed() {
    const char* given = std::getenv("HEDDLE_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::cout << "HEDDLE_SEED=" << seed << '\n';
    return seed;
  }
  static void random(size_t count) {
    std::mt19937_64 random(seed());
    std::map<std::string, int> became;
    for (size_t i = 0; i < count && !HasFailure(); ++i) {
      const std::string text = random_text(random);
      SCOPED_TRACE("policy " + std::to_string(i) + ":\n" + text);
      const std::string what = survive(text);
      ++became[what.substr(0, what.find(':'))];
    }
    for (const auto& [what, times] : became) std::cout << times << " " << what << '\n';
  }
};

// The harness itself: a policy that means well is neither refused nor quarantined.
TEST_F(HostilePolicy, AGoodOneRuns) { EXPECT_EQ(survive(policy_text("tick", "")), "ran"); }

TEST_F(HostilePolicy, EveryHookIsReachedAndItsFaultNamed) {
  for (const char* hook : kHooks) {
    const std::string became = survive(policy_text(hook, "error('on purpose')"));
    const bool after = std::string_view(hook) == "dump" || std::string_view(hook) == "exit";
    const std::string where =
        std::string_view(hook) == "load" ? "refused" : std::string(" in ") + hook;
    const std::string wanted =
        after ? "error in enqueue: hostile.lua:" : where + ": hostile.lua:8: ";
    EXPECT_NE(became.find(wanted), std::string::npos) << hook << ": " << became;
  }
}

TEST_F(HostilePolicy, EachKindOnce) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    one(kKinds[i], "enqueue");
    one(kKinds[i], kHooks[i % std::size(kHooks)]);
  }
}

TEST_F(HostilePolicy, TwoHundredRandomOnes) { random(200); }

TEST_F(HostilePolicy, NightEveryKindInEveryHook) {
  for (const Kind& kind : kKinds) {
    for (const char* hook : kHooks) one(kind, hook);
  }
}

TEST_F(HostilePolicy, NightTenThousandRandomOnes) { random(10'000); }

}  // namespace
}  // namespace heddle
