// What the shim knows of the driver's objects, by requests made by hand: what can be stopped, and
// why the rest cannot.
#include "tests/unit/stops_fixture.h"

namespace heddle::shim {
namespace {

using ipc::kStopYes;

class StopObjects : public Stops {
 protected:
  // Those that one stop would name.
  std::vector<rm::Handle> channels() {
    std::vector<rm::Handle> all;
    Objects::Cursor at;
    Objects::Target subdevice;
    for (rm::DisableChannels request{}; objects().next_channels(at, subdevice, request);) {
      EXPECT_EQ(subdevice.fd, fd_);
      EXPECT_EQ(subdevice.file, file_id(fd_));
      all.insert(all.end(), request.channels, request.channels + request.count);
    }
    return all;
  }
};

TEST_F(StopObjects, AContextCanBeStoppedByTheChannelsOfItsComputeGroup) {
  EXPECT_EQ(objects().able(), ipc::kStopNoChannels);
  make_context();
  EXPECT_EQ(objects().able(), kStopYes);
  EXPECT_EQ(channels(), (std::vector<rm::Handle>{5, 6}));
}

TEST_F(StopObjects, WhatIsFreedTakesWhatItHolds) {
  for (const rm::Handle freed : {4, 2, 1}) {  // the group, the device, the client
    make_context();
    EXPECT_EQ(objects().able(), kStopYes);
    free(freed);
    EXPECT_EQ(objects().able(), ipc::kStopNoChannels) << freed;
    EXPECT_TRUE(channels().empty()) << freed;
    free(1);
  }
  make_context();
  free(5);
  EXPECT_EQ(channels(), (std::vector<rm::Handle>{6}));
  observe(rm::kFree, rm::Free{1, 4, 6, 0x57});
  EXPECT_EQ(channels(), (std::vector<rm::Handle>{6})) << "refused";
}

TEST_F(StopObjects, OnlyWhatTheDriverDidAndExactRequestsCount) {
  alloc(0, 0, 1, rm::kRootClient);
  make_device(1, 2, 0);
  alloc(1, 2, 3, rm::kSubdevice);
  make_group(2, 4, kGr0);
  alloc(1, 4, 5, kHopperChannel, nullptr, 0, 0x1f);
  EXPECT_EQ(objects().able(), ipc::kStopNoChannels) << "refused";
  const rm::Alloc made{1, 4, 5, kHopperChannel, 0, 0, 0};
  for (const unsigned long request :
       {_IOC(_IOC_READ | _IOC_WRITE, 'F', rm::kAlloc, sizeof made + 4),
        _IOC(_IOC_READ | _IOC_WRITE, 'F', rm::kFree, sizeof made),
        _IOC(_IOC_READ | _IOC_WRITE, 'G', rm::kAlloc, sizeof made),
        _IOC(_IOC_WRITE, 'F', rm::kAlloc, sizeof made)}) {
    objects().observe(fd_, request, &made);
    EXPECT_EQ(objects().able(), ipc::kStopNoChannels) << request;
  }
  observe(rm::kAlloc, made);
  EXPECT_EQ(objects().able(), kStopYes);
}

TEST_F(StopObjects, AllocationsWithRightsAndWrappedOnesCount) {
  observe(rm::kAlloc, rm::AllocWithRights{0, 0, 1, rm::kRootClient, 0, 0, 0, 0, 0, 0});
  const rm::DeviceParameters device{0};
  const rm::Alloc made{1, 1, 2, rm::kDevice, reinterpret_cast<uint64_t>(&device), sizeof device, 0};
  observe(rm::kTransfer, rm::Transfer{rm::kAlloc, sizeof made, reinterpret_cast<uint64_t>(&made)});
  alloc(1, 2, 3, rm::kSubdevice);
  make_group(2, 4, kGr0);
  const rm::AllocWithRights channel{1, 4, 5, kHopperChannel, 0, 0, 0, 0, 0, 0};
  observe(rm::kTransfer,
          rm::Transfer{rm::kAlloc, sizeof channel + 1, reinterpret_cast<uint64_t>(&channel)});
  EXPECT_EQ(objects().able(), ipc::kStopNoChannels) << "another size is another request";
  observe(rm::kTransfer,
          rm::Transfer{rm::kAlloc, sizeof channel, reinterpret_cast<uint64_t>(&channel)});
  EXPECT_EQ(objects().able(), kStopYes);
}

TEST_F(StopObjects, AChannelThatCannotBePlacedEndsTheStops) {
  const auto expect_never = [&](const char* what) {
    EXPECT_EQ(objects().able(), ipc::kStopUnknownClass) << what;
    free(1);
    make_context();
    EXPECT_EQ(objects().able(), ipc::kStopUnknownClass) << what << ": for good";
    guard().objects = 0;
  };
  make_context();
  alloc(1, 4, 9, 0xc9c0);  // a compute object in the group
  alloc(1, 4, 10, 0xc8b5);
  alloc(1, 7, 11, 0xdb6f);  // in the copy engine's
  EXPECT_EQ(objects().able(), kStopYes);
  alloc(1, 4, 9, 0xdb6f);
  expect_never("a channel of a later class");
  make_context();
  alloc(1, 77, 9, kHopperChannel);
  expect_never("a channel of an unknown group");
  make_context();
  make_group(77, 9, kGr0);
  expect_never("a group of an unknown device");
  make_context();
  alloc(1, 2, 9, rm::kChannelGroup);
  expect_never("a group of an unknown engine");
  alloc(0, 0, 1, rm::kRootClient);
  alloc(1, 1, 2, rm::kDevice);
  make_group(2, 4, kGr0);
  expect_never("a group of a device of unknown number");
}

TEST_F(StopObjects, WithoutASubdeviceNothingCanBeAsked) {
  make_context();
  free(3);
  EXPECT_EQ(objects().able(), ipc::kStopUnknownClass);
  EXPECT_TRUE(channels().empty());
  alloc(1, 2, 3, rm::kSubdevice);
  EXPECT_EQ(objects().able(), kStopYes);
}

TEST_F(StopObjects, WhatIsSharedIsNotStopped) {
  make_context();
  alloc(0, 0, 100, rm::kRootClient);  // another client of the process
  constexpr rm::Handle kMemory = 50;
  observe(rm::kDuplicate, rm::Duplicate{100, 100, 51, 1, kMemory, 0, 0});
  observe(rm::kDuplicate, rm::Duplicate{100, 100, 51, 1, 5, 0, 0x1f});
  EXPECT_EQ(objects().able(), kStopYes) << "memory, and what was refused";
  for (const rm::Duplicate& made :
       {rm::Duplicate{100, 100, 51, 1, 5, 0, 0}, rm::Duplicate{100, 100, 51, 1, 4, 0, 0},
        rm::Duplicate{100, 100, 51, 1, 1, 0, 0}, rm::Duplicate{1, 4, 51, 100, kMemory, 0, 0},
        rm::Duplicate{1, 2, 51, 999, kMemory, 0, 0}}) {
    guard().objects = 0;
    make_context();
    alloc(0, 0, 100, rm::kRootClient);
    observe(rm::kDuplicate, made);
    EXPECT_EQ(objects().able(), ipc::kStopShared) << made.source_client << " " << made.source;
  }
}

TEST_F(StopObjects, MoreChannelsThanOneRequestTakesAreNotStopped) {
  make_context();
  for (rm::Handle channel = 1'000; channel < 1'062; ++channel) alloc(1, 4, channel, kHopperChannel);
  EXPECT_EQ(objects().able(), kStopYes);
  alloc(1, 4, 2'000, kHopperChannel);
  EXPECT_EQ(objects().able(), ipc::kStopTooMany);
  EXPECT_EQ(channels().size(), 65u) << "what was stopped before can go on";
  free(2'000);
  EXPECT_EQ(objects().able(), kStopYes);
  for (rm::Handle client = 3'000; client < 4'000; ++client) alloc(0, 0, client, rm::kRootClient);
  EXPECT_EQ(objects().able(), ipc::kStopTooMany) << "nor what the table has no room for";
}

TEST_F(StopObjects, AProgramThatSwitchesChannelsItselfIsNotStopped) {
  make_context();
  const rm::DisableChannels request{};
  rm::Control control{
      1, 3, rm::kDisableChannels, 0, reinterpret_cast<uint64_t>(&request), sizeof request, 0x1f};
  observe(rm::kControl, control);
  EXPECT_EQ(objects().able(), kStopYes) << "refused";
  control.status = 0;
  observe(rm::kControl, control);
  EXPECT_EQ(objects().able(), ipc::kStopOwnUse);
}

TEST_F(StopObjects, WorkOnTwoGpusIsNotStopped) {
  make_context();
  make_device(1, 20, 1);
  alloc(1, 20, 21, rm::kSubdevice);
  EXPECT_EQ(objects().able(), kStopYes) << "it is only looked at";
  make_group(20, 22, kGr0);
  alloc(1, 22, 23, kHopperChannel);
  EXPECT_EQ(objects().able(), ipc::kStopSeveralGpus);
  free(22);
  EXPECT_EQ(objects().able(), kStopYes);
}

TEST_F(StopObjects, AForkedChildHasNone) {
  make_context();
  objects().forbid(ipc::kStopMps);
  EXPECT_EQ(objects().able(), ipc::kStopMps);
  guard().objects = 0;  // the page is wiped
  EXPECT_EQ(objects().able(), ipc::kStopNoChannels);
}

}  // namespace
}  // namespace heddle::shim
