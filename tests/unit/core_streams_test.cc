// A window bounds what a client queues, not what its streams run side by side.
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr double kDefaultUs = 100;  // of a kernel that was never timed

class StreamsTest : public CoreTest {
 protected:
  void submit(ClientId id, uint16_t stream) {
    Event e = launch(EventKind::kPosted, id, Admission::kWindow, stream);
    e.launch.stream = stream;
    e.launch.stream_seq = ++seq_[{id, stream}];
    step(e);
  }

  std::map<std::pair<ClientId, uint16_t>, uint64_t> seq_;
};

TEST_F(StreamsTest, NoStreamIsFreeBelowAnActiveClientNorUnderAGate) {
  attach(1, 9);
  attach(2, 5);
  post(2);
  EXPECT_EQ(window(1), kWindowGated);
  EXPECT_EQ(window_[1].free_streams, 0);
  EXPECT_EQ(window_[2].free_streams, 8);
  attach(3, 0);
  post(3);
  EXPECT_EQ(window_[2].free_streams, 0);
  EXPECT_EQ(window_[3].free_streams, 0) << "a lease needs none";
}

TEST_F(StreamsTest, TheBoundCountsALaunchInEachStreamThatTheClientUses) {
  attach_both();
  for (uint16_t stream = 0; stream < 3; ++stream) submit(2, stream);
  EXPECT_NEAR(core_->view().clients().front().added_us_max, 1000 + 3 * kDefaultUs + 140, 1);
}

}  // namespace
}  // namespace heddle::core
