// heddle-bench: the harness. What a launch costs (micro), what sharing costs (run, virtual), and
// what becomes of the results (table, report, agree, validate).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "bench/micro.h"
#include "bench/runner/kept.h"
#include "bench/runner/run.h"
#include "bench/runner/table.h"
#include "bench/virtual/run.h"
#include "bench/virtual/validate.h"
#include "daemon/base/printable_output.h"
#include "daemon/base/version.h"

namespace {

constexpr const char* kMicroHelp =
    R"(What heddle costs per launch, on the simulated driver unless told otherwise; no GPU needed.
Each figure is a median over rounds that alternate between the two sides; `spread` is the
interquartile range of the rounds.

  passthrough_ns   an entry point that the shim only forwards, minus the direct call
  nodaemon_ns      cuLaunchKernel through the installed shim without a daemon, minus the direct
                   call, interleaved
  lease_ns         cuLaunchKernel through the installed shim under a running daemon (leased),
                   minus the direct call, interleaved, every record drained
  lease_paced_ns   a single leased launch minus a bypassed one, as eager frameworks make them: 10 us
                   apart, with work on 2 MiB of data in between; the launch path is in no near cache
  lease_silence_ns the same of 64 behind a silence of 0.1 s each
  unobserved_paced_ns  the same of a program that is alone at work, and so reports no launch
  launch_p99_8_threads_over_1
                   p99 of single leased launches, eight threads with a stream each, over one
                   thread's, in turn; the driver's own lock is part of both
  direct_p99_8_threads_over_1
                   the same of direct launches: what of it is the driver's
  gate_rtt_us_p50  a gated cuLaunchKernel under a daemon that grants at once, minus the median
  gate_rtt_us_p99  direct call: ask, wake, decision, grant, wake
  gate_16_rtt_us_p50   the same of sixteen gated clients at once: on a host with a core for each
  hook_ns          shipped gapfill.lua, dispatch, eight launches queued
  decisions_per_s  asks through slots, core and priority.lua, on one core)";

constexpr const char* kRunHelp =
    R"(Measures a scenario (a TOML file; share/doc/heddle/bench has the format): its jobs
alone and together, under each baseline and policy. Jobs load once; all rows alternate in short
blocks, in a new order in each repetition; every ratio is taken within a repetition. What was
measured is written after every block. Without an NVIDIA GPU the jobs' [job.sim] runs on the
simulated one, and every figure is labelled so.

  policies   NAME[:KEY=VALUE,...]  two rows: NAME (time-sliced) and NAME@mps; a dotted KEY is one
             of heddled's configuration (gpu.idle_us=500): a daemon and processes of its own
             NAME@timeslice, NAME@mps, NAME@mps+priority  one of them; the last with client priority
             NAME@mps/JOB  that job alone, under heddle: what it costs
  baselines  timeslice, mps, mps+priority (CUDA_MPS_CLIENT_PRIORITY=1 for batch jobs),
             mps:25 or mps:75/25 (thread percentages: batch jobs', each job's),
             split:25 or split:75/25 (Green Contexts: batch jobs on 25 % of the SMs and the
             others on the rest, each job's share), exclusive (one process at a time, by software)

Figures of each row, with n and 95 % bootstrap interval (drawn over repetitions, and over slices
of a second of their blocks):
  jct_ms          job completion time, from the iteration's begin, or arrival, to its end: mean,
                  p50, p95, p99
  cv              standard deviation of it over its mean
  tbt_ms          time between tokens, of iterations that make tokens: mean, p50, p90, p99
  ttft_ms         time from arrival to the first token: likewise
  per_s           iterations a second;  *_over_alone: over the bare block of the same repetition;
                  mean_over_timeslice: over the row timeslice;  mean_over_timesliced: of a job alone
                  under MPS, over alone without;  few: N stands for a quantile of too few requests
                  (p99_requests of the scenario)
  in_1.1_p99, in_1.25_p99  share of requests (of a job that makes tokens: of times between them)
                  within so many times alone's p99 of the same repetition; unserved ones are not
  cost            of heddle, of a paired job: how much longer an iteration takes than its partner
                  that bypasses it, as a share: typical (medians), mean
  slo_attainment  share of requests within slo_ms;  unserved: arrived, not begun before the
                  block's end, a block
  shim_cpu        cores that the shim's thread in the job kept busy
  stp, antt       sum of alone ÷ shared mean JCT; mean of shared ÷ alone (Eyerman, Eeckhout 2008)
  makespan_s      how long the row takes for what each job does alone in a block
  throughput_over_alone  sum of the jobs' rates over alone;  worst_p95_over_alone: of their p95s
  promise_kept    share of repetitions in which the mean is at most slowdown_max of alone, and
                  the p99 at most slowdown_p99_max of the p99 alone (requests: from arrival)
  power_w         of the whole GPU, by NVML's energy counter; energy_per_iteration_j: over all jobs'
                  iterations;  energy_over_alone: over what the same iterations take alone, in turn
  daemon_cpu      cores that heddled kept busy;  counters: what heddle status counted;
                  added_us_max: the most that it stated that others may add to a gap;
                  exceeded_us_max: by how much more some lasted that exceeded theirs
  decisions_per_s launches that heddled let go, a second;  in_hooks: share of the time in its
                  policy's hooks;  faults: of the policy, in a block
  idle_fraction   1 - kernel time / wall time, of a job alone: traced (a profiler's run, of closed
                  loops) and untraced (that kernel time against bare blocks)
Each of `n` slices of a second, and with `spread`, the interquartile range of the repetitions' own
values. A table says `few` where n is under five. What a block has one value of (power, CPU) has no
interval of fewer than five repetitions. Tables are brief, but for --wide.

Exit status: 0 measured, all or what the budget had time for; 1 something broke, the rest was
measured; 2 bad usage; 130 interrupted.)";

constexpr const char* kVirtualHelp =
    R"(Simulates a scenario in virtual time: the real scheduler core and the real policies on the model of
the GPU that the simulated driver has too. No GPU, no process, no clock: equal seeds give equal
results. Jobs are their [job.sim]: synthetic iterations, or a trace that `heddle record` wrote,
whose client plays as a program (its kernels' durations, its host time between calls, its
synchronizing calls), not at the recorded times. Rows and figures are those of `run`; everything
is labelled simulated.
SCENARIO may be a result of `run` or `keep`: then each job's stand-in does as was measured of it
alone, so that other policies and rates can be tried on a twin of it.

  oracle, oracle@mps  a clairvoyant policy that knows every gap and every duration and grants what
                      ends in time: the bound for filling gaps, from which each row's distance is
                      printed. Who lets kernels overlap, or accepts delay, may give best effort more:
                      the part that batch jobs used of the GPU time that latency jobs left is printed
                      too; 1 is the bound for kernels that do not overlap, at the row's own JCT.
  not modelled        caches, clocks, memory, copies, energy; of a client, one thread and one
                      stream)";

constexpr const char* kValidateHelp =
    R"(How far virtual time is from what was measured: each REAL, of `run` or `keep`, against `virtual
REAL`, its twin. Of one per figure and row: both values and the error; per figure: how many rows are
within 15 %, and how many of the pairs of rows that really differ by more than 5 % the simulation
puts in the same order. Of several: the median error of each way of sharing.)";

constexpr const char* kLearnHelp =
    "Profiles of a scenario's programs, for `run --profiles`: `heddle profile sweep` and `probe`";

constexpr const char* kAloneHelp =
    "Plays a program of the job protocol by itself, as `heddle profile sweep` and `probe` want it";

constexpr const char* kTableHelp =
    "Markdown tables from result files of `run` and `keep`, computed from their raw blocks. What "
    "the figures mean: heddle-bench run --help";

constexpr const char* kKeepHelp =
    "Writes of a result what `table` needs, each request in 1 to 3 bytes: bench/results/raw has "
    "such";

constexpr const char* kReportHelp =
    "One HTML page of results and traces: verdict, charts, timeline, policies; or the frontier as "
    "SVG "
    "(report --help)";

constexpr const char* kInterferenceHelp =
    "Sensitivity curves: each victim beside each channel's microbenchmark at rising pressure; "
    "needs a GPU and nvcc (interference --help)";

constexpr const char* kPairsHelp =
    "Kernels of real models beside each other: how much longer each takes than alone; needs a GPU "
    "and PyTorch (pairs --help)";

constexpr const char* kCollectHelp =
    "Jobs at shares of the GPU, alone and beside a neighbour: the tables of `heddle plan`; needs a "
    "GPU, MPS and torchvision (collect --help)";

constexpr const char* kAgreeHelp =
    R"(Whether two results of one scenario say the same: every ratio over alone, and of each policy over
its rival, of A.json and of B.json (or kept raws), with their 95 % intervals. Those whose intervals do
not meet are apart, and named; of equally wide intervals of the same truth one pair in 180 is. Exit
status: 0 none is apart, 1 some are.)";

constexpr const char* kLaunchesHelp =
    "Launches an empty kernel COUNT times through the libcuda.so.1 that the loader finds and "
    "synchronizes: what tests/tidy/instructions.py counts under callgrind";

constexpr const char* kGatedHelp =
    "Lets N clients make COUNT gated launches in all, in virtual time and this process: what the "
    "daemon takes for each, whose instructions tests/tidy/instructions.py counts under callgrind";

// With the first sentence of `help` in the list of all; its own --help has the rest as well.
CLI::App* add(CLI::App& app, const char* name, const std::string& help) {
  const size_t end = std::min(help.find(". "), help.find(".\n"));
  if (end >= help.size()) return app.add_subcommand(name, help);
  std::string first = help.substr(0, end);
  std::replace(first.begin(), first.end(), '\n', ' ');
  return app.add_subcommand(name, first)->footer(help.substr(end + 2));
}

// What `run` and `virtual` both take.
CLI::App* add_scenario(CLI::App& app, const char* name, const char* help,
                       heddle::bench::ScenarioOptions& options) {
  CLI::App* command = add(app, name, help);
  command->add_option("scenario", options.scenario)->type_name("SCENARIO")->required();
  command->add_option("--pair", options.pair, "which of a file that has many: PAIR or PAIR_VARIANT")
      ->type_name("NAME");
  command->add_option("--policies", options.policies, "instead of the scenario's")
      ->type_name("A,B")
      ->delimiter(',');
  command->add_option("--baselines", options.baselines, "instead of the scenario's")
      ->type_name("A,B")
      ->delimiter(',');
  command->add_option("--repetitions", options.repetitions, "instead of the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--block-s", options.block_s, "instead of the scenario's")
      ->type_name("S")
      ->check(CLI::Range(0.05, 600.0));
  command->add_option("--seed", options.seed, "instead of the scenario's; else drawn, and printed")
      ->type_name("N");
  command->add_flag("--wide", options.wide,
                    "the table has all columns (heddle-bench table --wide)");
  command->add_flag("--apart", options.apart,
                    "first all rows without MPS, then the others: half of the processes at a time");
  return command;
}

CLI::App* add_run(CLI::App& app, heddle::bench::RunOptions& run) {
  CLI::App* command = add_scenario(app, "run", kRunHelp, run);
  command->add_option("--device", run.device, "auto (a GPU if there is one), sim, or virtual")
      ->check(CLI::IsMember({"auto", "sim", "virtual"}));
  command->add_flag_callback(
      "--sim", [&run] { run.device = "sim"; }, "the same as --device sim");
  command->add_option("--json", run.json, "the result; default: the scenario's name, here")
      ->type_name("FILE");
  command
      ->add_option("--profiles", run.profiles,
                   "heddled reads the profiles there: curves (`heddle profile sweep`), metrics")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--resume", run.resume, "go on where the file stopped, on the same scenario");
  command->add_flag("--skip-alone", run.skip_alone,
                    "no rows of each job alone, nor its profile: for what is held against "
                    "other rows");
  command->add_flag("--skip-outputs", run.skip_outputs,
                    "do not compare outputs under heddle with those of bare processes");
  command->add_option("--budget-s", run.budget_s, "begin no repetition that would end later")
      ->type_name("N");
  command->add_option("--trace", run.trace, "record ROW.trace of each row with a policy there")
      ->type_name("FOLDER");
  command->add_flag("--plan", run.plan, "print rows, processes and seconds as JSON; start nothing");
  command->add_option("--logs", run.logs, "keep the logs of daemons and jobs there")
      ->type_name("FOLDER");
  return command;
}

CLI::App* add_virtual(CLI::App& app, heddle::bench::VirtualOptions& run) {
  CLI::App* command = add_scenario(app, "virtual", kVirtualHelp, run);
  command->add_option("--json", run.json, "the result, replaced if it is there")->type_name("FILE");
  command->add_option("--policy-dir", run.policy_directory, "default: the installed policies")
      ->type_name("FOLDER");
  command->add_option("--gpus", run.gpus, "how many GPUs; copy i of the jobs runs on i modulo N")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command->add_option("--copies", run.copies, "every job so often; samples of copies are pooled")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--host-noise", run.host_noise,
                   "the programs' processors are slower by this part, half of the time")
      ->type_name("N")
      ->check(CLI::Range(0.0, 10.0));
  command->add_option("--threads", run.threads, "default: one for each CPU")->type_name("N");
  command->add_option("--trace", run.trace, "write ROW.trace of each row with a policy there")
      ->type_name("FOLDER");
  return command;
}

// `run --device virtual`: what `virtual` prints. It takes no more than fits a run that is over in
// seconds.
int run_virtually(const CLI::App& command, const heddle::bench::RunOptions& run) {
  for (const char* name : {"--resume", "--skip-alone", "--skip-outputs", "--budget-s", "--logs"}) {
    if (command.count(name) == 0) continue;
    throw std::runtime_error(std::string(name) + " is for runs in real time; leave it out");
  }
  heddle::bench::VirtualOptions options;
  static_cast<heddle::bench::ScenarioOptions&>(options) = run;
  options.json = run.json;
  options.trace = run.trace;
  options.command = run.command;
  return heddle::bench::print_virtual(options);
}

// Drawing needs a plotting library, and curves of interference a compiler: scripts beside the
// binaries.
int become(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string script = heddle::bench::installed("libexec/heddle/" + name + ".py");
  std::vector<const char*> words = {"python3", script.c_str()};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  execvp(words[0], const_cast<char* const*>(words.data()));
  throw std::runtime_error(name + ": python3 is not there; install it");
}

}  // namespace

int main(int argc, char** argv) {
  heddle::keep_output_printable();
  CLI::App app{"heddle-bench: measures heddle"};
  app.set_version_flag("--version", std::string("heddle-bench ") + heddle::version_text());
  app.require_subcommand(1);

  heddle::bench::MicroOptions options;
  CLI::App* micro = add(app, "micro", kMicroHelp);
  micro->add_option("--json", options.json, "also write the figures to FILE")->type_name("FILE");
  micro->add_option("--driver", options.driver, "another driver, such as the GPU's libcuda.so.1")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  micro->add_flag("--quick", options.quick, "a tenth of the rounds: seconds, less precise");

  uint32_t count = 1000;
  CLI::App* launches = add(app, "launches", kLaunchesHelp);
  launches->add_option("--count", count)->type_name("COUNT");
  uint32_t clients = 16;
  CLI::App* gated = add(app, "gated", kGatedHelp);
  gated->add_option("--count", count)->type_name("COUNT");
  gated->add_option("--clients", clients)->type_name("N")->check(CLI::Range(1, 1024));
  bool beside = false;
  gated->add_flag("--beside", beside, "in real time, on another processor than the clients");

  heddle::bench::RunOptions run;
  CLI::App* runner = add_run(app, run);
  heddle::bench::VirtualOptions simulation;
  CLI::App* virtual_time = add_virtual(app, simulation);
  heddle::bench::LearnOptions learning;
  CLI::App* learn = add_scenario(app, "learn", kLearnHelp, learning);
  learn->add_option("--profiles", learning.profiles, "where they go")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory)
      ->required();
  learn->add_option("--device", learning.device, "auto (a GPU if there is one), or sim")
      ->check(CLI::IsMember({"auto", "sim"}));
  learn->add_flag("--sweep", learning.sweep, "times on fewer SMs");
  learn->add_flag("--probe", learning.probe, "times beside microbenchmarks");
  double alone_s = 0;
  std::vector<std::string> program;
  CLI::App* alone = add(app, "alone", kAloneHelp);
  alone->add_option("seconds", alone_s)->required();
  alone->add_option("command", program)->required();
  std::vector<std::string> files;
  CLI::App* validate = add(app, "validate", kValidateHelp);
  validate->add_option("real", files, "results")->type_name("REAL")->required();
  validate->add_option("--seed", simulation.seed, "instead of the scenario's")->type_name("N");
  validate
      ->add_option("--policy-dir", simulation.policy_directory, "default: the installed policies")
      ->type_name("FOLDER");
  heddle::bench::TableStyle table_style;
  CLI::App* table = add(app, "table", kTableHelp);
  table->add_option("files", files, "results")->type_name("FILE")->required();
  table->add_flag("--wide", table_style.wide, "a table of each, with all columns");
  table->add_flag("--all", table_style.all, "also each figure with its interval, spread and n");
  std::string from, to;
  CLI::App* keep = add(app, "keep", kKeepHelp);
  keep->add_option("result", from)->type_name("IN.json")->required();
  keep->add_option("kept", to)->type_name("OUT.raw")->required();
  CLI::App* figures =
      app.add_subcommand("figures", "Prints a result of `run` or `keep` as JSON, with all figures");
  figures->add_option("result", from)->type_name("RESULT")->required();
  CLI::App* report = add(app, "report", kReportHelp);
  report->prefix_command()->set_help_flag();
  CLI::App* interference = add(app, "interference", kInterferenceHelp);
  interference->prefix_command()->set_help_flag();
  CLI::App* pairs = add(app, "pairs", kPairsHelp);
  pairs->prefix_command()->set_help_flag();
  CLI::App* collect = add(app, "collect", kCollectHelp);
  collect->prefix_command()->set_help_flag();
  std::string first, second;
  CLI::App* agree = add(app, "agree", kAgreeHelp);
  agree->add_option("first", first)->type_name("A.json")->required();
  agree->add_option("second", second)->type_name("B.json")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (int i = 0; i < argc; ++i) run.command.append(i == 0 ? "" : " ").append(argv[i]);
  simulation.command = run.command;
  try {
    if (validate->parsed()) return heddle::bench::print_validation(files, simulation);
    if (virtual_time->parsed()) return heddle::bench::print_virtual(simulation);
    if (runner->parsed() && run.device == "virtual" && !run.plan)
      return run_virtually(*runner, run);
    if (runner->parsed()) return heddle::bench::run_scenario(run);
    if (learn->parsed()) return heddle::bench::learn(learning);
    if (alone->parsed()) return heddle::bench::play_alone(alone_s, program);
    if (keep->parsed()) return heddle::bench::keep(from, to);
    if (table->parsed()) return heddle::bench::print_tables(files, table_style);
    if (figures->parsed()) return heddle::bench::print_figured(from);
    if (report->parsed()) return become("report", report->remaining());
    if (interference->parsed()) return become("interference", interference->remaining());
    if (pairs->parsed()) return become("pairs", pairs->remaining());
    if (collect->parsed()) return become("collect", collect->remaining());
    if (agree->parsed()) return heddle::bench::print_agreements(first, second);
    if (gated->parsed()) return heddle::bench::gated_loop(clients, count, beside);
    return launches->parsed() ? heddle::bench::launch_loop(count) : heddle::bench::micro(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-bench: %s\n", error.what());
    return 1;
  }
}
