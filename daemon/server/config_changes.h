// What of the configuration may change while clients are attached: the rules, and [policy]. Read
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
  // How it is read again: `read` runs on libuv's pool, `configured` on the loop, before the policy
  // is loaded that it names.
  struct Source {
    std::function<Result<Config>()> read;
    std::function<void(const Config&)> configured;
  };
  // `regrade` gives those who are attached what the rules say now: how many have other terms.
  ConfigChanges(uv_loop_t* loop, const Config& running, Log& log, Jobs& jobs, PolicyChanges& policy,
                const Engine& engine, std::function<size_t()> regrade);

  void set_source(Source source) { source_ = std::move(source); }
  void reread();  // without a source nothing happens
  size_t take_rules(std::vector<Rule> rules);
  void tell_unkept() const;  // logs each promise that the policy in force does not keep

  const std::vector<Rule>& rules() const { return rules_; }
  size_t conf_d() const { return conf_d_; }  // how many of its files were read
  core::TimeNs read_at() const { return read_at_; }
  const std::string& error() const { return error_; }  // why it could not be read then
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
  PolicySettings configured_;  // what was last made of [policy]
  std::vector<Rule> rules_;    // changed by jobs only, between their work
  size_t conf_d_;
  core::TimeNs read_at_;
  std::string error_;
  std::vector<std::string> restarts_;
  Timer resolve_again_;
};

}  // namespace heddle::server
