// A scenario: the jobs that share a GPU, and the rows under which they are measured. One TOML file,
// read once; the runner, the virtual-time simulator and the tables all take these structs. No
// process, clock or random number here, and nothing changes after load().
//
// A file may hold many: of those, one is read at a time (pairs.h).
//
// Units are in the names; file paths are as written (see resolve()).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::scenario {

enum class Role : uint8_t { kLatency, kBatch };

// When iterations begin. A closed loop begins the next when the last one ended; with the others a
// request arrives whether or not the job is free, waits its turn, and its time counts from arrival.
// kOpen and kBurst begin together in all jobs of a row, lead and all: they meet.
enum class ArrivalKind : uint8_t { kClosed, kOpen, kPoisson, kOnOff, kBurst, kRecorded };

// kOnOff: an interrupted Poisson process, on and off by turns. Its gaps are of two kinds (Kuczura,
// 1973): a share kShortGaps of them at 2 kShortGaps times the mean rate, the others at
// 2 (1 - kShortGaps) times. This share gives gaps a coefficient of variation of 2.
inline constexpr double kShortGaps = 0.8872983346207417;  // (1 + sqrt(3 / 5)) / 2

struct Arrivals {
  ArrivalKind kind = ArrivalKind::kClosed;
  double per_s = 0;    // kOpen: evenly spaced; kPoisson, kOnOff: the mean; kBurst: bursts
  double load = 0;     // instead of per_s: times what the job alone serves in a closed loop
  uint32_t burst = 1;  // kBurst: requests of one, all at once
  std::string file;    // kRecorded: a text file, one arrival a line in seconds, ascending; repeated
};

// Log-normal: exp(normal(log median, sigma)). Sigma 0 is a constant; median 0 is nothing at all.
struct Distribution {
  double median_us = 0;
  double sigma = 0;
};

// Blocks of 1024 threads that an H200 holds at once.
inline constexpr uint32_t kSimWave = 264;

// What stands in for the job where no GPU is: a recorded trace, or a synthetic iteration of
// `kernels` launches with host time between them, synchronizing, and host time before the next.
// With `tokens` it is a request of so many tokens: each is `kernels` launches and their
// synchronizing calls, or an iteration of the trace. With a trace and a synthetic one, virtual time
// (and the workload "replay", on a GPU too) plays the trace, and the simulated GPU the other.
struct SimJob {
  std::string trace;
  uint32_t tokens = 0;         // an iteration; 0: it makes none, and has no times between them
  uint32_t kernels = 1;        // launches an iteration, or a token; no synthetic one if
                               // kernel.median_us is 0
  uint32_t syncs = 1;          // synchronizing calls among them, evenly; the last one is at the end
  Distribution kernel;         // duration of one launch, alone on the GPU, all waves included
  Distribution gap;            // between the launches of an iteration
  Distribution pause;          // after the iteration's synchronize
  uint32_t blocks = kSimWave;  // of each launch, 1024 threads each
  // Given: each launch of an iteration is a kernel of its own, the same in every iteration, of as
  // many blocks of this length as its duration needs, and `blocks` is not used. See launches_of().
  Distribution block;
};

struct Job {
  std::string name;
  Role role = Role::kBatch;
  int priority = 9;                           // Q0 (highest) to Q9; from the role unless given
  std::string workload;                       // a built-in; or empty, and:
  std::vector<std::string> command;           // a program that speaks the job protocol
  std::map<std::string, std::string> params;  // further keys of the job, for the built-in
  Arrivals arrivals;
  bool paired = false;  // under heddle every other iteration bypasses it: what it costs
  std::optional<double> slo_ms;
  // Promised to it by heddled's rule: by others, at most, in the mean and at the p99; 0: nothing.
  double slowdown_max = 0, slowdown_p99_max = 0;
  std::optional<SimJob> sim;
  uint32_t line = 0;  // of its [[job]], for messages
};

// A policy of the policy directory (or a path to a Lua file) with parameters,
// "gapfill:share_pct=60". A dotted name is a key of heddled's configuration, with its value in
// TOML: "gapfill:gpu.idle_us=500" has a daemon, and processes, of its own.
struct PolicyRow {
  std::string text;  // as written; names the rows
  std::string policy;
  std::map<std::string, std::string> params, config;
  bool timeslice = true;         // "NAME" stands for both; "NAME@timeslice" is this one alone,
  bool mps = true;               // "NAME@mps" that one, "NAME@mps+priority" the same ...
  bool client_priority = false;  // ... with CUDA_MPS_CLIENT_PRIORITY=1 for batch jobs
  std::string job;               // "NAME@mps/JOB": that job alone, under heddle
};

enum class BaselineKind : uint8_t {
  kTimeslice,    // bare processes
  kMps,          // bare processes under MPS
  kMpsPriority,  // the same, batch jobs with CUDA_MPS_CLIENT_PRIORITY=1
  kMpsPercent,   // "mps:25" (batch jobs) or "mps:75/25" (each job): active thread percentages
  kSplit,        // "split:25" (batch jobs on the first 25 % of the SMs, the others on the rest) or
                 // "split:75/25" (each job's share, side by side): fixed Green Contexts, by heddle
  kExclusive,    // the GPU belongs to one process at a time, by software
};

// Of the GPU's SMs, in percent: [from, to).
struct SmShare {
  uint32_t from = 0, to = 100;

  auto operator<=>(const SmShare&) const = default;
};

struct Baseline {
  std::string text;  // as written; names the row
  BaselineKind kind = BaselineKind::kTimeslice;
  std::vector<uint32_t> parts;  // kMpsPercent: one for each job, in their order
  std::vector<SmShare> shares;  // kSplit: likewise
};

// What is expected of a row, written down before it is measured (">=" likewise):
//
//   "ROW: FIGURE <= NUMBER (SOURCE)"                 as `table --all` names it, "H jct_ms mean"
//   "ROW: JOB METRIC / OTHER <= NUMBER (SOURCE)"     over another row, within repetitions
//   "ROW: FIGURE >= NUMBER x idle JOB (SOURCE)"      times what the job alone leaves the GPU idle
//
// METRIC is mean, p50, p99, per_s, tbt_p99, ttft_p90 or ttft_p99. OTHER may be `static`: the thread
// percentage or split that gives the job most, of those that keep the first latency job's mean as
// low as the row does.
struct Expectation {
  std::string text;  // as written
  std::string row, figure;
  std::string over;  // empty: the figure itself
  bool at_most = true;
  double bound = 0;
  std::string idle_of;  // empty: the bound as it is
  std::string source;   // who wants it
};

struct Scenario {
  std::string name;           // the file's stem unless given
  std::string about;          // one sentence
  std::string file;           // where it came from, for messages and relative paths
  std::string text;           // as read, of a pair what it is of: kept in results
  uint32_t repetitions = 5;   // each: every row once, in a new order
  double block_s = 2;         // length of one block
  double settle_s = 0;        // before each, of a row with a policy: it may learn
  bool apart = false;         // the rows without MPS first, then the others: half of the processes
  bool held_out = false;      // policies are made without a look at it
  uint32_t p99_requests = 0;  // a p99 of fewer is not told, nor a p90 of a tenth of that
  std::string profiles;       // the directory of profiles that heddled reads; empty: none
  std::vector<PolicyRow> policies;
  std::vector<Baseline> baselines;
  std::optional<uint64_t> seed;
  std::vector<Expectation> expect;
  std::vector<Job> jobs;  // at least one; names are unique
};

// Reads and checks a file; `pair` names one of those that it has. The error is one line:
// FILE:LINE: what is wrong, and the remedy.
Result<Scenario> load(const std::string& path, const std::string& pair = "");
Result<Scenario> parse(std::string text, const std::string& file, const std::string& pair = "");

// The items of `policies` and `baselines`, as --policies and --baselines have them too. The error
// names the item and the remedy; `jobs` is what "split:" and "mps:" must fit.
Result<PolicyRow> parse_policy(std::string_view text);
Result<Baseline> parse_baseline(std::string_view text, const std::vector<Job>& jobs);
Result<Arrivals> parse_arrivals(std::string_view text);
// An item of `expect`. Whether there is such a row or job is seen when it is judged.
Result<Expectation> parse_expectation(std::string_view text);

// The launches of one iteration of a job that has block_us, in their order. Their durations are
// drawn from `kernel` once, by a fixed seed, and scaled to its mean, so that an iteration is as
// long as written: us / block_us waves of kSimWave blocks each; below one wave the GPU is not
// filled.
struct SimLaunch {
  double us = 0;
  uint32_t blocks = 1;
};
std::vector<SimLaunch> launches_of(const SimJob& job);

// A path that the scenario names: absolute, or beside the scenario's file, or else as it is.
std::string resolve(const Scenario& scenario, const std::string& path);

// When the requests of a job come that has them recorded: seconds, ascending, not all 0.
Result<std::vector<double>> recorded_arrivals(const Scenario& scenario, const Job& job);

}  // namespace heddle::scenario
