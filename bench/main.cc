// heddle-bench: the harness. Today one job: what a launch costs (micro).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "bench/micro.h"

namespace {

constexpr const char* kMicroHelp =
    R"(What heddle costs per launch, on the simulated driver; no GPU needed.
Each figure is a median over rounds that alternate between the two sides; `spread` is the
interquartile range of the rounds.

  passthrough_ns   an entry point that the shim only forwards, minus the direct call
  nodaemon_ns      cuLaunchKernel through the installed shim without a daemon, minus the direct
                   call, interleaved
  lease_ns         cuLaunchKernel through the installed shim under a running daemon (leased),
                   minus the direct call, interleaved, every record drained
  launch_p99_8_threads_over_1
                   p99 of single leased launches, eight threads with a stream each, over one
                   thread's, in turn; the simulated driver's lock is part of both
  gate_rtt_us_p50  a gated cuLaunchKernel under a daemon that grants at once, minus the median
  gate_rtt_us_p99  direct call: ask, wake, decision, grant, wake
  hook_ns          shipped gapfill.lua, dispatch, eight launches queued
  decisions_per_s  asks through slots, core and priority.lua, on one core)";

constexpr const char* kLaunchesHelp =
    "Launches an empty kernel COUNT times through the libcuda.so.1 that the loader finds and "
    "synchronizes: what tests/tidy/instructions.py counts under callgrind";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"heddle-bench: measures heddle"};
  app.require_subcommand(1);

  heddle::bench::MicroOptions options;
  CLI::App* micro = app.add_subcommand("micro", kMicroHelp);
  micro->add_option("--json", options.json, "also write the figures to FILE")->type_name("FILE");
  micro->add_flag("--quick", options.quick, "a tenth of the rounds: seconds, less precise");

  uint32_t count = 1000;
  CLI::App* launches = app.add_subcommand("launches", kLaunchesHelp);
  launches->add_option("--count", count)->type_name("COUNT");

  CLI11_PARSE(app, argc, argv);
  try {
    return launches->parsed() ? heddle::bench::launch_loop(count) : heddle::bench::micro(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-bench: %s\n", error.what());
    return 1;
  }
}
