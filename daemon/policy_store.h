// The policy directory: finds, checks, loads and lists Lua policies for the server.
//
// What the store knows is one value behind a mutex that nobody holds while he reads, writes or
// compiles: the slow calls work on a copy.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/policy/lua_policy.h"
#include "daemon/server/config.h"
#include "daemon/server/policy_source.h"

namespace heddle {

class FilePolicyStore final : public server::PolicyStore {
 public:
  // `state` is the file that remembers quarantined policies between runs, last_good.json beside it
  // the last good generation; empty: none does.
  explicit FilePolicyStore(server::PolicySettings settings, std::string state = "");

  // New settings take effect with the next load.
  void configure(server::PolicySettings settings);

  Result<server::Generation> load(const std::string& name_or_path, bool pardon) override;
  Result<server::Generation> candidate(const std::string& name_or_path) override;
  Result<server::Generation> with_params(const std::string& name, const Params& params) override;
  Result<server::Generation> without_params(const std::string& name,
                                            const std::vector<std::string>& names) override;
  Result<server::Generation> past(uint64_t number) override;
  void look() override;
  std::optional<Result<server::Generation>> changed() override;
  std::optional<server::Generation> last_good() override;
  Result<void> remember() override;
  std::vector<std::string> directories() override;
  nlohmann::json list() override;

  uint64_t adopted(const server::Generation& generation, bool stands_in) override;
  void quarantine(const server::Generation& generation, const std::string& why) override;
  void good(const server::Generation& generation) override;
  nlohmann::json status() const override;
  nlohmann::json history() const override;
  nlohmann::json show() const override;
  nlohmann::json describe(const core::Policy& instance) const override;
  nlohmann::json describe_ended(const core::Policy& instance) const override;

 private:
  struct Imports;
  // What a policy is made of. Its files are read once: a generation is what was checked.
  struct Content {
    std::string path;
    policy::Source source;
    std::shared_ptr<Imports> imports;  // what source.read has read
    policy::ParamValues values;        // of the configuration and, once it is made, of `live`
    policy::ParamValues live;          // set by somebody while it ran
  };
  // A generation that ran, or runs.
  struct Past {
    uint64_t number = 0;
    std::string name, path, hash;
    server::LoadedBy by;
    int64_t at = 0, ended_at = 0;            // seconds of the wall clock
    std::string ended;                       // how; "" while it runs
    uint64_t as = 0;                         // the generation that it is again; 0: none
    std::shared_ptr<const Content> content;  // nullptr: the built-in, or not kept any more
  };
  struct Known {
    server::PolicySettings settings;
    server::Generation running;
    // The file that is to run: of the running policy, or the one that could not be loaded yet.
    std::string wanted;
    // What changed() found last: a content hash, or an error. look() sees the same where nobody
    // watches, by the file's state.
    std::string seen, on_disk, disk_state;
    std::map<std::string, policy::ParamValues> set;  // live parameters, by path
    std::map<std::string, std::string> quarantined;  // by content hash: why
    std::optional<server::Generation> good;
    bool good_unsaved = false;
  };

  Known known() const;
  static const Content& content_of(const server::Generation& generation);
  static Result<std::string> find(const Known& known, const std::string& name_or_path);
  static policy::ParamValues configured(const Known& known, const std::string& path);
  static policy::ParamValues live(const Known& known, const std::string& path);
  static Result<Content> read(const Known& known, const std::string& path);
  static Result<std::unique_ptr<policy::LuaPolicy>> make(Content& content,
                                                         std::vector<std::string>& dropped);
  static Result<server::Generation> offer(Result<Content> content);
  static nlohmann::json read_list(const Known& known,
                                  const std::vector<std::filesystem::path>& files);
  static std::string text_of(const Result<server::Generation>& loaded, const std::string& path);
  static nlohmann::json content_json(const Content& content);
  static std::optional<Content> content_from(const nlohmann::json& document);
  Result<server::Generation> running_content(const std::string& name) const;
  void recall_good();
  // policy_history.cc; with the mutex held.
  uint64_t add_past(const server::Generation& generation);
  static bool same(const Past& a, const Past& b);
  bool thrown_out(const Past& one) const;
  Result<Past> wanted_past(uint64_t number) const;
  void end_past(const std::string& how);
  Result<void> remember_past();
  void recall_past();

  const std::string state_, good_state_, past_state_;  // files
  mutable std::mutex mutex_;
  Known known_;
  std::vector<Past> past_;  // oldest first; also behind the mutex
  uint64_t last_number_ = 0;
  bool past_unsaved_ = false;
  // list()'s policies, and the state of their files that they were read in.
  std::pair<std::string, nlohmann::json> listed_;
};

}  // namespace heddle
