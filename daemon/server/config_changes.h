// Changes of the configuration while clients are attached: the rules, and [policy]. They are read
// again on libuv's pool, because files and name services take their time. Loop thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/server/config.h"
#include "daemon/server/handles.h"
#include "daemon/server/jobs.h"
#include "daemon/server/log.h"
#include "daemon/server/policy_changes.h"

namespace heddle::server {

class ConfigChanges {
 public:
  // How the configuration is read again: `read` runs on libuv's pool, then `configured` on the
  // loop, before the policy that it names is loaded.
  struct Source {
    std::function<Result<Config>()> read;
    std::function<void(const Config&)> configured;
  };
  // `regrade` gives the attached clients the terms of the new rules, and returns how many changed.
  ConfigChanges(uv_loop_t* loop, const Config& running, Log& log, Jobs& jobs, PolicyChanges& policy,
                const Engine& engine, std::function<size_t()> regrade);

  void set_source(Source source) { source_ = std::move(source); }
  void reread();  // without a source nothing happens
  size_t take_rules(std::vector<Rule> rules);
  void tell_unkept() const;  // logs each promise that the policy in force does not keep

  const std::vector<Rule>& rules() const { return rules_; }
  size_t conf_d() const { return conf_d_; }  // number of conf.d files that were read
  core::TimeNs read_at() const { return read_at_; }
  const std::string& error() const { return error_; }  // why it could not be read; "": it was
  // Tables that have changed and wait for a restart.
  const std::vector<std::string>& restarts() const { return restarts_; }

 private:
  void take(Result<Config> fresh);
  void take_policy(const Config& fresh);
  void resolve_names();

  const Config& running_;  // as it was at the start
  Log& log_;
  Jobs& jobs_;
  PolicyChanges& policy_;
  const Engine& engine_;
  const std::function<size_t()> regrade_;
  Source source_;
  PolicySettings configured_;  // the last [policy] that was applied
  std::vector<Rule> rules_;    // only jobs change it, while no work of theirs runs
  size_t conf_d_;
  core::TimeNs read_at_;
  std::string error_;
  std::vector<std::string> restarts_;
  Timer resolve_again_;
};

}  // namespace heddle::server
