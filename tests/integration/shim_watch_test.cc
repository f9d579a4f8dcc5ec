// The built shim's helper thread: it looks at markers while somebody less important waits.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Admission;
using wire::Evidence;
using wire::Kind;
using Clock = std::chrono::steady_clock;

class ShimWatch : public Shim {
 protected:
  // A leased client at whose end somebody waits, with marked work on the GPU.
  struct Contended : Attached {
    explicit Contended(ShimWatch& shim, float predicted_us = 200) : Attached(shim, kLease) {
      shim.predict(predicted_us);
      shim.daemon_.control().header.contended = 1;
      (*this)("set fake_busy 1");
      (*this)("launch 64");
      pause_and_launch(*this);
    }
  };
  // The host pauses behind this kernel: a gap may follow it, so that it is marked this time.
  static void pause_and_launch(Application& app) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    app("launch 64");
  }
  static int calls(Application& app) { return std::stoi(app("get fake_event_calls")); }
  // The helper has looked so often more, within some seconds.
  static bool looks(Application& app, int more) {
    const int before = calls(app);
    const auto until = Clock::now() + std::chrono::seconds(5);
    while (calls(app) < before + more) {
      if (Clock::now() > until) return false;
    }
    return true;
  }
  // How often the helper has gone to sleep so far.
  static long helper_naps(const Application& app) {
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(app.pid()) + "/task")) {
      std::string word;
      std::ifstream status(task.path() / "status");
      bool helper = false;
      while (status >> word) {
        if (word == "heddle") helper = true;
        if (word == "voluntary_ctxt_switches:" && helper && status >> word) return std::stol(word);
      }
    }
    ADD_FAILURE() << "no helper thread";
    return 0;
  }
  // True if nobody touches an event for a while, in which a helper that looks would often.
  static bool rests(Application& app) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the look that may be under way
    const int before = calls(app);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return calls(app) == before;
  }
};

TEST_F(ShimWatch, ReportsTheEndOfWorkWhileTheApplicationIsAway) {
  Contended app(*this);
  app("set fake_unseen 1");
  EXPECT_TRUE(looks(app, 10));
  const uint64_t newest = records(Kind::KERNEL).back().stream_seq;
  app("set fake_busy 0");
  std::vector<ipc::RecordFields> done;
  const auto until = Clock::now() + std::chrono::seconds(5);
  while (done.empty() && Clock::now() < until) done = records(Kind::COMPLETION);
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done[0].evidence, Evidence::MARKER);
  EXPECT_EQ(done[0].stream_seq, newest);
  EXPECT_TRUE(rests(app)) << "nothing is left to see";
  EXPECT_EQ(app("get fake_ended"), "0") << "a capture that nobody saw begin";
}

TEST_F(ShimWatch, DoesNothingWhileNobodyLessImportantWaits) {
  Attached app(*this, kLease);
  predict(10);
  app("set fake_busy 1");
  for (int i = 0; i < 5; ++i) pause_and_launch(app);
  EXPECT_EQ(app("get fake_event_calls"), "0");
  EXPECT_TRUE(rests(app));
}

// When a kernel of a few microseconds is over needs no evidence, and eager programs pause often.
TEST_F(ShimWatch, MarksNothingThatIsOverSoon) {
  Contended app(*this, 20);
  for (int i = 0; i < 20; ++i) pause_and_launch(app);
  EXPECT_EQ(app("get fake_event_calls"), "0");
}

TEST_F(ShimWatch, MarksAKernelAmongOthersOnce) {
  Contended app(*this);
  const int before = std::stoi(app("get fake_records"));
  app("set fake_busy 0");
  app("again 50000");  // one right after the other
  // Every 127th launch is timed by two events. The machine may take the processor away for a while,
  // which is a pause too: one in 20 on a busy host. A kernel marked each time would have 50 000.
  EXPECT_LE(std::stoi(app("get fake_records")) - before, 2 * 50000 / 127 + 50000 / 20);
}

TEST_F(ShimWatch, IsNotWokenByLaunchesThatHaveNoMarker) {
  Contended app(*this);
  app("set fake_busy 0");
  EXPECT_TRUE(rests(app));
  const long before = helper_naps(app);
  for (int i = 0; i < 500; ++i) app("nccl");  // behind which no event is put
  EXPECT_LE(helper_naps(app) - before, 50) << "one a second is its own";
}

TEST_F(ShimWatch, CountsNoLaunchWhereItFindsNoSlot) {
  Attached app(*this, kGate);
  predict(10);
  app("set fake_busy 1");
  app.send("threads " + std::to_string(ipc::kThreads));  // each keeps its slot until the last ends
  std::vector<ipc::RecordFields> asks;
  for (uint32_t i = 0; i < ipc::kThreads; ++i) asks.push_back(daemon_.wait_for_ask(i));
  daemon_.control().header.contended = 1;
  for (uint32_t i = 0; i < ipc::kThreads; ++i) daemon_.grant(asks[i], 0, i);
  EXPECT_EQ(app.receive(), std::to_string(ipc::kThreads));
  daemon_.control().devices[0].leased = kLease;
  app("again 64");  // the shared counters are brought up to date now and then
  const auto pool = static_cast<size_t>(Admission::SELF_POOL);
  EXPECT_EQ(daemon_.client().counters.self[pool], 0u);
}

TEST_F(ShimWatch, StopsOnceNobodyWaitsAnyMore) {
  Contended app(*this);
  EXPECT_TRUE(looks(app, 10));
  daemon_.control().header.contended = 0;
  EXPECT_TRUE(rests(app));
}

TEST_F(ShimWatch, RestsWhileAnythingCaptures) {
  Contended app(*this);
  EXPECT_TRUE(looks(app, 10));
  app("capture 128");
  EXPECT_TRUE(rests(app));
  app("end_capture 128");
  pause_and_launch(app);
  EXPECT_TRUE(looks(app, 10));
}

TEST_F(ShimWatch, LooksEveryTwentyMicroseconds) {
  Contended app(*this);
  EXPECT_TRUE(looks(app, 1));
  const int before = calls(app);
  const auto begin = Clock::now();
  EXPECT_TRUE(looks(app, 1000));
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  EXPECT_GE(took.count() / (calls(app) - before), 15) << "it spins";
}

TEST_F(ShimWatch, GoesOnAfterTheDaemonWasReplaced) {
  Contended app(*this);
  EXPECT_TRUE(looks(app, 10));
  daemon_.hang_up();
  while (!rests(app)) {
  }
  daemon_.accept(kLease);
  predict(10);
  daemon_.control().header.contended = 1;
  const auto until = Clock::now() + std::chrono::seconds(5);
  while (records(Kind::KERNEL).empty() && Clock::now() < until) app("launch 64");
  pause_and_launch(app);
  EXPECT_TRUE(looks(app, 10));
}

}  // namespace
}  // namespace heddle::shim_test
