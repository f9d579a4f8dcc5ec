// What `heddle run --memory` asks of MPS, and what it says holds the limit.
#include "daemon/cli/run/run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace heddle::cli {
namespace {

using nlohmann::json;

json gpus_of(std::initializer_list<uint64_t> gib) {
  json gpus = json::array();
  for (const uint64_t each : gib) gpus.push_back({{"memory", each << 30}});
  return {{"gpus", gpus}};
}

MemorySetting under_mps(const std::string& limit) {
  MemorySetting setting;
  setting.limit = limit;
  setting.daemon = setting.mps = true;
  setting.nvml = gpus_of({80});
  return setting;
}

TEST(RunMemory, MpsIsToldTheLimitInMebibytesOfEachDevice) {
  MemorySetting setting = under_mps("20GiB");
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=22528M");
  EXPECT_EQ(hold_memory(setting).by, "shim and mps");
  setting.nvml = gpus_of({80, 80});
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=22528M,1=22528M");
  setting.limit = "1.5GiB";
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=3584M,1=3584M");
}

// MPS counts the context as well: a limit below its size would leave the program none.
TEST(RunMemory, MpsLeavesRoomForTheContextAndHasNoMoreThanTheGpu) {
  MemorySetting setting = under_mps("128MiB");
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=2176M");
  for (const char* limit : {"79GiB", "100%"}) {
    setting.limit = limit;
    EXPECT_EQ(hold_memory(setting).mps_limit, "0=81920M");
  }
}

TEST(RunMemory, WithoutMpsTheShimHoldsItAlone) {
  MemorySetting setting = under_mps("20GiB");
  setting.mps = false;
  EXPECT_EQ(hold_memory(setting).mps_limit, "");
  EXPECT_EQ(hold_memory(setting).by, "shim");
  setting.given = "0=1G";  // that no MPS reads
  EXPECT_EQ(hold_memory(setting).by, "shim");
  setting.daemon = false;
  EXPECT_EQ(hold_memory(setting).by, "none");
  EXPECT_NE(hold_memory(setting).why, "");
}

TEST(RunMemory, MpsHoldsItWhereNoDaemonAnswers) {
  MemorySetting setting = under_mps("20GiB");
  setting.daemon = false;
  EXPECT_EQ(hold_memory(setting).by, "mps");
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=22528M");
}

TEST(RunMemory, AValueOfTheUserStays) {
  MemorySetting setting = under_mps("20GiB");
  for (const char* given : {"0=5G", "0=40G"}) {
    setting.given = given;
    const MemoryHold hold = hold_memory(setting);
    EXPECT_EQ(hold.mps_limit, "");
    EXPECT_EQ(hold.by, "shim and mps");
    EXPECT_NE(hold.why.find(given), std::string::npos);
  }
}

// One device too many, and MPS drops the whole of it.
TEST(RunMemory, NamesOnlyDevicesThatTheProgramSees) {
  MemorySetting setting = under_mps("1GiB");
  setting.nvml = gpus_of({80, 80, 80});
  for (const auto& [visible, devices] : std::initializer_list<std::pair<const char*, int>>{
           {"2", 1}, {"2,0", 2}, {"0,7,1", 1}, {"GPU-12,MIG-9", 2}, {"0,-1", 1}, {"", 0}}) {
    setting.visible = visible;
    const std::string limit = hold_memory(setting).mps_limit;
    EXPECT_EQ(std::count(limit.begin(), limit.end(), '='), devices) << visible;
  }
  setting.visible = nullptr;
  setting.mps_visible = "1,2";
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=3072M,1=3072M");
  setting.visible = "1";  // counted as the MPS server shows them
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=3072M");
  setting.visible = "2";
  EXPECT_EQ(hold_memory(setting).mps_limit, "");
}

TEST(RunMemory, WithoutNvmlTheFirstDeviceIsNamed) {
  MemorySetting setting = under_mps("1GiB");
  setting.nvml = {{"error", "libnvidia-ml.so.1: not found"}};
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=3072M");
}

TEST(RunMemory, APercentageIsOfGpusThatAreAlike) {
  MemorySetting setting = under_mps("25%");
  EXPECT_EQ(hold_memory(setting).mps_limit, "0=22528M");
  for (const json& unlike : {gpus_of({80, 40}), gpus_of({0}), json(nullptr)}) {
    setting.nvml = unlike;
    EXPECT_EQ(hold_memory(setting).mps_limit, "");
    EXPECT_EQ(hold_memory(setting).by, "shim");
    EXPECT_NE(hold_memory(setting).why.find("say --memory in GiB"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::cli
