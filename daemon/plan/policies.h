// Job policies of the simulator: MMK's baselines as its section V describes them, MMK, and ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/plan/cluster.h"
#include "daemon/plan/partition.h"

namespace heddle::plan {

// default  every job at once on the whole of the GPU with fewest jobs, time-sliced
// mps      the same under MPS, no share limited
// miso     one job a slice; the layout of best predicted throughput for each set of jobs; else it
// waits miger    several jobs a slice under MPS, shares tuned; who needs a slice's SMs has it alone
// mmk      Algorithm 1 (partition.h), launches of online jobs first
// mmk-7g, mmk-no-ks   MMK without MIG and shares, and without the kernel scheduler (its Fig. 8)
// heddle   MMK's planner without MIG: each job where its predicted interference is least, right
//          sizes where they gain, SM sets switched without restarts, 32 of the queue are tried
// heddle-fcfs   the same, and only the head of the queue is tried, as in all others
// pairs-first, pairs-random, pairs-estimate   at most two jobs a GPU, under MPS: who shares with
// whom nullptr: no such policy. The judge outlives it.
std::unique_ptr<JobPolicy> job_policy(const std::string& name, Judge& judge, uint64_t seed);
const std::vector<std::string>& job_policy_names();

}  // namespace heddle::plan
