#include "daemon/server/rules.h"

#include <fnmatch.h>

#include <algorithm>

#include "ipc/limits.h"
#include "ipc/sm_set.h"

namespace heddle::server {
namespace {

bool glob(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool matches_all_but_ids(const Rule& rule, const Applicant& who) {
  const Origin& o = who.origin;
  const auto any_cgroup = [&](const std::string& pattern) {
    return std::any_of(o.cgroups.begin(), o.cgroups.end(),
                       [&](const std::string& path) { return cgroup_matches(pattern, path); });
  };
  return (!rule.cgroup || any_cgroup(*rule.cgroup)) &&
         (!rule.exe || (!o.exe.empty() && glob(*rule.exe, o.exe))) &&
         (!rule.label || glob(*rule.label, who.label));
}

bool matches_ids(const Rule& rule, const Origin& o) {
  return (!rule.uid || rule.uid == o.uid) &&
         (!rule.gid || std::find(o.gids.begin(), o.gids.end(), *rule.gid) != o.gids.end());
}

// The smaller limit of each channel; 0 is no limit.
core::ChannelMax least_of(const core::ChannelMax& a, const core::ChannelMax& b) {
  const auto least = [](float x, float y) { return x > 0 && y > 0 ? std::min(x, y) : x + y; };
  return {least(a.issue, b.issue), least(a.l2, b.l2), least(a.dram, b.dram)};
}

// Whether a client may get less by this rule than by default, or by a later rule.
bool restricts(const Rule& rule) {
  const Terms none;
  const int best = rule.priority ? *rule.priority : rule.claim.value_or(ipc::kPriorityDefault);
  return best >= ipc::kPriorityDefault || rule.terms.share < none.share ||
         !rule.terms.sms.empty() || rule.terms.channel_max != none.channel_max ||
         rule.terms.compute.limit > 0 || !rule.terms.memory.empty();
}

// A restricting rule names an unknown user or group, and may be meant for this client. So it gets
// no more than by default.
void keep_to_default(Grade& grade, const Grade& by_default, const Rule& unresolved) {
  if (grade.priority >= by_default.priority && grade.terms.share <= by_default.terms.share &&
      !grade.terms.slowdown_max.any() && grade.terms.compute.request == 0) {
    return;
  }
  grade.terms.slowdown_max = {};
  grade.terms.compute.request = 0;
  grade.priority = std::max(grade.priority, by_default.priority);
  grade.terms.share = std::min(grade.terms.share, by_default.terms.share);
  grade.rule += ", and no more than the default: " + unresolved.name +
                " is for somebody whom this host does not know";
}

// The priority for a claim: at most `most_important`, and without a claim at most the default.
int claim(const Applicant& who, int most_important) {
  const int wanted =
      who.claimed >= 0 && who.claimed < ipc::kPriorities ? who.claimed : ipc::kPriorityDefault;
  return std::max(wanted, most_important);
}

// True if `first` certainly matches every client that `second` matches.
bool covers(const Rule& first, const Rule& second) {
  const auto any_or_same = [](const auto& mine, const auto& its) { return !mine || mine == its; };
  const auto below = [](const std::string& path, const std::optional<std::string>& cgroup) {
    return path.find_first_of("*?[") == path.npos && cgroup && cgroup_matches(path, *cgroup);
  };
  return !first.unresolved() && any_or_same(first.uid, second.uid) &&
         any_or_same(first.gid, second.gid) && any_or_same(first.exe, second.exe) &&
         any_or_same(first.label, second.label) &&
         (any_or_same(first.cgroup, second.cgroup) || below(*first.cgroup, second.cgroup));
}

}  // namespace

Grade grade(const std::vector<Rule>& rules, uid_t daemon_uid, const Applicant& who) {
  Terms asked;  // any client may ask for less of the GPU
  if (ipc::parse_sms(who.sms)) asked.sms = who.sms;
  asked.channel_max = who.channel_max;
  Grade by_default{claim(who, ipc::kPriorityDefault), "default: others may claim Q5 at most",
                   asked};
  if (who.origin.local && who.origin.uid == 0) {
    by_default = {claim(who, 0), "default: root may claim any", asked};
  } else if (who.origin.local && who.origin.uid == daemon_uid) {
    by_default = {claim(who, 0), "default: the daemon's user may claim any", asked};
  }
  const Rule* unresolved = nullptr;  // the first restricting rule that may be meant for the client
  for (const Rule& rule : rules) {
    if (!matches_all_but_ids(rule, who) || !matches_ids(rule, who.origin)) continue;
    if (rule.unresolved()) {
      if (unresolved == nullptr && restricts(rule)) unresolved = &rule;
      continue;
    }
    const int priority = rule.priority ? *rule.priority
                         : rule.claim  ? claim(who, *rule.claim)
                                       : by_default.priority;
    Grade by_rule{priority, rule.name, rule.terms};
    if (by_rule.terms.sms.empty()) by_rule.terms.sms = asked.sms;
    by_rule.terms.channel_max = least_of(by_rule.terms.channel_max, asked.channel_max);
    if (unresolved != nullptr) keep_to_default(by_rule, by_default, *unresolved);
    return by_rule;
  }
  return by_default;
}

bool cgroup_matches(const std::string& pattern, const std::string& path) {
  if (pattern.find_first_of("*?[") != std::string::npos) {
    // No wildcard crosses a slash: below their own slice, users name cgroups as they like.
    return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME | FNM_LEADING_DIR) == 0;
  }
  if (path.compare(0, pattern.size(), pattern) != 0) return false;
  return path.size() == pattern.size() || pattern.back() == '/' || path[pattern.size()] == '/';
}

std::string hidden_text(const std::vector<Rule>& before, const Rule& rule) {
  const auto above = std::find_if(before.begin(), before.end(),
                                  [&](const Rule& earlier) { return covers(earlier, rule); });
  if (above == before.end()) return "";
  return "rule \"" + rule.name + "\": no client reaches it, as \"" + above->name +
         "\" matches each of its clients; put it above";
}

std::vector<std::string> unkept_texts(const Rule& rule, const Generation& policy) {
  std::vector<std::string> texts;
  const auto check = [&](float max, bool keeps, const char* promises, const char* remedy) {
    if (max == 0 || keeps) return;
    char promise[16];
    snprintf(promise, sizeof promise, "%.2f", static_cast<double>(max));
    texts.push_back("rule \"" + rule.name + "\" promises " + promises + promise + ", policy " +
                    policy.name + " does not keep " + remedy);
  };
  const core::SlowdownMax& max = rule.terms.slowdown_max;
  check(max.mean, policy.keeps_promises, "", "promises; auto does");
  check(max.p99, policy.keeps_p99, "a p99 of ", "promises of the p99; auto does");
  if (rule.terms.compute.any() && !policy.keeps_compute) {
    texts.push_back("rule \"" + rule.name + "\" has compute, policy " + policy.name +
                    " does not keep it; auto and fair do");
  }
  return texts;
}

std::string priority_text(int priority) {
  std::string text = std::to_string(priority);
  text.insert(0, 1, 'Q');
  if (priority == 0) text += " (highest)";
  if (priority == ipc::kPriorities - 1) text += " (lowest)";
  return text;
}

}  // namespace heddle::server
