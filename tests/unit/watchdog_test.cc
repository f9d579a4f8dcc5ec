#include "daemon/server/watchdog.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

namespace heddle::server {
namespace {

TEST(WatchdogTest, TellsTheManagerOnlyWhileTheLoopTurns) {
  const TestFolder folder;
  const std::string path = folder.path() + "/notify";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "80000", 1);
  const auto told = [&](int within_ms) {
    pollfd p{fd, POLLIN, 0};
    char text[32] = "";
    return poll(&p, 1, within_ms) == 1 && recv(fd, text, sizeof text - 1, 0) > 0 &&
           std::string(text) == "WATCHDOG=1";
  };
  {
    Watchdog watchdog;
    EXPECT_GT(watchdog.turn_ms(), 0u);
    EXPECT_TRUE(told(10'000)) << "it began";
    EXPECT_FALSE(told(300)) << "the loop hangs";
    watchdog.turned();
    EXPECT_TRUE(told(10'000));
    EXPECT_FALSE(told(300)) << "once for one turn";
  }
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(Watchdog().turn_ms(), 0u);
  unsetenv("NOTIFY_SOCKET");
  close(fd);
}

}  // namespace
}  // namespace heddle::server
