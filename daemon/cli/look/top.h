// `heddle top`: who has the GPU now. Rates are of the time between two answers of the daemon.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::cli {

struct TopOptions {
  std::string socket;
  bool as_json = false;
  bool once = false;
  double interval_s = 1;
  std::string sort = "gpu";  // "gpu", "priority" or "wait"
};

// What the daemon said, and when.
struct TopSample {
  nlohmann::json status, ps;
  double at_s = 0;
};

// {interval_s, policy, gpus: [...], clients: [...]}: shares and rates between two samples.
nlohmann::json top_between(const TopSample& before, const TopSample& after);

// As people read it, in 80 columns and at most `lines` lines.
std::string top_text(const nlohmann::json& top, const std::string& sort, size_t lines);

int run_top(const TopOptions& options);

}  // namespace heddle::cli
