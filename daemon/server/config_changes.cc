// The configuration read again, while clients are attached.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/server/server.h"

namespace heddle::server {
namespace {

// Users and groups that nobody knew: a name service may have come back, or an account been made.
constexpr uint64_t kResolveAgainMs = 60'000;

}  // namespace

// Files and name services take their time.
void Server::reread_config() {
  auto fresh = std::make_shared<Result<Config>>();
  jobs_.add([this, fresh] { *fresh = source_.read(); },
            [this, fresh] { take_config(std::move(*fresh)); });
}

void Server::take_config(Result<Config> fresh) {
  facts_.config_read_at = monotonic_now();
  if (!fresh) {
    facts_.config_error = fresh.error().message;
    log_.error("config_not_read",
               {{"error", facts_.config_error}, {"hint", "what was read before stays in force"}});
    return;
  }
  facts_.config_error.clear();
  facts_.config_restarts = needs_restart(config_, *fresh);
  std::string restarts;
  for (const std::string& table : facts_.config_restarts) {
    restarts += (restarts.empty() ? "" : " ") + table;
  }
  for (const std::string& warning : fresh->warnings) {
    log_.warning("config_warning", {{"warning", warning}});
  }
  const size_t changed = take_rules(std::move(fresh->rules));
  log_.info("config_read", {{"file", fresh->file},
                            {"rules", rules_.size()},
                            {"clients_changed", changed},
                            {"needs_restart", restarts},
                            {"policy", fresh->policy.name}});
  take_policy_settings(*fresh);
}

// What was loaded live, a trial and a candidate end by a change of [policy] only, not by one of a
// rule. What could not be loaded from an unchanged one is tried again.
void Server::take_policy_settings(const Config& fresh) {
  const Generation& running = engine_.policy.generation();
  const bool failed =
      !engine_.policy.error().empty() && (running.by.how.empty() || running.by.how == "config");
  if (fresh.policy == configured_ && !failed) {
    log_.info("policy_kept", {{"policy", running.name},
                              {"generation", running.number},
                              {"how", running.by.how},
                              {"why", "[policy] has not changed"}});
    return;
  }
  configured_ = fresh.policy;
  if (source_.configured) source_.configured(fresh);
  load_policy(fresh.policy.name);
}

// Returns how many of those who are attached have other terms by these.
size_t Server::take_rules(std::vector<Rule> rules) {
  rules_ = std::move(rules);
  size_t changed = 0;
  for (const auto& [id, process] : processes_) {
    Client* client = engine_.roster.find(id);
    if (client == nullptr) continue;
    const Grade grade = server::grade(rules_, geteuid(), process->applicant);
    if (!engine_.set_terms(*client, grade.priority, grade.rule, grade.terms, monotonic_now())) {
      continue;
    }
    ++changed;
    set_memory_limits(*client);
    log_.info("client_terms_changed",
              {{"client", id}, {"priority", grade.priority}, {"rule", grade.rule}});
  }
  const auto unresolved = [](const Rule& rule) { return rule.unresolved(); };
  if (std::any_of(rules_.begin(), rules_.end(), unresolved)) resolve_again_->start(kResolveAgainMs);
  return changed;
}

void Server::resolve_names() {
  auto rules = std::make_shared<std::vector<Rule>>();
  auto any = std::make_shared<bool>();
  jobs_.add(
      [this, rules, any] {
        *rules = rules_;
        *any = server::resolve_names(*rules);
      },
      [this, rules, any] {
        const size_t changed = take_rules(std::move(*rules));
        if (*any) log_.info("rules_resolved", {{"clients_changed", changed}});
      });
}

}  // namespace heddle::server
