// `heddle run`: starts a program under the shim.
#pragma once

#include <string>
#include <vector>

namespace heddle::cli {

struct RunOptions {
  int priority = -1;  // -1: leave it to the administrator's rules
  std::string label;
  std::string memory;  // most device memory (ipc/memory.h); "": what the rules say
  // Most that it uses of a channel beside others, of its peak; 0: what the rules say.
  double issue_max = 0, l2_max = 0, dram_max = 0;
  std::string sms;  // kept on these (ipc/sm_set.h); "": on what the rules say
  std::string socket;
  bool sim = false;  // on the simulated GPU
  bool quiet = false;
  bool as_json = false;   // the greeting
  bool children = false;  // the program itself may be one that takes no preload
  std::vector<std::string> command;
};

// Becomes the program; returns an exit code only if it cannot.
int run(const RunOptions& options);

}  // namespace heddle::cli
