// `heddle policy shadow` and `heddle policy promote`: a candidate beside the live policy.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace heddle::cli {

struct ShadowOptions {
  std::string file;
  bool stop = false;
  double slowdown_max = 1.2;
  double watch_s = 600;
  double wait_s = 1;
};

// Their subcommands of `heddle policy`.
void add_policy_shadow(CLI::App& policy, ShadowOptions& options, const std::string& socket,
                       const bool& as_json, int& exit_code);

// Candidate::json's.
void print_shadow(std::ostream& out, const nlohmann::json& shadow);
// A row for each client, of shadow_json's `clients` (server/shadows.h).
void print_shadowed_clients(std::ostream& out, const nlohmann::json& clients);

}  // namespace heddle::cli
