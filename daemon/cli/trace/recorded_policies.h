// The policies that a recording names, loaded from their files again.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/policy/lua_policy.h"
#include "daemon/trace/replay.h"

namespace heddle::cli {

// A file, or a name of the policies that are installed with this program.
inline std::string candidate_file(const std::string& word) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (word.empty() || word.find('/') != word.npos || fs::exists(word, error)) return word;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path file = self.parent_path().parent_path() / "share/heddle/policies" /
                        (word.ends_with(".lua") ? word : word + ".lua");
  return fs::exists(file, error) ? file.string() : word;
}

class RecordedPolicies {
 public:
  // `directory`: where they are; empty: where they were.
  explicit RecordedPolicies(std::string directory) : directory_(std::move(directory)) {}

  // The policy, as it was recorded to the hash; nullptr for the built-in.
  Result<core::Policy*> load(const trace::PolicyRecord& r) {
    if (r.path.empty()) return nullptr;
    policy::ParamValues params;
    for (const auto& [name, value] : r.params.items()) {
      params[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    const std::string path =
        directory_.empty() ? r.path
                           : directory_ + "/" + std::filesystem::path(r.path).filename().string();
    auto loaded = policy::load_policy_file(path, params, policy::virtual_time_limits());
    if (!loaded) return fail(loaded.error().message + "; --policies names another directory");
    if ((*loaded)->content_hash() != r.hash) {
      return fail(path + ": not what was recorded (" + r.hash + "); name its directory with " +
                  "--policies");
    }
    return loaded_.emplace_back(std::move(*loaded)).get();
  }
  trace::PolicySource source() {
    return [this](const trace::PolicyRecord& record) { return load(record); };
  }
  const std::vector<std::unique_ptr<policy::LuaPolicy>>& loaded() const { return loaded_; }

 private:
  const std::string directory_;
  std::vector<std::unique_ptr<policy::LuaPolicy>> loaded_;
};

}  // namespace heddle::cli
