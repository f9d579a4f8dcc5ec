// Today's shim and a daemon of protocol 1's first build, which leaves all later words at zero and
// reads no later field.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/integration/first_build.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Kind;

class ShimMixed : public Shim {
 protected:
  ShimMixed() : app_(environment()) {}
  Application app_;
};

TEST_F(ShimMixed, AnOlderDaemonIsToldOfEachLaunchInWhatItReads) {
  start(app_, kLease);
  predict(0.01F);  // such kernels would go in rows
  app_("launch");
  daemon_.records();
  EXPECT_EQ(app_("burst 200"), "0");
  EXPECT_EQ(app_("sync"), "0");
  size_t launches = 0;
  for (const ipc::RecordFields& record : daemon_.records()) {
    launches += record.kind == Kind::KERNEL ? 1 : 0;
    // Nothing is said in what that daemon would not see.
    alignas(8) std::byte today[ipc::kRecordBytes];
    ipc::build_record(today, record);
    const first_build::Record old = first_build::record_of(record);
    EXPECT_EQ(std::memcmp(today, &old, sizeof old), 0);
  }
  EXPECT_EQ(launches, 200u);
}

TEST_F(ShimMixed, AnOlderDaemonsHintsAreForAllDevices) {
  daemon_.control_bytes = ipc::kControlBytesLeast;
  start(app_, kLease);
  ipc::KernelHint& hint = daemon_.control().hints[0].kernels[0];
  hint.predicted_us = 10;
  hint.special = ipc::pack_special({.raised = true, .launch_priority = -2});
  for (const char* launch : {"launch 64", "launch 4096"}) {
    EXPECT_EQ(app_(launch), "0");
    EXPECT_EQ(app_("get fake_priority"), "-2");
    app_("context 2");
  }
  EXPECT_EQ(daemon_.records().back().device, 1);
}

TEST_F(ShimMixed, AnOlderDaemonHoldsAndGrants) {
  start(app_, kGate);
  app_.send("launch");
  const ipc::RecordFields ask = daemon_.wait_for_ask();
  EXPECT_FALSE(app_.answered());
  daemon_.grant(ask);
  EXPECT_EQ(app_.receive(), "0");
}

// Its longest reason covers what says today that a client fails closed.
TEST_F(ShimMixed, AnOlderDaemonThatRefusesAtLengthHoldsNobody) {
  first_build::Attached answer;
  std::memset(answer.reason, 'q', sizeof answer.reason - 1);
  app_.send("init");
  daemon_.answer(std::as_bytes(std::span(&answer, 1)));
  EXPECT_EQ(app_.receive(), "0");
  EXPECT_EQ(app_("launch"), "0");
  EXPECT_EQ(app_("get fake_launches"), "1");
}

}  // namespace
}  // namespace heddle::shim_test
