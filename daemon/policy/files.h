// Where policies are: in a folder what an administrator chooses from, and in papers/ below it the
// rules of papers and the baselines, which have their names in common with the others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::policy {

// `path`; where nothing is there, the file of that name in papers/ beside it.
std::string policy_file(const std::string& path);

// The policies of a folder by name, without their tests, and after them those of its papers/. What
// policy_file() does not find by the folder's path is left out.
std::vector<std::filesystem::path> policy_files(const std::filesystem::path& folder);

}  // namespace heddle::policy
