// `heddle explain`: why a client waits now, and why it waited.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace heddle::cli {

// The ID of the client that `who` means in an answer of ps: its PID, its ID or its label; 0 if none
// or several do.
uint64_t client_meant(const nlohmann::json& ps, const std::string& who);

void print_explanation(std::ostream& out, const nlohmann::json& client,
                       const nlohmann::json& answer);

int explain(const std::string& socket, const std::string& who, bool as_json);

}  // namespace heddle::cli
