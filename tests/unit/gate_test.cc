// The arithmetic of gates, and both sides of the page on one thread.
#include "ipc/gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace heddle::ipc {
namespace {

constexpr uint32_t kBeforeWrap = 0xfffffff0;

// One device's words, and the shim's newest ticket.
struct Gates {
  explicit Gates(uint32_t newest = kBeforeWrap) : floor(newest), word(newest), posted(newest) {}

  std::atomic<uint32_t> floor, word, running{0}, posted;

  void raise(uint32_t upto) { gate_floor(floor, word, running, upto); }
  void open() { gate_open_floor(floor, word, running, posted); }
  void close() { gate_close_floor(floor, word, running, posted); }
  uint32_t release(uint32_t upto) { return gate_release(word, floor, upto); }
  bool run(uint32_t done, bool on) { return gate_run(running, floor, done, on); }
};

TEST(Gate, AReleaseLetsAPrefixGoAcrossTheWrap) {
  for (uint32_t released = 0; released <= 64; ++released) {
    for (uint32_t ticket = 1; ticket <= 64; ++ticket) {
      EXPECT_EQ(gate_lets(kBeforeWrap + released, kBeforeWrap + ticket), ticket <= released);
    }
  }
}

TEST(Gate, TheLaterOfTwoIsCyclic) {
  EXPECT_EQ(gate_later(kBeforeWrap, kBeforeWrap + 32), kBeforeWrap + 32);
  EXPECT_EQ(gate_later(kBeforeWrap + 32, kBeforeWrap), kBeforeWrap + 32);
  EXPECT_EQ(gate_later(7, 7), 7u);
}

TEST(Gate, AFreshPageHoldsTheFirstTicket) {
  const auto page = std::make_unique<GatePage>();
  EXPECT_FALSE(gate_lets(page->word[0], 1));
  EXPECT_FALSE(gate_lets(page->floor[0], 1));
  EXPECT_FALSE(gate_is_open(page->word[0], 0));
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
    uint32_t posted = kBeforeWrap, word = gate_open(posted);
    for (uint64_t sum = 0; sum < uint64_t{2} << 32; sum += step) {
      posted += step;
      ASSERT_TRUE(gate_lets(word, posted)) << "step " << step << ", posted " << posted;
      if (!gate_is_open(word, posted)) word = gate_open(posted);
    }
  }
}

TEST(Gate, AReleasedPrefixIsNotTakenForOpen) {
  for (const uint32_t ahead : {0u, 1u, 1'000u}) {
    EXPECT_FALSE(gate_is_open(kBeforeWrap, kBeforeWrap + ahead));
  }
}

TEST(Gate, ADaemonStoresTheLaterOfItsReleaseAndTheFloor) {
  Gates gates;
  EXPECT_EQ(gates.release(kBeforeWrap + 20), kBeforeWrap + 20);
  EXPECT_EQ(gates.word, kBeforeWrap + 20);
  gates.raise(kBeforeWrap + 18);
  EXPECT_EQ(gates.word, kBeforeWrap + 20) << "the daemon let more go";
  gates.raise(kBeforeWrap + 24);
  EXPECT_EQ(gates.word, kBeforeWrap + 24);
  EXPECT_EQ(gates.release(kBeforeWrap + 21), kBeforeWrap + 24);
  EXPECT_EQ(gates.word, kBeforeWrap + 24);
}

TEST(Gate, ADaemonClosesWhatItOpenedDownToTheFloor) {
  Gates gates;
  gates.release(gate_open(kBeforeWrap));
  gates.raise(kBeforeWrap + 20);
  EXPECT_TRUE(gate_is_open(gates.word, kBeforeWrap));
  gates.release(kBeforeWrap + 3);
  EXPECT_EQ(gates.word, kBeforeWrap + 20);
}

TEST(Gate, AFloorNeverMovesBackByARaise) {
  Gates gates;
  gates.raise(kBeforeWrap + 20);
  gates.raise(kBeforeWrap + 5);
  EXPECT_EQ(gates.floor, kBeforeWrap + 20);
  EXPECT_EQ(gates.word, kBeforeWrap + 20);
}

// A client that moves its floor whenever somebody looks.
struct RestlessFloor {
  mutable std::atomic<uint32_t> value{kBeforeWrap};
  mutable int loads = 0;

  uint32_t load(std::memory_order) const {
    if (++loads > 10'000) throw std::runtime_error("the daemon looks for ever");
    return ++value;
  }
  void store(uint32_t stored, std::memory_order) { value = stored; }
};

TEST(Gate, AFloorThatAlwaysMovesDoesNotKeepTheDaemon) {
  RestlessFloor word, floor;
  EXPECT_TRUE(gate_lets(gate_release(word, floor, kBeforeWrap), kBeforeWrap + 2));
  EXPECT_LE(floor.loads, 100);
  EXPECT_TRUE(gate_lets(floor.value, word.value)) << "it stores nothing that nobody asked for";
}

TEST(Gate, ASilentDaemonsGatesStandOpenAndCloseToWhatIsPosted) {
  Gates gates;
  gates.release(kBeforeWrap + 2);
  gates.posted = kBeforeWrap + 20;
  gates.open();
  EXPECT_TRUE(gate_is_open(gates.floor, gates.posted));
  EXPECT_TRUE(gate_is_open(gates.word, gates.posted));
  EXPECT_EQ(gates.running, 1u);
  gates.posted = kBeforeWrap + 30;
  gates.close();
  EXPECT_EQ(gates.floor, kBeforeWrap + 30);
  EXPECT_TRUE(gate_is_open(gates.word, gates.posted)) << "the daemon closes it";
  gates.release(kBeforeWrap + 2);
  EXPECT_EQ(gates.word, kBeforeWrap + 30);
}

TEST(Gate, AFloorThatIsKeptOpenRaisesWhatADaemonClosed) {
  Gates gates;
  gates.open();
  gates.word = kBeforeWrap + 2;  // by a daemon that was stopped before it looked, and ended
  gates.running = 0;
  gates.open();
  EXPECT_TRUE(gate_is_open(gates.word, gates.posted));
  EXPECT_EQ(gates.running, 1u);
}

TEST(Gate, AFloorThatIsKeptOpenMovesAlongOverTwoTurns) {
  Gates gates;
  constexpr uint32_t kStep = 1u << 28;
  for (uint64_t sum = 0; sum < uint64_t{2} << 32; sum += kStep) {
    gates.open();
    ASSERT_TRUE(gate_is_open(gates.word, gates.posted)) << "posted " << gates.posted;
    ASSERT_EQ(gates.release(gates.posted), gates.floor);
    gates.posted += kStep;
    ASSERT_TRUE(gate_lets(gates.word, gates.posted)) << "posted " << gates.posted;
  }
}

// Posts once more when the opener has looked at what is posted.
struct PostsOnce {
  static inline Gates* gates = nullptr;
  static inline bool posted = false;

  static void at(const char* name) {
    if (std::string_view(name) != "gate: floor lowered, tickets not read") return;
    if (!std::exchange(posted, true)) ++gates->posted;
  }
};

TEST(Gate, AClosedFloorHoldsWhatWasPostedMeanwhile) {
  Gates gates;
  gates.open();
  PostsOnce::gates = &gates;
  gate_close_floor<PostsOnce>(gates.floor, gates.word, gates.running, gates.posted);
  EXPECT_EQ(gates.floor, kBeforeWrap + 1);
}

TEST(Gate, GraphsStopOnlyWhereAllUpToTheFloorIsOver) {
  Gates gates;
  EXPECT_TRUE(gates.run(kBeforeWrap, true));
  EXPECT_EQ(gates.running, 1u);
  EXPECT_FALSE(gates.run(kBeforeWrap, false));
  EXPECT_EQ(gates.running, 0u);
  gates.raise(kBeforeWrap + 20);
  EXPECT_EQ(gates.running, 1u);
  EXPECT_TRUE(gates.run(kBeforeWrap + 19, false));
  EXPECT_EQ(gates.running, 1u);
  EXPECT_FALSE(gates.run(kBeforeWrap + 20, false));
  EXPECT_EQ(gates.running, 0u);
  gates.open();
  EXPECT_TRUE(gates.run(kBeforeWrap + 20, false)) << "the floor is open";
  EXPECT_EQ(gates.running, 1u);
}

// At 27 000 tickets a second looked at every 50 ms, and much rarer.
TEST(Gate, AFloorThatNobodyRaisesStaysComparableOverTwoTurns) {
  for (const uint32_t step : {1'350u, 1u << 20, 1u << 28}) {
    Gates gates;
    for (uint64_t sum = 0; sum < uint64_t{2} << 32; sum += step) {
      gates.posted += step;
      // What may not be over yet has a later ticket than the floor.
      ASSERT_FALSE(gate_lets(gates.floor, gates.posted - kGateUnits))
          << "step " << step << ", posted " << gates.posted;
      gate_follow(gates.floor, gates.posted);
      ASSERT_EQ(gates.release(gates.posted), gates.posted);
    }
  }
}

TEST(Gate, AFloorThatIsNearIsNotMovedByItself) {
  Gates gates;
  gates.posted += kGateAhead / 2 - 1;
  gate_follow(gates.floor, gates.posted);
  EXPECT_EQ(gates.floor, kBeforeWrap);
  gates.open();
  const uint32_t open = gates.floor;
  gate_follow(gates.floor, gates.posted);
  EXPECT_EQ(gates.floor, open);
}

}  // namespace
}  // namespace heddle::ipc
