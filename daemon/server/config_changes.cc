#include "daemon/server/config_changes.h"

#include <algorithm>
#include <utility>

#include "daemon/server/clock.h"
#include "daemon/server/rules.h"

namespace heddle::server {
namespace {

// Unknown users and groups are looked up again after this time: a name service may have come back,
// or an account may have been made.
constexpr uint64_t kResolveAgainMs = 60'000;

}  // namespace

ConfigChanges::ConfigChanges(uv_loop_t* loop, const Config& running, Log& log, Jobs& jobs,
                             PolicyChanges& policy, const Engine& engine,
                             std::function<size_t()> regrade)
    : running_(running),
      log_(log),
      jobs_(jobs),
      policy_(policy),
      engine_(engine),
      regrade_(std::move(regrade)),
      configured_(running.policy),
      conf_d_(running.conf_d),
      read_at_(monotonic_now()),
      resolve_again_(loop, [this] { resolve_names(); }) {}

void ConfigChanges::reread() {
  if (!source_.read) return;
  auto fresh = std::make_shared<Result<Config>>();
  jobs_.add([this, fresh] { *fresh = source_.read(); }, [this, fresh] { take(std::move(*fresh)); });
}

void ConfigChanges::take(Result<Config> fresh) {
  read_at_ = monotonic_now();
  if (!fresh) {
    error_ = fresh.error().message;
    log_.error("config_not_read",
               {{"error", error_}, {"hint", "what was read before stays in force"}});
    return;
  }
  error_.clear();
  conf_d_ = fresh->conf_d;
  restarts_ = needs_restart(running_, *fresh);
  std::string restarts;
  for (const std::string& table : restarts_) {
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
  take_policy(*fresh);
}

// A policy that was loaded live, a trial or a candidate ends only if [policy] changed, not for a
// change of rules. If the policy of an unchanged [policy] could not be loaded, it is tried again.
void ConfigChanges::take_policy(const Config& fresh) {
  const Generation& running = engine_.policy.generation();
  const bool failed =
      !engine_.policy.error().empty() && (running.by.how.empty() || running.by.how == "config");
  if (fresh.policy == configured_ && !failed) {
    log_.info("policy_kept", {{"policy", running.name},
                              {"generation", running.number},
                              {"how", running.by.how},
                              {"why", "[policy] has not changed"}});
    return tell_unkept();
  }
  configured_ = fresh.policy;
  if (source_.configured) source_.configured(fresh);
  policy_.load(fresh.policy.name, [this] { tell_unkept(); });
}

void ConfigChanges::tell_unkept() const {
  for (const Rule& rule : rules_) {
    for (const std::string& text : unkept_texts(rule, engine_.policy.generation())) {
      log_.warning("promise_unkept", {{"why", text}});
    }
  }
}

// Returns how many attached clients have other terms by these rules.
size_t ConfigChanges::take_rules(std::vector<Rule> rules) {
  rules_ = std::move(rules);
  const size_t changed = regrade_();
  const auto unresolved = [](const Rule& rule) { return rule.unresolved(); };
  if (std::any_of(rules_.begin(), rules_.end(), unresolved)) resolve_again_.start(kResolveAgainMs);
  return changed;
}

void ConfigChanges::resolve_names() {
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
