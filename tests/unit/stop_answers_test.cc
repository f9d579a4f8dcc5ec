// What GPUs said of stops: kept, read again, and whom it lets be stopped.
#include "daemon/server/stop_asking.h"

#include <gtest/gtest.h>

#include <fstream>

#include "daemon/server/gpus.h"
#include "tests/folder.h"

namespace heddle::server {
namespace {

constexpr const char* kGpu = "GPU-00112233-4455-6677-8899-aabbccddeeff";
constexpr const char* kSimulated = "GPU-68656464-6c65-2d73-696d-2d6770752d30";

StopAnswer answer(const char* gpu, bool yes) {
  StopAnswer made;
  made.gpu = gpu;
  made.name = "NVIDIA H200";
  made.driver = kernel_driver();
  made.at = "2026-11-29T12:00:00Z";
  made.yes = yes;
  made.why = yes ? "" : "the kernel went on";
  made.stop_us = 340;
  made.go_us = 290;
  made.slice_ratio = 3.01;
  return made;
}

std::string file_with(const std::string& folder, const std::string& text) {
  const std::string path = folder + "/" + kStopsFile;
  std::ofstream(path) << text;
  return path;
}

TEST(StopAnswers, KernelModuleSaysItsVersion) {
  const TestFolder folder;
  const std::string file = folder.path() + "/version";
  std::ofstream(file) << "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  "
                         "Release Build  (dvs-builder)\nGCC version:  gcc version 12.2.0\n";
  EXPECT_EQ(kernel_driver(file), "580.159.04");
  EXPECT_EQ(kernel_driver(folder.path() + "/none"), "");
}

TEST(StopAnswers, NewestAnswerOfAGpuIsKept) {
  const TestFolder folder;
  const std::string file = folder.path() + "/" + kStopsFile;
  EXPECT_TRUE(read_stops(file)->empty()) << "no file is no answer, and no mistake";
  ASSERT_TRUE(keep_stop(file, answer(kGpu, false)));
  ASSERT_TRUE(keep_stop(file, answer(kSimulated, true)));
  ASSERT_TRUE(keep_stop(file, answer(kGpu, true)));
  const auto kept = read_stops(file);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(*kept, (std::vector{answer(kSimulated, true), answer(kGpu, true)}));
}

TEST(StopAnswers, FileThatIsNoneNamesItselfAndTheRemedy) {
  const TestFolder folder;
  for (const char* text :
       {"", "{", "{}", "[1]", "[{}]", R"([{"gpu": "x", "answer": "yes"}])",
        R"([{"gpu": "GPU-00112233-4455-6677-8899-aabbccddeeff", "answer": "perhaps"}])",
        R"([{"gpu": 7, "answer": "yes"}])"}) {
    const std::string file = file_with(folder.path(), text);
    const auto read = read_stops(file);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find(file), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find("heddle doctor --stop"), std::string::npos);
    StopAnswers answers(StopsSetting::kAsked, folder.path());
    EXPECT_FALSE(answers.allows(*parse_gpu_id(kGpu)));
    EXPECT_EQ(answers.error(), read.error().message);
  }
}

TEST(StopAnswers, ProbeThatAskedNothingIsNoAnswer) {
  EXPECT_FALSE(parse_probe(""));
  const auto busy = parse_probe(R"({"gpu": "", "answer": "not asked", "why": "no CUDA device"})");
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().message, "no CUDA device");
}

TEST(StopAnswers, OnlyGpusThatSaidYesAllowStops) {
  StopAnswers answers(StopsSetting::kAsked, "");
  const GpuId gpu = *parse_gpu_id(kGpu);
  EXPECT_FALSE(answers.allows(gpu)) << "nobody asked it";
  EXPECT_FALSE(answers.allows({})) << "nor a GPU that is not known";
  EXPECT_TRUE(answers.take(std::vector{answer(kGpu, true)}));
  EXPECT_TRUE(answers.allows(gpu));
  EXPECT_FALSE(answers.take(std::vector{answer(kGpu, true)})) << "nothing new";
  EXPECT_TRUE(answers.take(std::vector{answer(kGpu, false)}));
  EXPECT_FALSE(answers.allows(gpu));
  StopAnswer old = answer(kGpu, true);
  old.driver = "1.2.3";
  answers.take(std::vector{old});
  EXPECT_FALSE(answers.allows(gpu)) << "another driver said so";
  EXPECT_EQ(answers.of(gpu), nullptr);
}

TEST(StopAnswers, SimulatedGpuIsItsOwnAnswerUnlessItSaidNo) {
  EXPECT_EQ(parse_gpu_id(kSimulated), kSimulatedGpu);
  StopAnswers answers(StopsSetting::kAsked, "");
  EXPECT_TRUE(answers.allows(kSimulatedGpu));
  answers.take(std::vector{answer(kSimulated, false)});
  EXPECT_FALSE(answers.allows(kSimulatedGpu));
}

TEST(StopAnswers, SettingWinsOverAnswers) {
  StopAnswers off(StopsSetting::kOff, ""), on(StopsSetting::kOn, "");
  off.take(std::vector{answer(kGpu, true)});
  on.take(std::vector{answer(kGpu, false)});
  EXPECT_FALSE(off.allows(*parse_gpu_id(kGpu)) || off.allows(kSimulatedGpu));
  EXPECT_TRUE(on.allows(*parse_gpu_id(kGpu)));
}

}  // namespace
}  // namespace heddle::server
