// Calls that wait for what was launched and are no synchronizing calls by name.
#include <gtest/gtest.h>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Kind;

constexpr const char* kCalls[] = {"cuMemFree_v2",           "cuMemFreeHost",
                                  "cuMemHostUnregister",    "cuModuleLoad",
                                  "cuModuleLoadData",       "cuModuleLoadDataEx",
                                  "cuModuleUnload",         "cuLibraryUnload",
                                  "cuModuleLoadFatBinary",  "cuMipmappedArrayDestroy",
                                  "cuArrayDestroy",         "cuIpcCloseMemHandle",
                                  "cuIpcOpenMemHandle_v2",  "cuCtxEnablePeerAccess",
                                  "cuCtxDisablePeerAccess", "cuTexObjectCreate",
                                  "cuTexObjectDestroy",     "cuSurfObjectCreate",
                                  "cuSurfObjectDestroy",    "cuLibraryLoadData",
                                  "cuLibraryLoadFromFile",  "cuDestroyExternalMemory"};

std::vector<ipc::RecordFields> told_of(FakeDaemon& daemon, Application& app, const char* name) {
  daemon.records();
  app(std::string("call ") + name);
  return daemon.records();
}

TEST_F(Shim, AFreeOfAClientWithGatesIsASynchronizingCall) {
  daemon_.has_gates = true;
  Attached app(*this, kGate);
  for (const char* const name : kCalls) {
    const auto told = told_of(daemon_, app, name);
    ASSERT_EQ(told.size(), 2u) << name;
    EXPECT_EQ(told[0].kind, Kind::WAIT) << name;
    EXPECT_EQ(told[0].stream, ipc::kAllStreams) << name;
    EXPECT_EQ(told[1].kind, Kind::COMPLETION) << name;
    EXPECT_EQ(told[1].evidence, wire::Evidence::SYNCHRONIZED) << name;
    EXPECT_EQ(told[1].stream_seq, 0u) << name << ": it may have waited for nothing";
  }
}

TEST_F(Shim, AFreeOfAClientWithoutGatesIsNotToldOf) {
  Attached app(*this, kGate);
  for (const char* const name : kCalls) EXPECT_TRUE(told_of(daemon_, app, name).empty()) << name;
}

}  // namespace
}  // namespace heddle::shim_test
