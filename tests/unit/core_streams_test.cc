// A window bounds what a client queues, not what its streams run side by side.
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr double kDefaultUs = 100;  // of a kernel that was never timed

class StreamsTest : public CoreTest {
 protected:
  // Takes the window's room of 2 ms, and more.
  void fill(ClientId id, uint16_t stream) {
    for (int i = 0; i < 21; ++i) submit(EventKind::kPosted, id, stream);
  }
  void submit(EventKind kind, ClientId id, uint16_t stream) {
    Event e =
        launch(kind, id, kind == EventKind::kAsked ? Admission::kAsk : Admission::kWindow, stream);
    e.launch.stream = stream;
    e.launch.stream_seq = ++seq_[{id, stream}];
    step(e);
  }

  std::map<std::pair<ClientId, uint16_t>, uint64_t> seq_;
};

TEST_F(StreamsTest, AFullWindowLetsStreamsWithoutWorkLaunch) {
  attach(1, 9);
  attach(2, 9);  // idle
  EXPECT_EQ(window_[1].free_streams, 8);
  fill(1, 0);
  submit(EventKind::kAsked, 1, 0);
  EXPECT_EQ(grants_.size(), 0u) << "the stream has work, and the window no room";
  for (uint16_t stream = 1; stream < 8; ++stream) submit(EventKind::kAsked, 1, stream);
  EXPECT_EQ(grants_.size(), 7u);
  submit(EventKind::kAsked, 1, 8);
  EXPECT_EQ(grants_.size(), 7u) << "eight streams have work";
}

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
  for (uint16_t stream = 0; stream < 3; ++stream) submit(EventKind::kPosted, 2, stream);
  EXPECT_NEAR(core_->view().clients().front().added_us_max, 1000 + 3 * kDefaultUs + 140, 1);
}

}  // namespace
}  // namespace heddle::core
