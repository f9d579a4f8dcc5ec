// The daemon's answers as people read them.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace heddle::cli {

// Text of others, made safe for a terminal and never empty.
std::string printable(std::string text);

// The rule of a client, or of the answer to `effective`, with what it gives besides the priority.
std::string rule_text(const nlohmann::json& grade);

void print_ps(std::ostream& out, const nlohmann::json& answer);
void print_status(std::ostream& out, const nlohmann::json& answer);
void print_policies(std::ostream& out, const nlohmann::json& answer);
void print_policy(std::ostream& out, const nlohmann::json& answer);

// Processes that have a GPU open and are not among the clients of `answer` of `ps`: heddle cannot
// hold them back. Only those that the caller may look at.
nlohmann::json unattached_processes(const nlohmann::json& answer);

}  // namespace heddle::cli
