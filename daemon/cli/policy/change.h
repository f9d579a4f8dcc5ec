// heddle policy load and set: they end when the policy has met its first launches, or was
// quarantined by them.
#pragma once

#include <string>

#include "daemon/server/messages.h"

namespace heddle::cli {

struct PolicyChange {
  std::string socket;
  server::Request request;
  double wait_s = 1;  // for decisions, at most
  bool as_json = false;
};

// What the daemon, which has another working directory, takes for `word`: a name of the policy
// directory as it is; of a path, or a .lua file that is here, the whole path.
std::string policy_named(const std::string& word);

// An exit status: 1 too if the policy was quarantined meanwhile.
int change_policy(const PolicyChange& change);

}  // namespace heddle::cli
