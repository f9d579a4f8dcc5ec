// The rules: a client gets the terms of the first of the administrator's rules that matches, else
// the defaults. By default root and the daemon's own user, outside of containers, may claim any
// priority, and other users at most Q5. So a first try shows an effect, and no user of a shared
// host can promote their own programs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/server/config.h"
#include "daemon/server/origin.h"
#include "daemon/server/policy_source.h"

namespace heddle::server {

struct Applicant {
  Origin origin;
  std::string label;
  int claimed = -1;                // -1: no claim
  std::string sms;                 // the SMs that it asks to be kept to; "": none
  core::ChannelMax channel_max{};  // the limits that it asks for itself
};

// The terms that a client gets, and the rule that gives them.
struct Grade {
  int priority = 0;
  std::string rule;
  Terms terms;
};

Grade grade(const std::vector<Rule>& rules, uid_t daemon_uid, const Applicant& applicant);

// A warning with a remedy if no client can reach `rule` behind those `before` it; "": one can.
std::string hidden_text(const std::vector<Rule>& before, const Rule& rule);

// True if `path` is `pattern` or lies below it. A pattern with one of *?[ is a glob, level by
// level.
bool cgroup_matches(const std::string& pattern, const std::string& path);

// Warnings with a remedy for promises of the rule that `policy` does not keep.
std::vector<std::string> unkept_texts(const Rule& rule, const Generation& policy);

// "Q0 (highest)", "Q5", "Q9 (lowest)".
std::string priority_text(int priority);

}  // namespace heddle::server
