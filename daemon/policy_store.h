// The policy directory: finds, checks, loads and lists Lua policies for the server.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "daemon/policy/lua_policy.h"
#include "daemon/server/config.h"
#include "daemon/server/policy_store.h"

namespace heddle {

class FilePolicyStore final : public server::PolicyStore {
 public:
  // `state` is the file that remembers quarantined policies between runs; empty: none does.
  explicit FilePolicyStore(server::PolicySettings settings, std::string state = "");

  // New settings take effect with the next load.
  void configure(server::PolicySettings settings) { settings_ = std::move(settings); }

  Result<server::Generation> load(const std::string& name_or_path, bool pardon) override;
  Result<server::Generation> with_params(const std::string& name, const Params& params) override;
  void adopted(const server::Generation& generation) override;
  std::optional<Result<server::Generation>> changed() override;
  Result<void> quarantine(const std::string& hash) override;
  std::vector<std::string> directories() const override;
  nlohmann::json list() const override;
  nlohmann::json status() const override;
  nlohmann::json describe(const core::Policy& instance) const override;

 private:
  // What a policy is made of. Its files are read once: a generation is what was checked.
  struct Content {
    std::string path;
    policy::Source source;
    policy::ParamValues values;  // of the configuration and, once it is made, of `live`
    policy::ParamValues live;    // set by somebody while it ran
  };

  Result<void> save_quarantined() const;
  nlohmann::json read_list(const std::vector<std::filesystem::path>& files) const;
  Result<std::string> find(const std::string& name_or_path) const;
  policy::ParamValues configured(const std::string& path) const;
  policy::ParamValues live(const std::string& path) const;
  Result<Content> read(const std::string& path) const;
  static Result<std::unique_ptr<policy::LuaPolicy>> make(Content& content,
                                                         std::vector<std::string>& dropped);
  Result<server::Generation> offer(Result<Content> content);

  server::PolicySettings settings_;
  const std::string state_;
  server::Generation running_;
  Content content_, offered_;  // of what runs, and of what is to run once it is adopted
  // The file that is to run: of the running policy, or the one that could not be loaded yet.
  std::string wanted_;
  std::string seen_;  // what changed() found last: a content hash, or an error
  std::map<std::string, policy::ParamValues> set_;  // live parameters, by path
  std::set<std::string> quarantined_;
  // list()'s policies, and the state of their files that they were read in.
  mutable std::pair<std::string, nlohmann::json> listed_;
};

}  // namespace heddle
