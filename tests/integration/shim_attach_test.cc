// What the built shim tells of its process when it attaches.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "ipc/socket.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

// The control daemon's socket outlives it.
TEST_F(Shim, TellsOfAnMpsThatListensNotOfOneThatDid) {
  const std::string directory = testing::TempDir() + "mps-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory + "/control";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int control = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ASSERT_EQ(bind(control, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(control, 1), 0);
  std::vector<std::string> with_mps = environment();
  with_mps.push_back("CUDA_MPS_PIPE_DIRECTORY=" + directory);
  {
    Application app(with_mps);
    start(app, kLease);
    EXPECT_TRUE(daemon_.mps);
    EXPECT_FALSE(daemon_.mode_told);
  }
  daemon_.hang_up();
  with_mps.push_back("FAKE_MPS=0");
  {
    Application app(with_mps);
    start(app, kLease);
    EXPECT_FALSE(daemon_.mps) << "its driver knows better";
    EXPECT_TRUE(daemon_.mode_told);
  }
  with_mps.pop_back();
  pollfd visitors{control, POLLIN, 0};
  EXPECT_EQ(poll(&visitors, 1, 0), 0) << "nobody bothers it";
  close(control);
  daemon_.hang_up();
  Application app(with_mps);
  start(app, kLease);
  EXPECT_FALSE(daemon_.mps);
  unlink(path.c_str());
  rmdir(directory.c_str());
}

TEST_F(Shim, TellsWhatItsDriverSaysOfMps) {
  std::vector<std::string> without_pipes = environment();
  without_pipes.push_back("FAKE_MPS=1");
  without_pipes.push_back("CUDA_MPS_PIPE_DIRECTORY=/nowhere");
  Application app(without_pipes);
  start(app, kLease);
  EXPECT_TRUE(daemon_.mps);
  EXPECT_TRUE(daemon_.mode_told);
}

TEST_F(Shim, AttachesBehindAConnectionThatWasGivenUp) {
  close(ipc::connect_socket(path_.c_str(), 0));
  Application app(environment());
  start(app, kLease);
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(daemon_.records().size(), 1u);
}

TEST_F(Shim, TellsWhichGpusItSees) {
  Attached app(*this, kLease);
  EXPECT_EQ(daemon_.gpu_ids, std::string(16, 'a') + std::string(16, 'b'));
}

// FFmpeg, for one, does not start without them, though it may never call one. This driver has none.
TEST_F(Shim, HasTheGraphicsEntryPointsThatProgramsLookUp) {
  Application app({"HEDDLE_DISABLE=1"});
  for (const char* name : {"cuGLGetDevices_v2", "cuGraphicsGLRegisterImage", "cuEGLApiInit",
                           "cuVDPAUGetDevice", "cuMemGetAttribute_v2"}) {
    EXPECT_EQ(app(std::string("call ") + name), "500") << name;
  }
}

}  // namespace
}  // namespace heddle::shim_test
