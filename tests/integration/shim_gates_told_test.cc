// What the GPU tells of units at gates under the built shim, and when.
#include "tests/integration/shim_gates_fixture.h"

namespace heddle::shim_test {
namespace {

TEST_F(ShimGates, TheGpuTellsOfTheUnitBeforeInTheSameStream) {
  predict(150);
  expect_gated("launch 64", 1);
  expect_gated("launch 72", 2);
  EXPECT_EQ(app_("get fake_done"), "0");
  expect_gated("launch 64", 3);
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 1));
  EXPECT_EQ(app_("get fake_done_word"), word_of(0, 1));
  expect_gated("launch 72", 4);
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 2));
  EXPECT_EQ(app_("get fake_done_word"), word_of(0, 2));
}

TEST_F(ShimGates, TheGpuTellsOfTheLastUnitOfAStreamThatEnds) {
  expect_gated("launch 64", 1);
  app_("ops");
  EXPECT_EQ(app_("destroy 64"), "0");
  EXPECT_EQ(app_("ops"), "done 64,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 1));
}

// As where another stream waits for the event, and the program goes on there.
TEST_F(ShimGates, TheGpuTellsOfAUnitBehindWhichAnEventIsRecorded) {
  expect_gated("launch 64", 1);
  app_("ops");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(app_("record"), "0");
  EXPECT_EQ(app_("ops"), "record 64,done 64,record 64,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 1));
  expect_gated("launch 64", 2);
  EXPECT_EQ(app_("ops"), "gate 64,launch 64,") << "its unit is over, and told";
}

TEST_F(ShimGates, AnEventBehindAnEarlierUnitDoesNotEndTheNewest) {
  expect_gated("launch 64", 1);
  expect_gated("launch 72", 2);
  app_("ops");
  EXPECT_EQ(app_("record"), "0");  // in stream 64
  expect_gated("launch 72", 2);
  EXPECT_EQ(app_("ops"), "record 64,done 64,launch 72,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 1));
}

// Behind that it would tell too late: what the stream waits for may stand at a later gate.
TEST_F(ShimGates, TheGpuTellsOfAUnitBeforeItsStreamWaits) {
  uint32_t ticket = 0;
  for (const char* wait : {"call cuStreamWaitEvent 64", "call cuStreamWaitValue64_v2 64",
                           "call cuWaitExternalSemaphoresAsync 64 3"}) {
    expect_gated("launch 64", ++ticket);
    EXPECT_EQ(app_("ops"), "gate 64,launch 64,") << "the one before is over, and told";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(app_(wait), "0");
    EXPECT_EQ(app_("ops"), "done 64,wait 64,wait 64,") << wait;
    EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + ticket));
  }
}

TEST_F(ShimGates, AWaitOfAStreamThatCapturesTellsNothing) {
  expect_gated("launch 64", 1);
  app_("ops");
  EXPECT_EQ(app_("set fake_capturing 1"), "1");
  EXPECT_EQ(app_("call cuStreamWaitEvent 64"), "0");
  EXPECT_EQ(app_("ops"), "wait 64,");
}

// The legacy stream's next command comes behind the blocking stream's unit, and so would the word.
TEST_F(ShimGates, AGateOfABlockingStreamTellsOfTheLegacyStreamsUnit) {
  expect_gated("launch 0", 1);
  expect_gated("launch 64", 2);
  app_("ops");
  expect_gated("launch 2048", 3);
  EXPECT_EQ(app_("ops"), "done 2048,gate 2048,launch 2048,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 1));
  expect_gated("launch 0", 4);
  EXPECT_EQ(app_("ops"), "done 0,gate 0,launch 0,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 3)) << "its own unit was told";
}

TEST_F(ShimGates, AGateOfTheLegacyStreamTellsOfAllBlockingStreamsUnits) {
  expect_gated("launch 2048", 1);
  expect_gated("launch 2056", 2);
  expect_gated("launch 64", 3);
  app_("ops");
  expect_gated("launch 0", 4);
  EXPECT_EQ(app_("ops"), "done 0,done 0,gate 0,launch 0,");
  expect_gated("launch 2048", 5);
  EXPECT_EQ(app_("ops"), "done 2048,gate 2048,launch 2048,");
  EXPECT_EQ(app_("get fake_done"), std::to_string(kFirst + 4));
}

TEST_F(ShimGates, AGateTellsOfNoUnitOfAnotherContext) {
  EXPECT_EQ(app_("set fake_primary 1"), "1");
  expect_gated("launch 2048", 1);
  EXPECT_EQ(app_("context 2"), "0");
  daemon_.control().devices[1].leased = kGate;
  app_("ops");
  expect_gated("launch 0", 1, 0);
  EXPECT_EQ(app_("ops"), "gate 0,launch 0,");
}

TEST_F(ShimGates, TheEndOfAStreamWhoseUnitIsToldDoesNotOvertakeItsLaunches) {
  expect_gated("launch 64", 1);
  EXPECT_EQ(app_("record"), "0");
  EXPECT_EQ(app_("destroy 64"), "0");
  EXPECT_TRUE(records(Kind::STREAM_END).empty());
}

// The daemon hears of launches at gates when it lets them go.
TEST_F(ShimGates, TheEndOfAStreamDoesNotOvertakeItsLaunches) {
  expect_gated("launch 64", 1);
  EXPECT_EQ(app_("destroy 64"), "0");
  EXPECT_TRUE(records(Kind::STREAM_END).empty());
}

TEST_F(ShimGates, TheEndOfAStreamWithoutGatesIsTold) {
  predict(0);
  expect_asks("launch 64");
  daemon_.records();
  EXPECT_EQ(app_("destroy 64"), "0");
  EXPECT_EQ(records(Kind::STREAM_END).size(), 1u);
}

}  // namespace
}  // namespace heddle::shim_test
