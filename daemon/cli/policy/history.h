// `heddle policy history`, `show` and `diff`: what ran, what runs, and how the file differs from
// it.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace heddle::cli {

// What the daemon answers to policyHistory, newest last.
void print_history(std::ostream& out, const nlohmann::json& answer);

// What a policy left that was quarantined (last_exit of policyShow), as comments of Lua.
void print_exit(std::ostream& out, const nlohmann::json& exit);
// The running policy's text, with its parameters in front, and the last exit dump behind.
int show_policy(const std::string& socket, bool as_json);
// What `file` (empty: the running policy's own) would change of what runs; 1 if anything.
int diff_policy(const std::string& socket, const std::string& file, bool as_json);

// From `before` to `after`, as "-line", "+line" and " line", with three lines around each change;
// "" if they are alike.
std::string line_diff(const std::string& before, const std::string& after);

}  // namespace heddle::cli
