// Orders to a client's shim to stop what runs, and what that says.
#include "daemon/server/stop_desk.h"

#include <gtest/gtest.h>

#include <memory>

namespace heddle::server {
namespace {

class StopDeskTest : public ::testing::Test {
 protected:
  std::optional<core::StopBody> look(size_t device = 0, bool allowed = true) {
    return desk_.look(*control_, *client_, device, allowed, now_ += 20'000'000);
  }
  void able(uint32_t word, size_t device = 0) { client_->threads[device].stop_able = word; }
  // As the shim does: the newest order, whichever device it was for.
  void carry_out(uint32_t us = 600) {
    for (size_t device : {0, 1}) {
      client_->threads[device].stop_us = us;
      client_->threads[device].stop_done = control_->stop_order.load();
    }
  }

  std::unique_ptr<ipc::ControlMemory> control_ = std::make_unique<ipc::ControlMemory>();
  std::unique_ptr<ipc::ClientMemory> client_ = std::make_unique<ipc::ClientMemory>();
  StopDesk desk_;
  core::TimeNs now_ = 0;
};

TEST_F(StopDeskTest, TellsWhatIsNewOnce) {
  EXPECT_FALSE(look());
  able(ipc::kStopYes);
  const auto said = look();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->able, ipc::kStopYes);
  EXPECT_FALSE(said->off);
  EXPECT_FALSE(look());
}

TEST_F(StopDeskTest, AnOrderIsInItsWordAndIsToldOnceItWasCarriedOut) {
  able(ipc::kStopYes);
  look();
  desk_.order(*control_, 0, {true, 200});
  EXPECT_EQ(ipc::unpack_stop(control_->devices[0].stop), (ipc::StopOrder{true, 200}));
  EXPECT_FALSE(look());
  carry_out();
  const auto said = look();
  ASSERT_TRUE(said);
  EXPECT_TRUE(said->off);
  EXPECT_EQ(said->took_us, 600);
  EXPECT_FALSE(look());
}

TEST_F(StopDeskTest, AnotherSliceTeachesNothingOfWhatAStopTakes) {
  able(ipc::kStopYes);
  look();
  desk_.order(*control_, 0, {false, 200});
  carry_out(9'000);
  ASSERT_EQ(look()->took_us, 0);
}

TEST_F(StopDeskTest, OrdersForTwoDevicesAreBothDoneWithTheNewest) {
  able(ipc::kStopYes);
  able(ipc::kStopYes, 1);
  look();
  look(1);
  desk_.order(*control_, 0, {true, 0});
  desk_.order(*control_, 1, {true, 0});
  carry_out();
  EXPECT_TRUE(look()->off);
  EXPECT_TRUE(look(1)->off);
}

TEST_F(StopDeskTest, WhoCannotBeStoppedAnyMoreFindsNoOldOrder) {
  able(ipc::kStopYes);
  look();
  desk_.order(*control_, 0, {true, 200});
  carry_out();
  look();
  able(ipc::kStopTraced);
  const auto said = look();
  ASSERT_TRUE(said);
  EXPECT_FALSE(said->off);
  EXPECT_EQ(control_->devices[0].stop, 0U);
}

TEST_F(StopDeskTest, WhereStopsMayNotBeUsedNobodyCanBeStopped) {
  EXPECT_FALSE(look(0, false));
  able(ipc::kStopYes);
  EXPECT_EQ(look(0, false)->able, ipc::kStopNotAsked);
  EXPECT_EQ(look()->able, ipc::kStopYes);
  desk_.order(*control_, 0, {true, 0});
  carry_out();
  look();
  EXPECT_EQ(look(0, false)->able, ipc::kStopNotAsked);
  EXPECT_EQ(control_->devices[0].stop, 0U);
}

TEST_F(StopDeskTest, AHostileClientIsHeardSeldomAndOnlyWhatMeansSomething) {
  able(ipc::kStopAbleCount);
  EXPECT_FALSE(look());
  able(0xffffffff);
  EXPECT_FALSE(look());
  client_->threads[0].stop_done = 7;  // of no order
  EXPECT_FALSE(look());
  int heard = 0;
  for (int i = 0; i < 1'000; ++i) {  // 10 ms in all
    able(i % 2 == 0 ? ipc::kStopYes : ipc::kStopRefused);
    heard += desk_.look(*control_, *client_, 0, true, now_ + i * 10'000) ? 1 : 0;
  }
  EXPECT_LE(heard, 2);
  able(ipc::kStopYes);
  look();
  desk_.order(*control_, 0, {true, 0});
  carry_out(0xffffffff);
  EXPECT_LE(look()->took_us, 100'000);
}

}  // namespace
}  // namespace heddle::server
