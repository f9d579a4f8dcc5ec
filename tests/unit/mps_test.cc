// What is known of MPS without a process: configuration, command, log lines, the mode of a client.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/server/mps_watch.h"

namespace heddle::server {
namespace {

TEST(MpsConfig, IsReadAndRefusedByName) {
  const Result<Config> config =
      parse_config("[mps]\nmanage = true\npipe_directory = \"/run/x\"\n", "heddled.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->mps.manage);
  EXPECT_EQ(config->mps.pipe_directory, "/run/x");
  EXPECT_EQ(config->mps.control, "nvidia-cuda-mps-control");
  const auto error_of = [](const std::string& text) {
    const Result<Config> wrong = parse_config(text, "heddled.toml");
    return wrong ? "" : wrong.error().message;
  };
  EXPECT_EQ(
      error_of("[mps]\nlog_directory = \"x\"\n").rfind("heddled.toml:2: mps.log_directory", 0), 0u);
  EXPECT_NE(
      error_of("[mps]\npipe_directory = \"/" + std::string(88, 'x') + "\"\n").find("88 bytes"),
      std::string::npos);
  EXPECT_NE(error_of("[mps]\ncontrol = \"\"\n").find("mps.control"), std::string::npos);
}

TEST(MpsConfig, DirectoriesAreOursIfManagedAndElseWhereMpsItselfLooks) {
  unsetenv("CUDA_MPS_LOG_DIRECTORY");
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/theirs", 1);
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  MpsSettings found, managed;
  fill_directories(found);
  EXPECT_EQ(found.pipe_directory, "/run/theirs");
  EXPECT_EQ(found.log_directory, "/var/log/nvidia-mps");
  managed.manage = true;
  fill_directories(managed);
  const bool root = geteuid() == 0;
  EXPECT_EQ(managed.pipe_directory, root ? "/run/heddle-mps" : "/run/user/7/heddle-mps");
  EXPECT_EQ(managed.log_directory, root ? "/var/log/heddle-mps" : "/run/user/7/heddle-mps/log");
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

TEST(MpsStart, IsAUnitOfItsOwnUnderSystemd) {
  const MpsSettings settings{true, "/run/x", "/var/log/x", "mps-control"};
  EXPECT_EQ(start_command(settings, false), (std::vector<std::string>{"mps-control", "-d"}));
  const std::vector<std::string> unit = start_command(settings, true);
  const auto says = [&](const std::string& word) {
    return std::find(unit.begin(), unit.end(), word) != unit.end();
  };
  EXPECT_EQ(unit.front(), "systemd-run");
  EXPECT_TRUE(says("--unit=heddle-mps.service") && says("--property=Type=forking"));
  EXPECT_TRUE(says("--property=PIDFile=/run/x/nvidia-cuda-mps-control.pid"));
  EXPECT_TRUE(says("--setenv=CUDA_MPS_PIPE_DIRECTORY=/run/x"));
  EXPECT_EQ(unit.back(), "-d");
}

TEST(MpsLog, ClientsThatWerePushedToWaitAreFoundInIt) {
  const auto found = pushed_to_wait(
      "[2026-05-31 23:46:49.893 Control 11107] Starting control daemon using socket "
      "/tmp/x/control\n"
      "[2026-05-31 23:48:25.153 Control 11107] NEW CLIENT 11811 from user 0: Server is not ready, "
      "push client to pending list\n"
      "[2026-05-31 23:48:26.153 Control 11107] NEW CLIENT 11812 from user 0: Server already "
      "exists\n"
      "[2021-12-19 16:26:44.071 Control     1] NEW CLIENT 0 from user 1000: Server is not ready, "
      "push client to pending list\n"
      "[x] NEW CLIENT 99999999999 from user 0: pending list\nNEW CLIENT 7 from pending list\n"
      "NEW CLIENT 12 from user 1000: Server is not ready, push client to pending list");
  ASSERT_EQ(found.size(), 2u) << "0: of a PID namespace that MPS does not see";
  EXPECT_EQ(found[0].pid, 11811);
  EXPECT_EQ(found[0].uid, 0u);
  EXPECT_EQ(found[1].pid, 12);
  EXPECT_EQ(found[1].uid, 1000u);
}

TEST(MpsMode, OfAClientIsWhatTheEvidenceSays) {
  MpsState state;
  state.servers.push_back({{1, 0}, {{42, 0}}});
  Identity listed, bare, unlisted, unseen;
  listed.pid = 42;
  bare.pid = unlisted.pid = 43;
  unlisted.mps = unseen.mps = true;
  EXPECT_EQ(mode_of(listed, GpuMode::kTimeslice, state), GpuMode::kMps) << "seen, whatever is said";
  EXPECT_EQ(mode_of(bare, GpuMode::kAuto, state), GpuMode::kTimeslice);
  EXPECT_EQ(mode_of(bare, GpuMode::kMps, state), GpuMode::kMps);
  EXPECT_EQ(mode_of(unlisted, GpuMode::kAuto, state), GpuMode::kAuto);
  EXPECT_EQ(mode_of(unseen, GpuMode::kAuto, state), GpuMode::kAuto) << "PID 0 is nobody's";
  unlisted.mode_told = bare.mode_told = true;
  EXPECT_EQ(mode_of(unlisted, GpuMode::kAuto, state), GpuMode::kMps) << "its driver says so";
  EXPECT_EQ(mode_of(bare, GpuMode::kMps, state), GpuMode::kTimeslice) << "so does its own";
}

}  // namespace
}  // namespace heddle::server
