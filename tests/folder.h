// A folder of a test's own, which goes with what is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace heddle {

class TestFolder {
 public:
  TestFolder() {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/heddle-test-XXXXXX";  // short, as a socket's path has to be
};

}  // namespace heddle
