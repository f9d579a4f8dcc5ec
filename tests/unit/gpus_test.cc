// Which GPU of the host a client's device is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/server/gpus.h"

namespace heddle::server {
namespace {

using Numbers = GpuNumbers::Numbers;

GpuId id(uint8_t fill) {
  GpuId id;
  id.fill(fill);
  return id;
}

TEST(GpuNumbers, AreThoseOfTheDevicesWhereEverybodySeesAll) {
  GpuNumbers gpus;
  const GpuId all[] = {id(1), id(2), id(3)};
  EXPECT_EQ(gpus.map(all, 0, 0, true), same_numbers());
  EXPECT_EQ(gpus.map(all, 7, 7, true), same_numbers());
  EXPECT_EQ(gpus.map({}, 7, 7, true), same_numbers()) << "whose ids are unknown";
}

TEST(GpuNumbers, FollowTheGpuWhateverTheProcessCallsIt) {
  GpuNumbers gpus;
  const GpuId both[] = {id(1), id(2)}, second[] = {id(2)}, third[] = {id(3)};
  gpus.map(both, 0, 0, true);
  EXPECT_EQ(gpus.map(second, 3, 0, true)[0], 1);
  EXPECT_EQ(gpus.map(third, 3, 0, true)[0], 2);
}

TEST(GpuNumbers, AProcessWithoutIdsSharesTheNumberOfOneWithIds) {
  GpuNumbers gpus;
  const GpuId one[] = {id(1)};
  EXPECT_EQ(gpus.map({}, 0, 0, true)[0], 0);
  EXPECT_EQ(gpus.map(one, 1, 0, true)[0], 0) << "most hosts have one GPU";
}

TEST(GpuNumbers, AreUsedAgainWhenNobodyHasTheGpuAnyMore) {
  GpuNumbers gpus;
  GpuId all[ipc::kDevices];
  for (uint8_t i = 0; i < ipc::kDevices; ++i) all[i] = id(static_cast<uint8_t>(i + 1));
  gpus.map(all, 0, 0, true);
  const GpuId other[] = {id(99)};
  EXPECT_EQ(gpus.map(other, 0xffff, 0, true)[0], kNoGpu);
  EXPECT_EQ(gpus.map(other, 0xffff & ~Numbers{8}, 0, true)[0], 3);
  EXPECT_EQ(gpus.map(all, 0xffff, 0, true)[3], kNoGpu) << "it is the other's now";
}

TEST(GpuNumbers, OneUserCannotHaveThemAll) {
  GpuNumbers gpus;
  GpuId all[ipc::kDevices];
  for (uint8_t i = 0; i < ipc::kDevices; ++i) all[i] = id(static_cast<uint8_t>(i + 1));
  const DeviceMap map = gpus.map(all, 0, 0, false);
  EXPECT_EQ(map[ipc::kDevices / 2 - 1], ipc::kDevices / 2 - 1);
  EXPECT_EQ(map[ipc::kDevices / 2], kNoGpu);
  EXPECT_EQ(gpus.map(std::span(all).last(1), 0xff, 0xff, false)[0], kNoGpu);
  EXPECT_EQ(gpus.map(std::span(all).last(1), 0xff, 0, false)[0], 8) << "of another user";
}

TEST(GpuNumbers, TwoUsersCannotHaveThemAll) {
  GpuNumbers gpus;
  Numbers held = 0;
  for (const int user : {10, 40, 70}) {
    GpuId all[ipc::kDevices];
    for (uint8_t i = 0; i < ipc::kDevices; ++i) all[i] = id(static_cast<uint8_t>(user + i));
    Numbers own = 0;
    for (const uint8_t number : gpus.map(all, held, 0, false)) {
      if (number != kNoGpu) own |= Numbers{1} << number;
    }
    EXPECT_NE(own, 0u) << user;
    held |= own;
  }
}

TEST(GpuNumbers, AGpuThatTheDriverNamesStays) {
  GpuNumbers gpus;
  const GpuId real[] = {id(1), id(2)};
  gpus.keep(real);
  GpuId false_ones[ipc::kDevices];
  for (uint8_t i = 0; i < ipc::kDevices; ++i) false_ones[i] = id(static_cast<uint8_t>(100 + i));
  const DeviceMap map = gpus.map(false_ones, 0, 0, true);
  EXPECT_EQ(std::count(map.begin(), map.end(), kNoGpu), 2);
  EXPECT_EQ(gpus.map(real, 0xffff, 0, false)[0], 0);
  EXPECT_EQ(gpus.map(real, 0xffff, 0, false)[1], 1);
}

TEST(DriverGpus, AreReadFromItsFiles) {
  const std::string directory = testing::TempDir() + "gpus-" + std::to_string(getpid());
  std::filesystem::create_directories(directory + "/0000:1b:00.0");
  std::ofstream(directory + "/0000:1b:00.0/information")
      << "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 45\n"
      << "GPU UUID: \t GPU-00112233-4455-6677-8899-aabbccddeeff\nVideo BIOS: \t ??.??\n";
  std::filesystem::create_directories(directory + "/0000:2b:00.0");
  std::ofstream(directory + "/0000:2b:00.0/information") << "Model: X\nGPU UUID: GPU-??\n";
  const std::vector<DriverGpu> gpus = driver_gpus(directory);
  std::filesystem::remove_all(directory);
  ASSERT_EQ(gpus.size(), 1u) << "what has no UUID yet is not in use";
  EXPECT_EQ(gpus[0].model, "NVIDIA H100 80GB HBM3");
  GpuNumbers numbers;
  numbers.keep(std::span(&gpus[0].id, 1));
  EXPECT_EQ(numbers.text(0), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_TRUE(has_model(gpus, "NVIDIA H100 80GB HBM3"));
  EXPECT_TRUE(has_model(gpus, "NVIDIA H100 80GB HBM3 MIG 1g.10gb"));
  EXPECT_FALSE(has_model(gpus, "NVIDIA H100 80GB HBM30"));
  EXPECT_FALSE(has_model(gpus, "NVIDIA H200"));
  EXPECT_TRUE(driver_gpus(directory).empty());
}

TEST(GpuNumbers, TwoDevicesAreNeverOneGpu) {
  GpuNumbers gpus;
  const GpuId twice[] = {id(1), id(1)}, hidden[] = {id(1), id(0)};
  EXPECT_EQ(gpus.map(twice, 0, 0, true)[1], kNoGpu);
  GpuNumbers others;
  const GpuId shifted[] = {id(7), id(1)};
  others.map(shifted, 0, 0, true);
  EXPECT_EQ(others.map(hidden, 3, 0, true)[0], 1);
  EXPECT_EQ(others.map(hidden, 3, 0, true)[1], kNoGpu);
}

TEST(GpuNumbers, AreWrittenAsNvidiaSmiWritesThem) {
  GpuNumbers gpus;
  EXPECT_EQ(gpus.text(0), "");
  GpuId one;
  for (uint8_t i = 0; i < one.size(); ++i) one[i] = static_cast<uint8_t>(0x11 * i);
  gpus.map(std::span(&one, 1), 0, 0, true);
  EXPECT_EQ(gpus.text(0), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace
}  // namespace heddle::server
