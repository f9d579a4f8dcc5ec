#include "daemon/policy/files.h"

#include <algorithm>

namespace heddle::policy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPapers = "papers";

bool is_policy(const fs::path& path) {
  return path.extension() == ".lua" && !path.stem().string().ends_with("_test");
}

}  // namespace

std::string policy_file(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  const fs::path paper = fs::path(path).parent_path() / kPapers / fs::path(path).filename();
  return fs::exists(paper, error) ? paper.string() : path;
}

std::vector<fs::path> policy_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::path& place : {folder, folder / kPapers}) {
    const size_t first = files.size();
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(place, error)) {
      const fs::path found = policy_file(folder / entry.path().filename());
      if (is_policy(found) && found == entry.path()) files.push_back(found);
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
  }
  return files;
}

}  // namespace heddle::policy
