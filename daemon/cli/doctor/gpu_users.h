// Who uses the GPUs, by NVML's word and /proc's, and what neither could show.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heddle::cli {

struct GpuUsers {
  // Of facts' gpu_processes, without services: all whose numbers are of this PID namespace, and
  // those of them that are not attached.
  std::vector<nlohmann::json> all, unattached;
  // Whose programs may be on a GPU all the same; empty if there can be none.
  std::vector<std::string> unseen;
};

// `facts` are gather_facts()'. Needs no daemon: without one nobody is attached.
GpuUsers gpu_users(const nlohmann::json& facts);

// "pid 7 python3 of uid 1000 (pod team-a/api, container main)".
std::string process_text(const nlohmann::json& process);

// One of MPS' own processes?
bool is_mps(const nlohmann::json& process);

// What to do about `unattached`, in a pod and elsewhere.
inline constexpr const char* kPodRemedy =
    "let its container ask for heddle.io/latency or heddle.io/batch instead of nvidia.com/gpu";
inline constexpr const char* kProcessRemedy =
    "start it with heddle run, or with heddle's CDI device";

// What to do about `unseen`.
inline constexpr const char* kSeeAll =
    "run heddle doctor as root in the host's PID namespace: sudo, docker run --pid=host";

}  // namespace heddle::cli
