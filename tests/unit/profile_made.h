// Profiles made for tests, and a directory of them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/profile/store.h"
#include "tests/folder.h"

namespace heddle::profiles {

namespace fs = std::filesystem;

inline core::KernelProfile kernel(uint64_t id, const char* name, float mean_us,
                                  uint32_t count = 32) {
  core::KernelProfile k{};
  k.facts.id = id;
  strcpy(k.facts.name, name);
  k.facts.grid_blocks = 512;
  k.facts.block_threads = 256;
  k.facts.registers = 64;
  k.duration = {mean_us, mean_us, 2 * mean_us, count};
  k.gap_launching = {1.5f, 0, 4, 300};
  return k;
}

inline Profile profile() {
  Profile p;
  p.gpu = "NVIDIA H200";
  p.driver = "580.159.04";
  p.label = "api";
  p.command = "python3 serve.py --quote \"x\" \\ \t \xff \xc3\xa9";
  p.measured = "2026-11-21T23:59:59Z";
  p.task.task = 0xfedcba9876543210;
  p.task.runs = 100;
  p.task.kernels = {kernel(1, "a_gemm", 12.34f), kernel(2, "b_relu", 3)};
  p.task.kernels[0].facts.metrics.set(ipc::metric_of("ipc"), 1.75);
  p.task.kernels[0].facts.metrics.set(ipc::metric_of("us_on_12"), 13);
  p.task.kernels[1].after = {{0x0001000200030004, 2.5f, 12}, {0xfffefffdfffcfffb, 3.5f, 20}};
  return p;
}

inline std::string lines(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

class ProfileFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }
  static core::TaskProfile task(uint64_t key, uint64_t first, size_t count) {
    core::TaskProfile t;
    t.task = key;
    t.runs = 100;
    for (size_t i = 0; i < count; ++i) t.kernels.push_back(kernel(first + i, "k", 5));
    return t;
  }

  ProfileStore open_store() {
    return {directory_, [this](const char* event, const std::string& error) {
              warnings_.push_back(event + (": " + error));
            }};
  }

  const TestFolder made_;
  const std::string directory_ = made_.path();
  std::vector<std::string> warnings_;  // of stores
  static constexpr uint32_t kUser = 1000;
};

}  // namespace heddle::profiles
