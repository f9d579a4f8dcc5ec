// From raw blocks to the field's figures. Every figure comes with its number of samples and a 95 %
// interval; every comparison is taken within a repetition, because launch-bound programs move by
// 15-30 % with the host from minute to minute. Deterministic: the bootstrap draws from a fixed
// seed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/runner/job.h"
#include "bench/runner/rows.h"
#include "bench/runner/statistics.h"

namespace heddle::bench {

// One row measured once.
struct Block {
  uint32_t repetition = 0;
  uint32_t order = 0;  // its place in the repetition
  std::string row;
  std::map<std::string, Samples> jobs;          // by name
  double daemon_cpu = -1;                       // cores that heddled kept busy; -1: unknown
  Json counters;                                // what the daemon's grew by ...
  double counted_s = 0;                         // ... in this time, lead and tail included
  std::map<std::string, double> shim_cpu = {};  // cores that the shim's thread of a job kept busy
  double energy_j = -1;                         // of the whole GPU; -1: unknown
  double added_us_max = 0;  // what it states that others may add to a gap; 0: nothing, or unbounded
  double exceeded_us_max = 0;  // by how much it saw that exceeded at most, so far, if it did here
  Json exceeded_by = nullptr;  // by which launch, as heddle status has it
  Json said = nullptr;         // its verdicts and trace lines so far, as heddle status has them
};
Json to_json(const Block& block);
// A second. A job that began nothing in a block has no time, but a rate: starving is not hidden.
double rate(const Samples& samples);
Block block_from(const Json& json);

// Figures of every row, and each policy's ratios against its rival in the same repetitions:
//   {"figures": {ROW: {...}}, "ratios": [...]}
// Definitions, over a repetition: mean_over_self and p99_over_self set a job against the row in
// which the same process of it has the GPU to itself, for two processes of one program take
// different times on a host whose memory and processors are not all alike; promise_kept is the part
// of the repetitions in which a job's mean is at most slowdown_max of the same process's alone, or
// else of the bare one's, and its p99 at most slowdown_p99_max of that one's p99;
// throughput_over_alone is the sum of the jobs' rates over alone, and worst_p95_over_alone the
// worst of their 95th percentiles (KRISP, section 6); energy_over_alone is the row's energy ÷ what
// the same iterations take alone, one job after the other; normalized progress of a job is its mean
// JCT alone ÷ its mean JCT in the row; STP is the sum of that, ANTT the mean of its inverse
// (Eyerman and Eeckhout, IEEE Micro 2008); makespan is how long the row takes for what each job
// does alone in a block. In a scenario with p99_requests quantiles over alone are of all
// repetitions together, and {"few": N} stands for one of too few requests.
Json summarize(const scenario::Scenario& scenario, const std::vector<Row>& rows,
               const std::vector<Block>& blocks);

// A job's metric, as scenario::Expectation has them, in a row over that in another: one ratio for
// each repetition that has both, none if there is no such row, job or metric.
struct Paired {
  std::string row, over, job, metric;
};
Repeated paired(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                const std::vector<Block>& blocks, const Paired& wanted);

// How much of its time each job alone leaves the GPU idle: 1 - kernel time ÷ wall time. `traced`:
// in the profiler's run (`profiles`: the jobs' answers by name), of closed loops; `untraced` sets
// the same kernel time against bare blocks, without the tracer's slowdown.
Json idle_fractions(const scenario::Scenario& scenario, const std::vector<Block>& blocks,
                    const Json& profiles);
// Of a job in those: traced where there is such, for best effort is judged by it.
double idle_of(const Json& job);

}  // namespace heddle::bench
