// What `heddle doctor` says of an MPS that heddle did not start, of SMs and GPUs that MPS divides,
// and of hardware queues.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/cli/doctor/doctor.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;

class DoctorMps : public ::testing::Test {
 protected:
  // Those of `topic`.
  std::vector<Finding> found(const std::string& topic) const {
    std::vector<Finding> all;
    for (Finding& f : examine_mps(facts_)) {
      if (f.topic == topic) all.push_back(std::move(f));
    }
    return all;
  }
  std::string text(const std::string& topic) const {
    const std::vector<Finding> all = found(topic);
    return all.empty() ? "" : all[0].text;
  }
  void set(int pid, const char* name, const char* value) {
    facts_["variables"].push_back({{"pid", pid}, {"values", {{name, value}}}});
  }

  // One MPS, which heddled manages, and one of its clients.
  json facts_ = json::parse(R"({
    "nvml": {"gpus": [{"index": 0, "uuid": "GPU-1"}]},
    "mps": {"directory": "/run/heddle-mps", "uid": 0, "pid": 9, "static": false,
            "default_percentage": 100},
    "variables": [{"pid": 42, "values": {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}}],
    "view": {"host": true},
    "daemon": {"code": 0,
      "status": {"mode": "mps", "mps": {"managed": true}, "devices": [{"uuid": "GPU-1"}]}}
  })");
};

TEST_F(DoctorMps, SaysNothingOfAnMpsThatHeddleRuns) {
  EXPECT_TRUE(examine_mps(facts_).empty());
  facts_["mps"] = nullptr;
  EXPECT_TRUE(examine_mps(facts_).empty());
}

TEST_F(DoctorMps, EveryFindingHasARemedy) {
  facts_["daemon"]["status"]["mps"]["managed"] = false;
  facts_["daemon"]["status"]["devices"][0]["uuid"] = "GPU-2";
  facts_["mps"]["static"] = true;
  facts_["mps"]["default_percentage"] = 50;
  set(43, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25");
  set(44, "CUDA_DEVICE_MAX_CONNECTIONS", "1");
  const std::vector<Finding> all = examine_mps(facts_);
  EXPECT_EQ(all.size(), 6u);
  for (const Finding& f : all) {
    EXPECT_EQ(f.level, Level::kWarn) << f.text;
    EXPECT_NE(f.remedy, "") << f.text;
  }
}

TEST_F(DoctorMps, NamesAnMpsThatHeddleDidNotStart) {
  facts_["daemon"]["status"]["mps"]["managed"] = false;
  EXPECT_EQ(text("foreign MPS"), "heddle did not start MPS (pid 9), and does not start it again");
  EXPECT_NE(found("foreign MPS")[0].remedy.find("manage = true"), std::string::npos);
  facts_["mps"]["uid"] = 1001;
  EXPECT_EQ(text("foreign MPS"),
            "heddle did not start MPS (pid 9), which serves the programs of uid 1001 alone");
  facts_["daemon"] = {{"code", 3}};
  facts_["mps"]["uid"] = 0;
  EXPECT_EQ(text("foreign MPS"), "") << "nobody says who started it";
}

TEST_F(DoctorMps, NamesProgramsOnAPartOfTheSms) {
  set(43, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25");
  set(44, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25");
  set(45, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100");
  EXPECT_EQ(text("MPS SMs"),
            "pid 43, 44: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 keeps it to SMs that heddle does not "
            "choose, and SM sets of others may be the same");
  EXPECT_EQ(found("MPS SMs").size(), 1u);
  facts_["mps"] = nullptr;
  facts_["daemon"]["status"]["mode"] = "timeslice";
  EXPECT_EQ(text("MPS SMs"), "") << "time-sliced it keeps nobody to anything";
}

TEST_F(DoctorMps, NamesThePartThatMpsGivesEverybody) {
  facts_["mps"]["default_percentage"] = 50;
  EXPECT_EQ(text("MPS SMs"),
            "MPS gives each program 50 % of the SMs, which heddle does not choose");
  facts_["mps"]["default_percentage"] = nullptr;
  EXPECT_EQ(text("MPS SMs"), "") << "it does not say";
}

TEST_F(DoctorMps, NamesStaticPartitions) {
  const std::string parts =
      "MPS divides the SMs statically: each program has a part alone, idle or not";
  facts_["mps"]["static"] = true;
  EXPECT_EQ(text("MPS SMs"), parts);
  facts_["mps"]["static"] = false;
  set(43, "CUDA_MPS_SM_PARTITION", "GPU-1/Dx4A");
  EXPECT_EQ(text("MPS SMs"), parts);
}

TEST_F(DoctorMps, NamesPartsOfGpus) {
  facts_["daemon"]["status"]["devices"].push_back({{"uuid", "GPU-2"}});
  EXPECT_EQ(text("MLOPart"),
            "NVML does not list GPU-2: if it is an MLOPart device of MPS, heddle schedules it as a "
            "GPU of its own, apart from the rest of the GPU");
  facts_["view"]["host"] = false;
  EXPECT_EQ(text("MLOPart"), "") << "a container sees some GPUs only";
  facts_["view"]["host"] = true;
  facts_["daemon"]["status"]["devices"][1]["uuid"] = "GPU-68656464-6c65-2d73-696d-2d6770752d30";
  EXPECT_EQ(text("MLOPart"), "") << "the simulated GPU";
  facts_["daemon"]["status"]["devices"][1]["uuid"] = "";
  EXPECT_EQ(text("MLOPart"), "") << "unknown";
  facts_["daemon"]["status"]["devices"][1]["uuid"] = "GPU-2";
  facts_["nvml"]["gpus"][0]["mig"] = true;
  EXPECT_EQ(text("MLOPart"), "") << "a MIG instance";
  facts_["nvml"] = {{"error", "not there"}};
  EXPECT_EQ(text("MLOPart"), "");
}

TEST_F(DoctorMps, NamesProgramsWithQueuesOfTheirOwn) {
  set(43, "CUDA_DEVICE_MAX_CONNECTIONS", "1");
  EXPECT_EQ(text("queues"),
            "pid 43: CUDA_DEVICE_MAX_CONNECTIONS=1: no SM sets, and a launch that is held may hold "
            "all its streams");
  EXPECT_NE(found("queues")[0].remedy.find("HEDDLE_GATES=0"), std::string::npos);
  facts_["variables"][1]["values"]["CUDA_DEVICE_MAX_CONNECTIONS"] = "32";
  EXPECT_EQ(text("queues"),
            "pid 43: CUDA_DEVICE_MAX_CONNECTIONS=32: takes so many of the about 120 queues of MPS, "
            "which refuses programs when none is left");
  facts_["mps"] = nullptr;
  facts_["daemon"]["status"]["mode"] = "timeslice";
  EXPECT_EQ(text("queues"), "") << "time-sliced each program has its own";
}

}  // namespace
}  // namespace heddle::cli
