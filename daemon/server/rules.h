// Who gets what: the first of the administrator's rules that matches, else the defaults, which let
// root and the daemon's own user, outside of containers, claim any priority and everybody else at
// most Q5, so that a first try shows something and nobody on a shared host can promote himself.
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
  std::string sms;                 // what it asks to be kept on, "": on no part
  core::ChannelMax channel_max{};  // what it asks to be kept to
};

// What a client gets, and why.
struct Grade {
  int priority = 0;
  std::string rule;
  Terms terms;
};

Grade grade(const std::vector<Rule>& rules, uid_t daemon_uid, const Applicant& applicant);

// That no client reaches `rule` behind those `before` it, and the remedy; "" if one may.
std::string hidden_text(const std::vector<Rule>& before, const Rule& rule);

// True if `path` is `pattern` or lies below it; with any of *?[ that is a glob, level by level.
bool cgroup_matches(const std::string& pattern, const std::string& path);

// That what a rule promises is not what `policy` keeps, and the remedy.
std::vector<std::string> unkept_texts(const Rule& rule, const Generation& policy);

// "Q0 (highest)", "Q5", "Q9 (lowest)".
std::string priority_text(int priority);

}  // namespace heddle::server
