#include "daemon/server/rules.h"

#include <fnmatch.h>

#include <algorithm>

#include "ipc/limits.h"

namespace heddle::server {
namespace {

bool matches(const Rule& rule, const Applicant& who) {
  const auto glob = [](const std::optional<std::string>& pattern, const std::string& text) {
    return !pattern || fnmatch(pattern->c_str(), text.c_str(), 0) == 0;
  };
  return (!rule.uid || *rule.uid == who.uid) && glob(rule.exe, who.exe) &&
         glob(rule.label, who.label);
}

// Nobody gets more than `most_important`, and without a claim everybody the default at most.
int claim(const Applicant& who, int most_important) {
  const int wanted =
      who.claimed >= 0 && who.claimed < ipc::kPriorities ? who.claimed : ipc::kPriorityDefault;
  return std::max(wanted, most_important);
}

}  // namespace

Grade grade(const std::vector<Rule>& rules, uid_t daemon_uid, const Applicant& who) {
  for (const Rule& rule : rules) {
    if (!matches(rule, who)) continue;
    return {rule.priority ? *rule.priority : claim(who, *rule.claim), rule.name};
  }
  if (who.uid == 0) return {claim(who, 0), "default: root may claim any"};
  if (who.uid == daemon_uid) return {claim(who, 0), "default: the daemon's user may claim any"};
  return {claim(who, ipc::kPriorityDefault), "default: others may claim Q5 at most"};
}

std::string priority_text(int priority) {
  std::string text = std::to_string(priority);
  text.insert(0, 1, 'Q');
  if (priority == 0) text += " (highest)";
  if (priority == ipc::kPriorities - 1) text += " (lowest)";
  return text;
}

}  // namespace heddle::server
