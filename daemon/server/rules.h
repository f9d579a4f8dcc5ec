// Who may claim which priority. The administrator's rules come first; the defaults let root and the
// daemon's own user claim any, and everybody else at most Q5, so that a first try shows something
// and nobody on a shared host can promote himself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/server/config.h"

namespace heddle::server {

struct Applicant {
  uid_t uid = 0;
  std::string exe;  // from /proc, "" if it cannot be read
  std::string label;
  int claimed = -1;  // -1: no claim
};

struct Grade {
  int priority = 0;
  std::string rule;
};

Grade grade(const std::vector<Rule>& rules, uid_t daemon_uid, const Applicant& applicant);

// "Q0 (highest)", "Q5", "Q9 (lowest)".
std::string priority_text(int priority);

}  // namespace heddle::server
