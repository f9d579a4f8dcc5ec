// `heddle metrics`: the daemon's counters in Prometheus' text format, printed, written to a file or
// served over HTTP by this process. The daemon itself opens no TCP.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/base/container_id.h"

namespace heddle::cli {

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

}  // namespace heddle::cli
