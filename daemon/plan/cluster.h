// The job simulator: many GPUs, jobs that come and go, and a policy that places them. Virtual time,
// the same by seed. A job's true pace comes from measured tables, never from the judge
// that a policy asks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/plan/mig.h"
#include "daemon/plan/table.h"

namespace heddle::plan {

// How fast jobs really are in the job simulator: from measured tables alone, never from what a
// planner predicts.
//
// Measured: a job alone in a slice, and beside copies of itself. Not measured by anybody: two
// different models together, and an MPS share of a slice. Two rules stand in for those.
// - A job beside others is as slow as beside so many copies of itself as want the same part of the
//   slice. What part a job wants follows from its own curve: a slice that n copies just fill.
// - A share of a slice is worth what a slice of so many SMs is worth.
// The pace of each of `n` copies, n >= 1 and any number between, in a slice of that many compute
// slices. 0 if the job does not fit. Beyond the most that was measured, n more take n times as
// long.
double pace_among(const JobCurve& job, uint32_t compute, double n);

// Alone with `share` of the SMs of such a slice.
double pace_of_share(const JobCurve& job, uint32_t compute, double share);

// The part of such a slice that one process of the job wants: 1 over how many it has room for.
double wants(const JobCurve& job, uint32_t compute);

enum class Sharing : uint8_t {
  kTimeSliced,  // n processes take turns: each 1/n of the time, whatever it wants
  kMps,         // all at once
  kPriority,    // all at once, launches of online jobs first (MMK's kernel scheduler)
};

struct Tenant {
  const JobCurve* job;
  bool online;
  double share;  // of the slice's SMs
};

// What offline launches get at least, of the slice, beside online ones that fill it: they go once
// they have waited long enough (MMK, III-C). Ours; the paper prints no such figure.
inline constexpr double kOfflineLeast = 0.05;

// The pace of tenants[which], all in one slice.
double true_pace(std::span<const Tenant> tenants, size_t which, uint32_t compute, Sharing sharing);

struct SimJob {
  const JobCurve* job = nullptr;
  bool online = false;
  double arrives_s = 0;
  double work_s = 0;  // alone on a whole GPU
};

struct TraceOptions {
  uint32_t online = 800, offline = 400, gpus = 8;
  double interval_s = 40;             // mean between arrivals for each GPU (MMK: Poisson, 40 s)
  double least_s = 20, most_s = 200;  // lengths, log-uniform
  uint64_t seed = 1;
};
// Models and batches of MMK's Table III where the table has them; else any of the table.
std::vector<SimJob> make_trace(const JobTable& table, const TraceOptions& options);

// What moving jobs costs; ours, as MMK prints only parts of the lifetime (MIG 1.5 %, checkpoints
// 3.2 %).
struct Costs {
  double mig_s = 4;         // to make other slices: everything on the GPU stands still
  double checkpoint_s = 2;  // to restart a job with another share, or in another slice
};

struct Running {
  size_t job;    // of the trace
  size_t slice;  // of the GPU's layout
  double share;
  double left_s;          // of its work
  double paused_until_s;  // by a restart
  double pace;
};

struct GpuState {
  Layout layout;
  std::vector<Running> running;

  bool online(const std::vector<SimJob>& jobs) const;
  double free_gib(const std::vector<SimJob>& jobs, size_t slice) const;
};

class Cluster {
 public:
  Cluster(const std::vector<SimJob>& jobs, const GpuModel& gpu, uint32_t gpus, Costs costs)
      : jobs(jobs),
        model(gpu),
        gpus(gpus, GpuState{{{&gpu.profiles.back(), 0}}, {}}),
        costs(costs) {}

  void start(size_t job, size_t gpu, size_t slice, double share);  // of `waiting`
  // `live`: SM sets are switched while it runs. Else it is restarted.
  void set_share(size_t gpu, size_t job, double share, bool live);
  struct Move {
    size_t job, slice;
  };
  // All that runs there moves; jobs that are not named stay in the slice of their number.
  void repartition(size_t gpu, const Layout& layout, const std::vector<Move>& moves);

  const std::vector<SimJob>& jobs;
  const GpuModel& model;
  std::vector<GpuState> gpus;
  std::vector<size_t> waiting;  // by arrival
  double now_s = 0;
  double mig_s = 0, checkpoint_s = 0;  // job seconds lost to each

 private:
  friend struct Simulation;
  Costs costs;
  std::vector<double> started_s_ = std::vector<double>(jobs.size(), -1);
};

// The pace that a policy expects of tenants[which].
class Judge {
 public:
  virtual ~Judge() = default;
  virtual double pace(std::span<const Tenant> tenants, size_t which, uint32_t compute) = 0;
};

class JobPolicy {
 public:
  virtual ~JobPolicy() = default;
  virtual Sharing sharing() const = 0;
  // Called whenever a job has come or gone; `left` are the GPUs that one has left.
  virtual void schedule(Cluster& cluster, std::span<const size_t> left) = 0;
};

struct Outcome {
  double jct_s = 0, makespan_s = 0, queueing_s = 0, online_jct_s = 0, offline_jct_s = 0;
  double stp = 0;                    // work done a second and GPU, 1: a GPU's worth of jobs alone
  double antt = 0;                   // mean of JCT ÷ length alone
  std::vector<double> relative_jct;  // of each job, in order
  double mig_part = 0, checkpoint_part = 0;  // of the time that jobs ran
  double run_s = 0;                          // mean time from start to end
};

Outcome simulate(const std::vector<SimJob>& jobs, const GpuModel& gpu, uint32_t gpus, Costs costs,
                 JobPolicy& policy);

}  // namespace heddle::plan
