// `heddle run`: starts a program under the shim.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

struct RunOptions {
  int priority = -1;  // -1: leave it to the administrator's rules
  std::string label;
  std::string memory;  // most device memory (ipc/memory.h); "": what the rules say
  // Most that it uses of a channel beside others, of its peak; 0: what the rules say.
  double issue_max = 0, l2_max = 0, dram_max = 0;
  bool park = false;  // idle, its memory may be parked for others
  std::string sms;    // kept on these (ipc/sm_set.h); "": on what the rules say
  std::string socket;
  bool sim = false;  // on the simulated GPU
  bool quiet = false;
  bool as_json = false;   // the greeting
  bool children = false;  // the program itself may be one that takes no preload
  std::vector<std::string> command;
};

// Becomes the program; returns an exit code only if it cannot.
int run(const RunOptions& options);

// `heddle run --memory`: which mechanisms hold the limit, and MPS's own where an MPS is in force.

inline constexpr const char* kMpsMemoryLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

// What the program will find. `nvml` as probe_gpu() has it; null where nobody asked.
struct MemorySetting {
  std::string limit;              // of --memory
  bool daemon = false;            // heddled answers, so that the shim keeps to the limit
  bool mps = false;               // an MPS runs where the program looks for it
  std::string given;              // kMpsMemoryLimit, as the user has it
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES of the program; null: not set
  std::string mps_visible;        // and of MPS, "": all
  nlohmann::json nvml;
};

struct MemoryHold {
  std::string by;         // shim, mps, "shim and mps" or none, as `heddle ps --json` has it
  std::string mps_limit;  // to be set for the program, with room for its context; "": nothing
  std::string why;        // said beside `by`; may be ""
};

// Asks nothing, so that tests can make settings up. A value that the user set stays. MPS drops the
// whole of a value that names a device which the program does not see: no other is named.
MemoryHold hold_memory(const MemorySetting& setting);

// Sets kMpsMemoryLimit in this environment where hold_memory() says so; `daemon` as above.
MemoryHold set_memory_limit(const std::string& limit, bool daemon);

// `heddle try`: does heddle help these two programs? The measuring is Python's, as its report is:
// bench/try.py, which heddle-bench installs.

// `command` is what stands behind the first --. The script knows the options, and its own --help.
void add_try(CLI::App& app, const std::vector<std::string>& command, int& exit_code);

}  // namespace heddle::cli
