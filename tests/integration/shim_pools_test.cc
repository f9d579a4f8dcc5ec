// The pools of the built shim that a program can fill, and what happens beyond them: launches go
// on, and are counted. (Not here: the lists of captures, of lanes and of sessions that somebody is
// in.)
#include <gtest/gtest.h>

#include <fstream>

#include <chrono>
#include <set>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Admission;
using wire::Kind;

// Write calls of the process so far.
int64_t writes(pid_t pid) {
  std::ifstream io("/proc/" + std::to_string(pid) + "/io");
  std::string word;
  int64_t count = -1;
  while (io >> word && word != "syscw:") {
  }
  io >> count;
  return count;
}

TEST_F(Shim, AThreadCallsTheHelperOnceForAllTheShapesThatADaemonIsSlowToRead) {
  Attached app(*this, kLease);
  app("shapes 2000");  // more than the socket holds
  const int64_t before = writes(app.pid());
  ASSERT_GE(before, 0);
  EXPECT_EQ(app("shapes 8000"), "8000");
  EXPECT_LT(writes(app.pid()) - before, 600);
}

TEST_F(Shim, ThreadsBeyondThePoolLaunchUnmanaged_AndSlotsAreUsedAgain) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("threads 80"), "80");
  EXPECT_EQ(app("get fake_launches"), "80");
  EXPECT_EQ(records(Kind::KERNEL).size(), size_t{ipc::kThreads});
  EXPECT_EQ(app("threads 40"), "40");
  EXPECT_EQ(records(Kind::KERNEL).size(), 40u);
  EXPECT_EQ(app("again 64"), "64");  // the shared counters are brought up to date now and then
  const auto pool = static_cast<size_t>(Admission::SELF_POOL);
  EXPECT_EQ(daemon_.client().counters.self[pool], 80u - ipc::kThreads);
}

TEST_F(Shim, AThousandThreadsInTurnUseFewSlots) {
  Attached app(*this, kLease);
  predict(10);
  EXPECT_EQ(app("in_turn 1000"), "1000");
  EXPECT_EQ(records(Kind::KERNEL).size(), 1000u);
  EXPECT_LE(daemon_.client().counters.threads_used, 2u);
}

TEST_F(Shim, StreamsBeyondThePoolShareOneSlot) {
  Attached app(*this, kLease);
  predict(10);
  EXPECT_EQ(app("streams 400"), "400");
  const auto launches = records(Kind::KERNEL);
  ASSERT_EQ(launches.size(), 400u);
  std::set<uint16_t> slots;
  for (const auto& launch : launches) slots.insert(launch.stream);
  EXPECT_EQ(slots.size(), size_t{ipc::kStreams});
  EXPECT_EQ(launches.back().stream, ipc::kStreams - 1);
  app("sync " + std::to_string(64 + 8 * 399));  // no evidence about the others in that slot
  EXPECT_TRUE(daemon_.records().empty());
}

TEST_F(Shim, StreamsBeyondThePoolStayExempt) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("streams 400"), "400");
  const std::string last = std::to_string(64 + 8 * 399);
  app("call cuStreamWriteValue32_v2 " + last);
  daemon_.records();
  for (ipc::DeviceTerms& terms : daemon_.control().devices) terms.leased = kGate;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(app("launch " + last), "0");
    EXPECT_EQ(records(Kind::KERNEL).at(0).admission, Admission::SELF_EXEMPT);
  }
}

TEST_F(Shim, KernelsBeyondTheTableAreLaunchedWithoutAName) {
  Attached app(*this, kLease);
  const long shapes = long{ipc::kKernels} + 100;
  app.send("shapes " + std::to_string(shapes));
  bool ended = false;
  while (!ended) {  // as the daemon would: its socket and its rings stay empty
    ended = app.answered();
    daemon_.registrations();
    daemon_.records();
  }
  EXPECT_EQ(app.receive(), std::to_string(shapes));
  EXPECT_EQ(app("get fake_launches"), std::to_string(shapes));
  app("second");
  EXPECT_EQ(records(Kind::KERNEL).back().kernel, ipc::kNoKernel);
}

std::vector<Registration> read_registrations(FakeDaemon& daemon, size_t count) {
  std::vector<Registration> all;
  for (int idle = 0; all.size() < count && idle < 5000; ++idle) {
    for (const Registration& one : daemon.registrations()) all.push_back(one), idle = 0;
    daemon.records();
    if (all.size() < count) usleep(1'000);
  }
  return all;
}

// The next daemon knows such kernels by their numbers, which are what is learned by.
TEST_F(Shim, KernelsWhoseNamesFindNoRoomAreToldToTheNextDaemonWithout) {
  constexpr size_t kMany = 3000;
  Attached app(*this, kLease);
  app.send("names " + std::to_string(kMany));
  const auto before = read_registrations(daemon_, kMany);
  EXPECT_EQ(app.receive(), std::to_string(kMany));
  daemon_.hang_up();
  daemon_.accept(kLease);
  const auto after = read_registrations(daemon_, kMany);
  ASSERT_EQ(before.size(), kMany);
  ASSERT_EQ(after.size(), kMany);
  size_t named = 0;
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(after[i].id, before[i].id);
    if (after[i].name.empty()) continue;
    EXPECT_GT(after[i].name.size(), 500u);
    EXPECT_EQ(after[i].name, before[i].name);
    ++named;
  }
  EXPECT_GT(named, kMany / 2);
  EXPECT_LT(named, kMany);
  EXPECT_EQ(app("names " + std::to_string(kMany)), std::to_string(kMany));
}

TEST_F(Shim, ADaemonThatReadsNothingDelaysNoNewKernel_AndIsToldOfAllOnceItReads) {
  constexpr size_t kMany = 2000;
  Attached app(*this, kLease);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(app("shapes " + std::to_string(kMany)), std::to_string(kMany));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << "1 ms each";
  const auto told = read_registrations(daemon_, kMany);
  ASSERT_EQ(told.size(), kMany);
  for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(told[i].index, i);
}

TEST_F(Shim, DevicesBeyondTheTableLaunchUnmanaged) {
  Attached app(*this, kLease);
  predict(10);
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    app("context " + std::to_string(device + 1));
    EXPECT_EQ(app("launch"), "0");
    const auto launches = records(Kind::KERNEL);
    ASSERT_EQ(launches.size(), 1u) << device;
    EXPECT_EQ(launches[0].device, device);
  }
  for (ipc::DeviceTerms& terms : daemon_.control().devices) terms.leased = kGate;
  for (const uint32_t device : {ipc::kDevices, ipc::kDevices + 4}) {
    app("context " + std::to_string(device + 1));
    EXPECT_EQ(app("launch"), "0") << "whose gate is that?";
    EXPECT_EQ(app("sync"), "0");
    EXPECT_EQ(app("call cuCtxSynchronize"), "0");
  }
  EXPECT_TRUE(daemon_.records().empty());
  const auto pool = static_cast<size_t>(Admission::SELF_POOL);
  EXPECT_EQ(daemon_.client().counters.self[pool], 2u);
  app("context 1");
  expect_asks(app, "launch");
}

// Four times as many as there are places.
TEST_F(Shim, EventsBeyondThePlacesAreNoEvidence_AndNeverThatOfAnother) {
  constexpr size_t kPlaces = 1024, kEvents = 4 * kPlaces;
  Attached app(*this, kLease);
  predict(10);
  std::vector<uint64_t> launches;
  for (size_t i = 0; i < kEvents; ++i) {
    app("launch 64");
    app("record " + std::to_string(i));
    launches.push_back(records(Kind::KERNEL).at(0).stream_seq);
  }
  size_t known = 0;
  for (size_t i = 0; i < kEvents; ++i) {
    EXPECT_EQ(app("sync_event " + std::to_string(i)), "0");
    const auto done = records(Kind::COMPLETION);
    if (done.empty()) continue;
    ASSERT_EQ(done.back().stream_seq, launches[i]) << i;
    ++known;
  }
  EXPECT_LE(known, kPlaces);
  EXPECT_GT(known, kPlaces / 2) << "of those that were recorded last";
  app("launch 64");
  app("record 0");
  app("sync_event 0");
  EXPECT_EQ(records(Kind::COMPLETION).at(0).stream_seq, launches.back() + 1);
}

TEST_F(Shim, AFullRingDropsRecordsAndCountsThem) {
  Attached app(*this, kLease);
  predict(10);
  EXPECT_EQ(app("again 2000"), "2000");
  EXPECT_EQ(app("get fake_launches"), "2000");
  const uint32_t dropped = daemon_.client().threads[0].dropped;
  const auto kept = daemon_.records();
  EXPECT_EQ(kept.size(), size_t{ipc::kRingRecords});
  EXPECT_GE(dropped, 2000u - ipc::kRingRecords);
  EXPECT_EQ(app("launch"), "0");  // there is room again
  EXPECT_EQ(records(Kind::KERNEL).size(), 1u);
}

TEST_F(Shim, WithoutAFreeMarkerWorkIsLaunchedUnmarked) {
  Attached app(*this, kGate);
  predict(10);
  app("set fake_busy 1");
  for (int i = 0; i < 12; ++i) {  // each is marked, while there are markers
    expect_asks(app, "launch");
  }
  EXPECT_EQ(daemon_.client().counters.marker_errors, 0u);
  app("sync");
  const auto done = records(Kind::COMPLETION);
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back().stream_seq, 12u);
}

}  // namespace
}  // namespace heddle::shim_test
