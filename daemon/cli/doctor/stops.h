// `heddle doctor --stop`: whether GPUs can stop kernels that run (daemon/server/stop_answers.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace heddle::cli {

struct StopOptions {
  bool stop = false;
  bool sim = false;
  bool even_if_busy = false;  // others are on the GPU
  bool once = false;          // not those that have answered under this driver
};

// Both kinds of `heddle doctor`.
void add_doctor(CLI::App& app, StopOptions& options, const std::string& socket, const bool& as_json,
                int& exit_code);
// Asks, tells and keeps. Exit codes as doctor's: 1 if a GPU could not be asked, or its answer not
// be kept; a "no" is an answer.
int run_stop(const std::string& socket, bool as_json, const StopOptions& options);

}  // namespace heddle::cli
