// The built shim sees what its driver asks of the kernel module, and stops what runs as a daemon
// orders. The rest is in tests/unit/stop_lever_test.cc.
#include <filesystem>
#include <fstream>

#include "ipc/socket.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

class ShimStops : public Shim {
 protected:
  std::vector<std::string> with(const std::vector<std::string>& variables = {"FAKE_MPS=0"}) {
    std::vector<std::string> all = environment();
    all.insert(all.end(), variables.begin(), variables.end());
    return all;
  }
  struct Stoppable : Application {
    explicit Stoppable(const std::vector<std::string>& environment)
        : Application(environment, HEDDLE_SHIM_STOP_CLIENT) {}
  };
  // Attached to a daemon that lives on, with a context of two channels.
  void begin(Application& app) {
    start(app, kLease);
    live_on();
    EXPECT_EQ(app("make 2"), "0");
  }
  void live_on() { daemon_.control().header.heartbeat_ns = INT64_MAX / 2; }
  void order(ipc::StopOrder order) {
    daemon_.control().devices[0].stop = ipc::pack_stop(order);
    daemon_.control().stop_order.fetch_add(1);
    ipc::futex_wake(&daemon_.control().stop_order);
  }
  static bool becomes(Application& app, const std::string& off) {
    for (int i = 0; i < 1'000; ++i) {
      if (app("off") == off) return true;
      usleep(5'000);
    }
    return false;
  }
  // Waits for what the shim says of itself.
  bool says(uint32_t able) {
    for (int i = 0; i < 1'000; ++i) {
      if (daemon_.client().threads[0].stop_able == able) return true;
      usleep(5'000);
    }
    return false;
  }
  static bool has_thread(const Application& app) {
    const std::string tasks = "/proc/" + std::to_string(app.pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::string name;
      if (std::getline(std::ifstream(task.path() / "comm"), name) && name == "heddle-stops") {
        return true;
      }
    }
    return false;
  }
};

TEST_F(ShimStops, AProgramIsStoppedAndGoesOn) {
  Stoppable app(with());
  start(app, kLease);
  EXPECT_TRUE(says(ipc::kStopNoChannels));
  EXPECT_TRUE(has_thread(app));
  live_on();
  EXPECT_EQ(app("make 2"), "0");
  EXPECT_TRUE(says(ipc::kStopYes));
  order({true, 0});
  EXPECT_TRUE(becomes(app, "2"));
  EXPECT_EQ(app("fork"), "0") << "a child has nothing to do with it";
  EXPECT_EQ(app("off"), "2");
  order({});
  EXPECT_TRUE(becomes(app, "0"));
}

// Its place holds a stub, which puts the function there at the first call.
TEST_F(ShimStops, ADriverThatWasLoadedBeforeIsSeen) {
  Stoppable app(with({"FAKE_MPS=0", "LOADED_BEFORE=1"}));
  begin(app);
  EXPECT_TRUE(says(ipc::kStopYes));
  order({true, 0});
  EXPECT_TRUE(becomes(app, "2"));
}

TEST_F(ShimStops, LetsGoWhenTheDaemonStandsStillOrEnds) {
  Stoppable app(with());
  begin(app);
  order({true, 0});
  EXPECT_TRUE(becomes(app, "2"));
  daemon_.control().header.heartbeat_ns = 1;
  EXPECT_TRUE(becomes(app, "0"));
  live_on();
  EXPECT_TRUE(becomes(app, "2"));
  daemon_.hang_up();
  EXPECT_TRUE(becomes(app, "0"));
  daemon_.accept(kLease);
  live_on();
  EXPECT_TRUE(says(ipc::kStopYes));
  order({true, 0});
  EXPECT_TRUE(becomes(app, "2"));
}

TEST_F(ShimStops, LetsGoBeforeAContextEnds) {
  for (const char* const end : {"destroy", "reset", "release"}) {
    Stoppable app(with());
    begin(app);
    EXPECT_EQ(app("retain"), "0");
    order({true, 0});
    EXPECT_TRUE(becomes(app, "2"));
    EXPECT_EQ(app(end), "0") << end;
    EXPECT_TRUE(says(ipc::kStopNoChannels)) << end;
    daemon_.hang_up();
  }
}

TEST_F(ShimStops, LetsGoAtExit) {
  Stoppable app(with());
  begin(app);
  order({true, 0});
  EXPECT_TRUE(becomes(app, "2"));
  EXPECT_EQ(app("exit"), "0");
}

TEST_F(ShimStops, UnderMpsNothingIsStopped) {
  for (const std::vector<std::string>& mode : {{"FAKE_MPS=1"}, std::vector<std::string>{}}) {
    Stoppable app(with(mode));
    begin(app);
    EXPECT_TRUE(says(ipc::kStopMps)) << mode.size() << ": it runs, or nobody says";
    daemon_.hang_up();
  }
}

TEST_F(ShimStops, AVariableTurnsThemOff) {
  Stoppable app(with({"FAKE_MPS=0", "HEDDLE_STOPS=0"}));
  begin(app);
  daemon_.hang_up();
  ASSERT_TRUE(daemon_.pending(5'000)) << "it was attached, and comes again";
  EXPECT_FALSE(has_thread(app));
}

}  // namespace
}  // namespace heddle::shim_test
