// The arithmetic of gates, and both sides of the page on one thread.
#include "ipc/gate.h"

#include <gtest/gtest.h>

#include <memory>

namespace heddle::ipc {
namespace {

constexpr uint32_t kBeforeWrap = 0xfffffff0;

TEST(Gate, AReleaseLetsAPrefixGoAcrossTheWrap) {
  for (uint32_t released = 0; released <= 64; ++released) {
    for (uint32_t ticket = 1; ticket <= 64; ++ticket) {
      EXPECT_EQ(gate_lets(kBeforeWrap + released, kBeforeWrap + ticket), ticket <= released);
    }
  }
}

TEST(Gate, AFreshPageHoldsTheFirstTicket) {
  EXPECT_FALSE(gate_lets(0, 1));
  EXPECT_FALSE(gate_is_open(0, 0));
}

TEST(Gate, AnOpenWordLetsWhateverIsPostedGo) {
  const uint32_t open = gate_open(kBeforeWrap);
  for (const uint32_t posted : {kBeforeWrap, kBeforeWrap + 1, kBeforeWrap + 100}) {
    EXPECT_TRUE(gate_is_open(open, posted));
    EXPECT_TRUE(gate_lets(open, posted));
  }
}

// Two full turns of the word, at 27 000 tickets a second looked at every 100 ms and much rarer.
TEST(Gate, AnOpenWordMovesAlongBeforeItIsUsedUp) {
  for (const uint32_t step : {2'700u, 1u << 20, 1u << 28}) {
    uint32_t posted = kBeforeWrap, released = gate_open(posted);
    for (uint64_t sum = 0; sum < uint64_t{2} << 32; sum += step) {
      posted += step;
      ASSERT_TRUE(gate_lets(released, posted)) << "step " << step << ", posted " << posted;
      if (!gate_is_open(released, posted)) released = gate_open(posted);
    }
  }
}

TEST(Gate, AReleasedPrefixIsNotTakenForOpen) {
  for (const uint32_t ahead : {0u, 1u, 1'000u}) {
    EXPECT_FALSE(gate_is_open(kBeforeWrap, kBeforeWrap + ahead));
  }
}

TEST(Gate, ADaemonOpensInsteadOfClosingWhenTheShimIsLeaving) {
  const auto page = std::make_unique<GatePage>();
  gate_release(page->released[3], page->leaving, 7, 9);
  EXPECT_EQ(page->released[3], 7u);
  gate_leave(page->leaving);
  gate_release(page->released[3], page->leaving, 8, 9);
  EXPECT_TRUE(gate_is_open(page->released[3], 9));
}

TEST(Gate, ALeavingShimOpensWhatADaemonClosed) {
  const auto page = std::make_unique<GatePage>();
  gate_leave(page->leaving);
  gate_keep_open(page->released[0], 5);
  EXPECT_TRUE(gate_is_open(page->released[0], 5));
  page->released[0] = 2;  // by a daemon that was stopped before it looked, and ended
  gate_keep_open(page->released[0], 5);
  EXPECT_TRUE(gate_is_open(page->released[0], 5));
}

}  // namespace
}  // namespace heddle::ipc
