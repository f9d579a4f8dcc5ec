// `heddle explain`, `metrics` and `top`.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "daemon/base/container_id.h"

namespace heddle::cli {

// `heddle explain`: why a client waits now, and why it waited.

// The ID of the client that `who` means in an answer of ps: its PID, its ID or its label; 0 if none
// or several do.
uint64_t client_meant(const nlohmann::json& ps, const std::string& who);

void print_explanation(std::ostream& out, const nlohmann::json& client,
                       const nlohmann::json& answer);

int explain(const std::string& socket, const std::string& who, bool as_json);

// `heddle metrics`: the daemon's counters in Prometheus' text format, printed, written to a file or
// served over HTTP by this process. The daemon itself opens no TCP.

struct MetricsOptions {
  std::string socket;
  std::string listen;      // "ADDRESS:PORT", "" if nobody is to be served
  std::string textfile;    // "" if none is to be written
  bool all_users = false;  // root that serves stays root, and so sees whose client each is
};

// All of it, from the daemon's answers to `status` and `ps`. Base units: seconds.
std::string prometheus_text(const nlohmann::json& status, const nlohmann::json& ps);
// What is said while no daemon answers.
std::string prometheus_down();

// Of a cgroup's path what container runtimes and Kubernetes put into it, "" where there is none.
using heddle::container_id_of;
std::string pod_uid_of(const std::string& cgroup);

int run_metrics(const MetricsOptions& options);

// `heddle top`: who has the GPU now. Rates are of the time between two answers of the daemon.

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

// What its columns mean.
std::string top_help();
// As people read it, in 80 columns and at most `lines` lines.
std::string top_text(const nlohmann::json& top, const std::string& sort, size_t lines);

int run_top(const TopOptions& options);

}  // namespace heddle::cli
