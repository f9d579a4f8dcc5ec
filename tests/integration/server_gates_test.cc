// The daemon's side of the gate page.
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

TEST_F(ServerTest, AClientWithGatesGetsAPageThatNobodyCanResize) {
  start();
  FakeClient client(config_.socket, {.gates = true});
  ASSERT_GE(client.gates_descriptor(), 0);
  struct stat file;
  ASSERT_EQ(fstat(client.gates_descriptor(), &file), 0);
  EXPECT_EQ(static_cast<size_t>(file.st_size), sizeof(ipc::GatePage));
  EXPECT_EQ(fcntl(client.gates_descriptor(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(ServerTest, AGatePageHasAHeartbeat) {
  start();
  FakeClient client(config_.socket, {.gates = true});
  const int64_t first = client.gates().heartbeat_ns;
  EXPECT_GT(first, 0);
  EXPECT_TRUE(eventually([&] { return client.gates().heartbeat_ns != first; }));
}

TEST_F(ServerTest, AClientWithoutGatesGetsNoPage) {
  start();
  FakeClient client(config_.socket, {});
  EXPECT_EQ(client.gates_descriptor(), -1);
}

}  // namespace
}  // namespace heddle::testing
