// The files of GPU models: what is read, and that each complaint names file, line and remedy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "daemon/profile/gpu_model.h"
#include "tests/folder.h"

namespace heddle::profiles {
namespace {

std::string shipped() {
  std::ifstream in(HEDDLE_GPU_MODELS "/nvidia-h100.toml");
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::string with(const std::string& old_text, const std::string& new_text) {
  std::string text = shipped();
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

std::string error_of(const std::string& text) {
  const Result<core::DeviceModel> model = parse_gpu_model(text, "m.toml");
  return model ? "" : model.error().message;
}

int line_of(const std::string& text) {
  const std::string all = shipped();
  const size_t at = all.find(text);
  return static_cast<int>(std::count(all.begin(), all.begin() + static_cast<long>(at), '\n')) + 1;
}

TEST(GpuModelFileTest, TheShippedModelIsRead) {
  const Result<core::DeviceModel> model = parse_gpu_model(shipped(), "m.toml");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->gpu, "NVIDIA H100");
  EXPECT_EQ(model->sm_total, 132u);
  EXPECT_EQ(model->limits[core::index_of(core::Channel::kFp64)].sharpness, 40);
}

TEST(GpuModelFileTest, EachCardHasItsOwn) {
  const auto dram_gb_s = [](const char* gpu) {
    const auto model = find_gpu_model(HEDDLE_GPU_MODELS, gpu);
    return model ? model->dram_gb_s : 0;
  };
  EXPECT_EQ(dram_gb_s("NVIDIA H100 80GB HBM3"), 2300);
  EXPECT_EQ(dram_gb_s("NVIDIA H200"), 4300);
  EXPECT_EQ(dram_gb_s("NVIDIA L4"), 0);
}

TEST(GpuModelFileTest, EachComplaintNamesFileLineAndRemedy) {
  struct Case {
    std::string old_text, new_text, what;
    int line;
  };
  const Case cases[] = {
      {"threads = 2048", "threads = \"many\"", "threads must be a number from 32 to 100000",
       line_of("threads = 2048")},
      {"threads = 2048", "threads = 2048.5", "threads must be a whole number",
       line_of("threads = 2048")},
      {"threads = 2048", "treads = 2048", "threads is missing", line_of("[sm]")},
      {"blocks = 32", "blocks = 32\nwarps = 64", "unknown key warps", line_of("blocks = 32") + 1},
      {"fp64 = { capacity = 0.955", "fp64 = { capacity = -1", "capacity must be a number",
       line_of("fp64 = {")},
      {"fp64 = {", "fp32 = {", "[fp64] is missing", line_of("[limit]")},
      {"version = 1", "version = 2", "version must be a number from 1 to 1", line_of("version")},
      {"gpu = \"NVIDIA H100\"", "gpu = 7", "gpu must be how the names", line_of("gpu = ")},
      {"[cache]", "[cache", "", line_of("[cache]")},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(with(c.old_text, c.new_text));
    EXPECT_EQ(error.find("m.toml:" + std::to_string(c.line) + ": " + c.what), 0u)
        << c.new_text << " -> " << error;
    EXPECT_NE(error.find("; mend it"), std::string::npos) << error;
  }
}

TEST(GpuModelFileTest, TheLongestNameThatFitsIsTheDevices) {
  const TestFolder made;
  const std::string& folder = made.path();
  std::ofstream(folder + "/a.toml") << shipped();
  std::ofstream(folder + "/b.toml") << with("gpu = \"NVIDIA H100\"", "gpu = \"NVIDIA H100 NVL\"");
  const auto name = [&](const std::string& gpu) {
    const Result<core::DeviceModel> model = find_gpu_model(folder, gpu);
    return model ? model->gpu : model.error().message;
  };
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "NVIDIA H100");
  EXPECT_EQ(name("NVIDIA H100 NVL"), "NVIDIA H100 NVL");
  EXPECT_NE(name("NVIDIA L4").find("no model of \"NVIDIA L4\"; copy one"), std::string::npos);
}

}  // namespace
}  // namespace heddle::profiles
