// `heddle park` and `unpark`: a program's memory goes from the GPU to the host and comes back, by
// the driver's own checkpoint of a process (cuCheckpointProcess*, driver 570 and newer). Its
// values, addresses and CUDA graphs stay; its calls that touch the driver wait meanwhile. heddled
// needs not run: a PID will do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "daemon/base/result.h"

namespace CLI {
class App;
}

namespace heddle::cli {

// Bytes that a process may take of its host's memory: what is available, and what is left of the
// limits of its cgroup (version 2) and of those above. The driver takes them in the process's name,
// and who passes such a limit is killed. `proc` and `cgroups` are /proc and /sys/fs/cgroup.
Result<uint64_t> host_room(pid_t pid, const std::string& proc, const std::string& cgroups);

void add_park(CLI::App& app, const std::string& socket, const bool& as_json, int& exit_code);

}  // namespace heddle::cli
