// The files that paths of the command line mean.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

enum class Depth : bool { kDirectory, kTree };

// A directory stands for what in it, or in the tree below it, has a name that ends in `ending`, in
// order; anything else for itself, whether or not it is there.
inline std::vector<std::string> files_of(const std::vector<std::string>& paths,
                                         std::string_view ending, Depth depth) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const auto first = static_cast<ptrdiff_t>(files.size());
    for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      if (depth == Depth::kDirectory) entry.disable_recursion_pending();
      if (entry->path().string().ends_with(ending)) files.push_back(entry->path().string());
    }
    std::sort(files.begin() + first, files.end());
  }
  return files;
}

}  // namespace heddle::cli
