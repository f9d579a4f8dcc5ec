// heddle park: how much of its host's memory a program may take.
#include "daemon/cli/park/park.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/folder.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

class Park : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal: 999 kB\nMemAvailable:   4096 kB\nCached: 7 kB\n");
    write("proc/12/cgroup", "0::/team/job\n");
    fs::create_directories(root_ + "/cgroup/team/job");
  }
  void write(const std::string& name, const std::string& text) {
    const fs::path file = root_ + "/" + name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  uint64_t room() const { return host_room(12, root_ + "/proc", root_ + "/cgroup").value_or(1); }

  const TestFolder made_;
  const std::string root_ = made_.path();
};

TEST_F(Park, RoomIsWhatIsAvailable) {
  EXPECT_EQ(room(), 4096u * 1024);
  write("cgroup/team/job/memory.max", "max\n");
  EXPECT_EQ(room(), 4096u * 1024);
}

TEST_F(Park, RoomIsWhatACgroupOrOneAboveLeaves) {
  write("cgroup/team/memory.max", "3000000\n");
  write("cgroup/team/memory.current", "1000000\n");
  EXPECT_EQ(room(), 2'000'000u);
  write("cgroup/team/job/memory.max", "500000\n");
  write("cgroup/team/job/memory.current", "600000\n");
  EXPECT_EQ(room(), 0u);
}

TEST_F(Park, AProcessThatCannotBeReadHasNoKnownRoom) {
  EXPECT_FALSE(host_room(13, root_ + "/proc", root_ + "/cgroup"));
}

}  // namespace
}  // namespace heddle::cli
