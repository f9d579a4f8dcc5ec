// Limits on device memory, end to end: the real shim and the real server, on the simulated driver,
// which counts by itself.
#include <atomic>
#include <random>

#include "tests/integration/memory_setting.h"

namespace heddle::testing {
namespace {

TEST_F(MemoryLimit, HoldsOverTwoProcessesOfOneRule) {
  limit("256MiB");
  start();
  auto one = program(), two = program();
  EXPECT_EQ(one->alloc('m', 150 * kMiB), "0");
  EXPECT_EQ(two->alloc('m', 150 * kMiB), kOutOfMemory);
  EXPECT_EQ(two->alloc('m', 106 * kMiB), "0");
  EXPECT_EQ(one->alloc('m', 1), kOutOfMemory);
  EXPECT_EQ((*one)("free 0"), "0");
  EXPECT_EQ(two->alloc('m', 150 * kMiB), "1");
  const json seen = row(*two);
  EXPECT_EQ(seen.at("memory_bytes"), 256 * kMiB);
  EXPECT_EQ(seen.at("memory_limit_bytes"), 256 * kMiB);
  EXPECT_EQ(seen.at("memory_refused"), 1);
  // Others are not concerned.
  EXPECT_EQ(program("other")->alloc('m', 512 * kMiB), "0");
}

TEST_F(MemoryLimit, CountsEveryWayToMemory) {
  limit("512MiB");
  start();
  auto app = program();
  for (const char kind : {'m', 'u', 'p', 'v', 'a', 's', 't'}) {
    const std::string slot = app->alloc(kind, 64 * kMiB);
    ASSERT_EQ(slot.find('-'), slot.npos) << kind << slot;
    EXPECT_EQ(row(*app).at("memory_bytes"), app->number("driver")) << kind;
    EXPECT_EQ(app->alloc(kind, 470 * kMiB), kOutOfMemory) << kind;
    EXPECT_EQ((*app)("free " + slot), "0") << kind;
    EXPECT_EQ(row(*app).at("memory_bytes"), app->number("driver")) << kind;
  }
}

// Physical memory counts once, for as long as a handle or a mapping holds it: handles that were
// retained by an address or came back through a file, too.
TEST_F(MemoryLimit, PhysicalMemoryCountsOnceAndAsLongAsItIsHeld) {
  limit("512MiB");
  start();
  auto app = program();
  const auto expect_held = [&](uint64_t bytes, const char* what) {
    EXPECT_EQ(app->number("driver"), bytes) << what;
    EXPECT_EQ(row(*app).at("memory_bytes"), bytes) << what;
  };
  const uint64_t bytes = 64 * kMiB;
  const std::string create = "create " + std::to_string(bytes);
  EXPECT_EQ((*app)(create), "0");
  EXPECT_EQ((*app)("map 0"), "0");
  EXPECT_EQ((*app)("map 0"), "1");
  EXPECT_EQ((*app)("retain 1"), "1");
  expect_held(bytes, "mapped twice, and named twice");
  EXPECT_EQ((*app)("release 0"), "0");
  EXPECT_EQ((*app)("release 1"), "0");
  EXPECT_EQ((*app)("unmap 0"), "0");
  expect_held(bytes, "one mapping");
  EXPECT_EQ((*app)("retain 1"), "2");
  EXPECT_EQ((*app)("unmap 1"), "0");
  expect_held(bytes, "only a handle that was retained by an address");
  EXPECT_EQ(app->alloc('m', 449 * kMiB), kOutOfMemory);
  EXPECT_EQ((*app)("release 2"), "0");
  expect_held(0, "nothing");

  EXPECT_EQ((*app)(create), "3");
  EXPECT_EQ((*app)("import 3"), "4");
  expect_held(bytes, "its own export");
  EXPECT_EQ((*app)("release 3"), "0");
  expect_held(bytes, "only a handle that was imported");
  EXPECT_EQ((*app)("map 4"), "2");
  EXPECT_EQ((*app)("release 4"), "0");
  expect_held(bytes, "only a mapping of what was imported");
  EXPECT_EQ((*app)("unmap 2"), "0");
  expect_held(0, "nothing again");
}

// As the driver does before it says that memory is out.
TEST_F(MemoryLimit, UnusedPoolMemoryIsGivenBackBeforeAnythingIsRefused) {
  limit("256MiB");
  start();
  auto app = program();
  const auto keep = [&](char pool) {
    const std::string slot = app->alloc(pool, 200 * kMiB);
    EXPECT_EQ((*app)("free " + slot), "0");
    EXPECT_EQ(app->number("driver"), 200 * kMiB) << pool;
  };
  keep('s');
  EXPECT_EQ(app->alloc('m', 200 * kMiB), "0");
  EXPECT_EQ(app->number("driver"), 200 * kMiB);
  EXPECT_EQ((*app)("free 0"), "0");
  keep('s');
  keep('f');  // beside what the first pool keeps
  EXPECT_EQ(app->alloc('v', 200 * kMiB), "0");
  EXPECT_EQ(app->alloc('m', 100 * kMiB), kOutOfMemory);
  EXPECT_EQ((*app)("free 0"), "0");
  keep('f');
  EXPECT_EQ((*app)("graph " + std::to_string(200 * kMiB) + " 1 0"), "0");
  EXPECT_EQ((*app)("launch 0"), "0") << "beside what a pool keeps";
}

// The driver keeps it until the last allocation from it is freed.
TEST_F(MemoryLimit, DestroyedPoolCountsWhatIsStillAllocatedFromIt) {
  limit("256MiB");
  start();
  auto app = program();
  EXPECT_EQ(app->alloc('f', 50 * kMiB), "0");
  EXPECT_EQ(app->alloc('f', 150 * kMiB), "1");
  EXPECT_EQ((*app)("free 0"), "0");
  EXPECT_EQ((*app)("drop_pool"), "0");
  EXPECT_EQ(app->number("driver"), 150 * kMiB);
  EXPECT_EQ(row(*app).at("memory_bytes"), 150 * kMiB);
  EXPECT_EQ(app->alloc('m', 107 * kMiB), kOutOfMemory);
  EXPECT_EQ((*app)("free 1"), "0");
  EXPECT_EQ(row(*app).at("memory_bytes"), app->number("driver"));
  EXPECT_EQ(app->alloc('m', 256 * kMiB), "0");
}

// A pool that one thread destroys is not asked by another what it reserves, nor counted for ever.
TEST_F(MemoryLimit, PoolsMayEndWhileAllAreLookedAt) {
  limit("256MiB");
  start();
  auto app = program();
  EXPECT_EQ((*app)("pools 3000"), "0");
  EXPECT_EQ(row(*app).at("memory_bytes"), app->number("driver"));
  EXPECT_EQ(app->alloc('m', 256 * kMiB), "0");
}

// A graph's memory is taken at its launch, and stays for the next.
TEST_F(MemoryLimit, RefusesTheLaunchOfAGraphThatNeedsMore) {
  limit("64MiB");
  start();
  auto app = program(), free = program("other");
  const auto graph = [](Program& of, uint64_t mib, const std::string& how) {
    return of("graph " + std::to_string(mib * kMiB) + ' ' + how);
  };
  constexpr const char* kRefused = "2";
  EXPECT_EQ(graph(*app, 40, "2 0"), "0") << "each freed: 40 MiB are enough";
  EXPECT_EQ(graph(*app, 80, "1 0"), "1");
  EXPECT_EQ(graph(*app, 30, "3 1"), "2") << "none freed: 90 MiB";
  EXPECT_EQ((*app)("launch 1"), kRefused);
  EXPECT_EQ((*app)("launch 2"), kRefused);
  EXPECT_EQ(app->number("driver"), 0u);
  EXPECT_EQ(row(*app).at("memory_refused"), 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*app)("launch 0"), "0");
  EXPECT_EQ(app->number("driver"), 40 * kMiB);
  EXPECT_EQ(app->alloc('m', 30 * kMiB), kOutOfMemory);
  EXPECT_EQ((*app)("trim"), "0");
  EXPECT_EQ(app->alloc('m', 30 * kMiB), "0");
  EXPECT_EQ((*app)("launch 0"), kRefused) << "beside what is allocated";
  EXPECT_EQ((*app)("free 0"), "0");
  EXPECT_EQ((*app)("launch 0"), "0");
  EXPECT_EQ((*app)("trim"), "0");
  EXPECT_EQ(graph(*free, 80, "1 0"), "0");
  EXPECT_EQ((*free)("launch 0"), "0") << "without a limit";
  auto other = program();
  EXPECT_EQ(other->alloc('m', 30 * kMiB), "0");
  eventually("another of the group holds it", [&] { return (*app)("launch 0") == kRefused; });
  stop();
  EXPECT_EQ((*app)("launch 1"), kRefused) << "by its own count";
  EXPECT_EQ((*app)("launch 0"), "0");
}

// A sum with it would overflow, and be little.
TEST_F(MemoryLimit, ASizeThatNoGpuHasLeavesTheAccountAsItIs) {
  limit("256MiB");
  start();
  auto app = program(), free = program("other");
  for (Program* one : {app.get(), free.get()}) {
    EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
    for (const char kind : {'m', 'u', 'p', 'v', 's'}) {
      EXPECT_EQ(one->alloc(kind, ~uint64_t{0} - 50 * kMiB), kOutOfMemory) << kind;
    }
  }
  EXPECT_EQ(row(*app).at("memory_bytes"), 100 * kMiB);
  EXPECT_EQ(row(*free).at("memory_bytes"), 100 * kMiB);
  EXPECT_EQ(app->alloc('m', 157 * kMiB), kOutOfMemory);
  stop();
  EXPECT_EQ(app->alloc('m', ~uint64_t{0} - 50 * kMiB), kOutOfMemory);
  EXPECT_EQ(app->alloc('m', 157 * kMiB), kOutOfMemory) << "by its own count";
}

TEST_F(MemoryLimit, IsWhatTheProgramSeesOfTheDevice) {
  limit("25%");
  start();
  auto one = program(), two = program();
  EXPECT_EQ(one->number("total"), 256 * kMiB);
  EXPECT_EQ((*one)("info"), std::to_string(256 * kMiB) + ' ' + std::to_string(256 * kMiB));
  EXPECT_EQ(one->alloc('m', 56 * kMiB), "0");
  EXPECT_EQ((*one)("info"), std::to_string(200 * kMiB) + ' ' + std::to_string(256 * kMiB));
  eventually("the other sees it", [&] {
    return (*two)("info") == std::to_string(200 * kMiB) + ' ' + std::to_string(256 * kMiB);
  });
}

TEST_F(MemoryLimit, KilledProcessGivesBackAtOnce) {
  limit("256MiB");
  start();
  auto one = program(), two = program();
  EXPECT_EQ(one->alloc('m', 256 * kMiB), "0");
  EXPECT_EQ(two->alloc('m', kMiB), kOutOfMemory);
  one->kill();
  eventually("its part is free", [&] { return two->alloc('m', 256 * kMiB) == "0"; });
}

// What it was granted and does not use cannot be given back by it.
TEST_F(MemoryLimit, StoppedProcessHoldsWhatItUsesAndNoMore) {
  limit("256MiB");
  start();
  auto one = program(), two = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  ASSERT_EQ(kill(one->pid(), SIGSTOP), 0);
  int how = 0;
  ASSERT_EQ(waitpid(one->pid(), &how, WUNTRACED), one->pid());
  EXPECT_EQ(two->alloc('m', 157 * kMiB), kOutOfMemory);
  EXPECT_EQ(two->alloc('m', 156 * kMiB), "0");
  ASSERT_EQ(kill(one->pid(), SIGCONT), 0);
  EXPECT_EQ(one->alloc('m', 1), kOutOfMemory) << "what it was granted before it was stopped";
}

TEST_F(MemoryLimit, ForkCountsOnce) {
  limit("256MiB");
  start();
  auto one = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  EXPECT_EQ((*one)("fork"), "0");
  EXPECT_EQ(one->alloc('m', 156 * kMiB), "1");
  EXPECT_EQ(one->alloc('m', 1), kOutOfMemory);
  EXPECT_EQ(row(*one).at("memory_group_bytes"), 256 * kMiB);
}

TEST_F(MemoryLimit, RestartedDaemonCountsAnew) {
  limit("256MiB");
  start();
  auto one = program(), two = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  EXPECT_EQ(two->alloc('m', 100 * kMiB), "0");
  restart();
  eventually("both are counted",
             [&] { return ps().size() == 2 && row(*one).at("memory_group_bytes") == 200 * kMiB; });
  eventually("the limit is known", [&] { return one->alloc('m', 57 * kMiB) == kOutOfMemory; });
  EXPECT_EQ(one->alloc('m', 56 * kMiB), "1");
  EXPECT_EQ(two->alloc('m', 1), kOutOfMemory);
}

TEST_F(MemoryLimit, WithoutADaemonAProcessKeepsToItByItself) {
  limit("256MiB");
  start();
  auto one = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  stop();
  EXPECT_EQ(one->alloc('m', 157 * kMiB), kOutOfMemory);
  EXPECT_EQ(one->alloc('m', 156 * kMiB), "1");
}

TEST_F(MemoryLimit, AFailClosedProcessGetsNoMemoryWithoutADaemon) {
  limit("256MiB", server::MemoryPer::kRule, true);
  start();
  auto one = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  stop();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), kOutOfMemory);
  start();
  eventually("a daemon is back", [&] { return one->alloc('m', 100 * kMiB) == "1"; });
}

TEST_F(MemoryLimit, PerLabelEachHasItsOwn) {
  limit("256MiB", server::MemoryPer::kLabel);
  start();
  auto red = program("team-red"), blue = program("team-blue"), red_too = program("team-red");
  EXPECT_EQ(red->alloc('m', 200 * kMiB), "0");
  EXPECT_EQ(blue->alloc('m', 200 * kMiB), "0");
  EXPECT_EQ(red_too->alloc('m', 100 * kMiB), kOutOfMemory);
}

TEST_F(MemoryLimit, RunKeepsWhatItStartsToItsOwn) {
  start();
  const std::vector<std::string> run{"HEDDLE_MEMORY=128MiB", "HEDDLE_RUN=1.2.3"};
  auto one = program("x", run), two = program("x", run);
  auto other = program("x", {"HEDDLE_MEMORY=128MiB", "HEDDLE_RUN=4"});
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  EXPECT_EQ(two->alloc('m', 100 * kMiB), kOutOfMemory);
  EXPECT_EQ(other->alloc('m', 100 * kMiB), "0");
}

TEST_F(MemoryLimit, ResetGivesBackWhatWasInTheContext) {
  limit("256MiB");
  start();
  auto one = program();
  EXPECT_EQ(one->alloc('m', 100 * kMiB), "0");
  EXPECT_EQ(one->alloc('a', 100 * kMiB), "1");
  EXPECT_EQ((*one)("reset"), "0");
  EXPECT_EQ(row(*one).at("memory_bytes"), one->number("driver"));
  EXPECT_EQ(row(*one).at("memory_bytes"), 0);
}

TEST_F(MemoryLimit, LoweredLimitTakesNothingAwayAndGivesNothingMore) {
  limit("512MiB");
  std::atomic<bool> lowered{false};
  const auto read = [&]() -> Result<server::Config> {
    server::Config fresh = config_;
    if (lowered) fresh.rules.at(0).terms.memory = "256MiB";
    return fresh;
  };
  auto made = server::Server::make(config_, *store_, *log_);
  ASSERT_TRUE(made);
  server_ = std::move(*made);
  server_->handle_signals({read, {}});
  thread_ = std::thread([this] { server_->run(); });
  auto one = program();
  EXPECT_EQ(one->alloc('m', 300 * kMiB), "0");
  EXPECT_EQ(one->alloc('m', 50 * kMiB), "1");
  lowered = true;
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  eventually("the limit is lower", [&] { return one->number("total") == 256 * kMiB; });
  EXPECT_EQ(one->number("driver"), 350 * kMiB);
  EXPECT_EQ(one->alloc('m', 1), kOutOfMemory);
  EXPECT_EQ((*one)("free 0"), "0");
  EXPECT_EQ(one->alloc('m', 206 * kMiB), "0");
  EXPECT_EQ(one->alloc('m', 1), kOutOfMemory);
}

// Random allocations in 16 processes of two groups, some of them killed, some forked, under a
// daemon that is started anew: in the end its accounts are what the drivers count.
class RandomMemory : public MemoryLimit {
 protected:
  void work(unsigned seed, int in_all) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    limit("700MiB", server::MemoryPer::kLabel);
    start();
    constexpr int kPrograms = 16, kRounds = 4;
    std::vector<std::unique_ptr<Program>> programs;
    const auto label = [](size_t i) { return i % 2 == 0 ? "team-a" : "team-b"; };
    for (int i = 0; i < kPrograms; ++i) programs.push_back(program(label(programs.size())));
    uint64_t refused = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string count = std::to_string(in_all / kPrograms / kRounds);
      for (auto& one : programs) {
        one->send("random " + std::to_string(random()) + ' ' + count + ' ' +
                  std::to_string(16 * kMiB));
      }
      std::vector<bool> killed(programs.size());
      for (int kills = 0; kills < 2; ++kills) {
        const size_t victim = random() % programs.size();
        programs[victim]->kill();
        killed[victim] = true;
      }
      if (round % 2 == 0) restart();
      for (size_t i = 0; i < programs.size(); ++i) {
        const std::string answer = programs[i]->receive();
        if (killed[i]) {
          programs[i] = program(label(i));
        } else {
          ASSERT_EQ(answer.find_first_not_of("0123456789"), answer.npos) << answer;
          refused += std::stoull(answer);
        }
      }
      compare(programs);
    }
    EXPECT_GT(refused, 0u);
  }

  void compare(std::vector<std::unique_ptr<Program>>& programs) {
    eventually("all are attached", [&] { return ps().size() == programs.size(); });
    std::map<std::string, uint64_t> used;
    uint64_t group_of_a = 0;
    for (size_t i = 0; i < programs.size(); ++i) {
      const uint64_t bytes = programs[i]->number("driver");
      const json seen = row(*programs[i]);
      EXPECT_EQ(seen.at("memory_bytes"), bytes) << "program " << i;
      used[i % 2 == 0 ? "team-a" : "team-b"] += bytes;
      if (i == 0) group_of_a = seen.at("memory_group_bytes");
    }
    EXPECT_EQ(group_of_a, used["team-a"]);
    for (const json& group : status().at("memory")) {
      const std::string name = group.at("limited_as");
      EXPECT_EQ(group.at("used_bytes"), used[name.substr(name.size() - 6)]) << name;
    }
  }
};

TEST_F(RandomMemory, AccountsAreTheDrivers) {
  work(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()), 8'000);
}

TEST_F(RandomMemory, AllNightAccountsAreTheDrivers) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    work(seed, 100'000);
    stop();
  }
}

}  // namespace
}  // namespace heddle::testing
