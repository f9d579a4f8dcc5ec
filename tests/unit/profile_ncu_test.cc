// heddle profile import-ncu, collect-metrics and show --neighbours, with a program in the place of
// Nsight Compute.
#include "daemon/cli/profile/ncu.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/profile/profile.h"
#include "daemon/cli/run/preload.h"
#include "tests/folder.h"

namespace heddle::cli {
namespace {

class ProfileNcuTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string read(const std::string& name) {
    std::ifstream in(folder_ + "/" + name);
    std::ostringstream text;
    text << in.rdbuf();
    return std::move(text).str();
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(ProfileNcuTest, ImportSaysWhatIsThereAndWhatIsMissing) {
  NcuOptions o;
  o.as_json = true;
  o.report = write("r.csv",
                   "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Metric Name\","
                   "\"Metric Unit\",\"Metric Value\"\n\"0\",\"gemm\",\"(128, 1, 1)\",\"(132, 1, "
                   "1)\",\"sm__inst_issued.avg.per_cycle_active\",\"inst/cycle\",\"3\"\n");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = profile_import_ncu(o);
  const auto out = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, kOk);
  EXPECT_EQ(out["kernels"].at(0)["metrics"]["ipc"], 3.0);
  EXPECT_TRUE(out["kernels"].at(0)["duration_us"].is_null());
  EXPECT_NE(err.find("no kernel has fma_pct, fp64_pct"), std::string::npos) << err;
  EXPECT_NE(err.find("their channels are not judged"), std::string::npos);
  o.report = folder_ + "/absent.csv";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(profile_import_ncu(o), kFailed);
  ::testing::internal::GetCapturedStdout();
}

// The program that is measured runs outside heddle and MPS, whatever the caller's environment is.
TEST_F(ProfileNcuTest, CollectRunsNcuUnattached) {
  const std::string ncu = write("ncu", "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + folder_ +
                                           "/words\nenv > " + folder_ + "/env\n");
  ASSERT_EQ(chmod(ncu.c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_PRELOAD", (library_directory() / "libcuda.so.1").c_str(), 1);
    setenv("LD_LIBRARY_PATH", (library_directory().string() + ":/keep").c_str(), 1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/mps", 1);
    NcuOptions o;
    o.ncu = ncu;
    o.output = "out.csv";
    o.command = {"python3", "serve.py"};
    _exit(profile_collect_metrics(o));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(read("words").find("--clock-control=none\n"), std::string::npos);
  EXPECT_TRUE(read("words").ends_with("--\npython3\nserve.py\n"));
  const std::string env = "\n" + read("env");
  EXPECT_EQ(env.find("\nLD_PRELOAD="), std::string::npos);
  EXPECT_NE(env.find("\nLD_LIBRARY_PATH=/keep\n"), std::string::npos);
  EXPECT_EQ(env.find("/run/mps"), std::string::npos);
  EXPECT_NE(env.find("\nLC_ALL=C\n"), std::string::npos);
}

TEST_F(ProfileNcuTest, WithoutNcuTheErrorSaysWhatToInstall) {
  NcuOptions o;
  o.ncu = folder_ + "/no-ncu";
  o.command = {"true"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(profile_collect_metrics(o), kNotFound);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("install it, or name it with --ncu"),
            std::string::npos);
  o.command.clear();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(profile_collect_metrics(o), kUsage);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("after --"), std::string::npos);
}

TEST_F(ProfileNcuTest, NeighboursNamesTheLimitThatForbidsCompany) {
  profiles::Profile p;
  p.gpu = "NVIDIA H100 80GB HBM3";
  const auto add = [&](const char* name, uint32_t blocks, uint32_t threads, uint32_t registers) {
    core::KernelProfile& k = p.task.kernels.emplace_back();
    strcpy(k.facts.name, name);
    k.facts.grid_blocks = blocks;
    k.facts.block_threads = threads;
    k.facts.registers = registers;
  };
  add("decode", 132, 384, 168);
  add("relu", 132, 256, 16);
  add("full", 264, 1024, 16);
  add("a graph", 40, 0, 0);
  const auto all = neighbours_of(p, HEDDLE_GPU_MODELS);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].forbidden_by, core::SlotLimit::kRegisters);
  EXPECT_EQ((*all)[1].forbidden_by, core::SlotLimit::kNone);
  EXPECT_EQ((*all)[2].forbidden_by, core::SlotLimit::kThreads);
  const std::string text = neighbours_text(*all);
  EXPECT_NE(text.find("forbidden by registers"), std::string::npos) << text;
  EXPECT_NE(text.find("has room"), std::string::npos);
  p.gpu = "NVIDIA L4";
  EXPECT_FALSE(neighbours_of(p, HEDDLE_GPU_MODELS));
}

// Two kernels of one block an SM each, of two waves: on all SMs they take turns. And a long one
// that leaves thirty SMs.
constexpr const char* kPair = R"({"version": 1, "gpu": "NVIDIA H100 80GB HBM3", "sm_groups": 15,
 "kernels": [{"name": "a", "grid_blocks": 264, "block_threads": 1024, "registers": 64,
   "static_smem_bytes": 0, "dynamic_smem_bytes": 0, "blocks_per_sm": 1, "alone_us": 20},
  {"name": "b", "grid_blocks": 264, "block_threads": 1024, "registers": 64,
   "static_smem_bytes": 0, "dynamic_smem_bytes": 0, "blocks_per_sm": 1, "alone_us": 10},
  {"name": "c", "grid_blocks": 102, "block_threads": 1024, "registers": 64,
   "static_smem_bytes": 0, "dynamic_smem_bytes": 0, "blocks_per_sm": 1, "alone_us": 100}],
 "pairs": [{"first": 0, "second": 1, "setting": "all", "slowdowns": [1.5, 3], "alone_us": [20, 10]},
  {"first": 0, "second": 1, "setting": "halves", "slowdowns": [1, 1], "alone_us": [40, 20]},
  {"first": 1, "second": 2, "setting": "all", "slowdowns": [3, 1.1], "alone_us": [10, 100]},
  {"first": 0, "second": 1, "setting": "all", "error": "refused"}]})";

TEST_F(ProfileNcuTest, PairsArePredictedAndTheirFaultsNamed) {
  NcuOptions o;
  o.as_json = true;
  o.gpu_model = HEDDLE_GPU_MODELS "/nvidia-h100.toml";
  o.pairs = write("pairs.json", kPair);
  o.report = write("r.csv",
                   "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Metric Name\","
                   "\"Metric Unit\",\"Metric Value\"\n\"0\",\"a\",\"(1024, 1, 1)\",\"(264, 1, "
                   "1)\",\"sm__inst_issued.avg.per_cycle_active\",\"inst/cycle\",\"1\"\n");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(profile_predict_pairs(o), kOk);
  const auto out = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("has no metrics of 2 kernels"), std::string::npos) << err;
  ASSERT_EQ(out["pairs"].size(), 3U);
  const auto& all = out["pairs"].at(0);
  EXPECT_NEAR(all["predicted"][0].get<double>(), 1.5, 0.1);
  EXPECT_NEAR(all["predicted"][1].get<double>(), 3, 0.2);
  EXPECT_EQ(all["binds"][0], "slots");
  EXPECT_NEAR(out["pairs"].at(1)["predicted"][0].get<double>(), 1, 1e-6);  // each has its half
  EXPECT_EQ(out["pairs"].at(2)["known"], nlohmann::json({false, true})) << "beside the long one";
  EXPECT_GT(out["pairs"].at(2)["predicted"][0].get<double>(), 2) << "a guess";

  for (const char* text : {"", "[]", "{}", "{\"sm_groups\": 40, \"kernels\": [], \"pairs\": []}",
                           "{\"sm_groups\": 15, \"kernels\": [], \"pairs\": [{\"first\": 0}]}"}) {
    o.pairs = write("bad.json", text);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(profile_predict_pairs(o), kFailed) << text;
    EXPECT_NE(::testing::internal::GetCapturedStdout().find("bad.json"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace heddle::cli
