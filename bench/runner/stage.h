// The processes of a run: one path to the GPU for each mode in use, a daemon there for each
// configuration, and every job in every way of being started that some row needs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/runner/job.h"
#include "bench/runner/rows.h"

namespace heddle::bench {

class Stage {
 public:
  // Starts servers, daemons and all jobs; does not wait for the jobs. What does not start is told
  // by problems() and costs its rows.
  Stage(Loop& loop, const std::string& folder, const scenario::Scenario& scenario,
        const std::vector<Row>& rows, bool simulated, uint64_t seed);
  ~Stage();  // ends all of it, whatever state it is in
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::vector<std::string>& problems() const { return problems_; }
  std::map<Variant, std::unique_ptr<Job>>& jobs() { return jobs_; }
  // The row's, in its order; empty if one of them, or the daemon it needs, is gone.
  std::vector<Job*> jobs_of(const Row& row);
  Daemon* daemon_of(const Row& row);  // nullptr: none takes part
  void give_up_daemon(const Row& row);
  // All daemons, each known to its jobs again when this returns; what they had learned is gone.
  void restart_daemons();

 private:
  // Null, or broken: it did not start, or has died.
  template <class T>
  struct Part {
    std::unique_ptr<T> process;
    bool broken = false;
  };
  struct Path {
    Part<GpuPath> gpu;
    std::map<std::string, Part<Daemon>> daemons;  // by configuration
  };

  void start(const Row& row, const std::string& folder, uint64_t seed);
  void start(const Variant& variant, const std::string& folder, uint64_t seed);

  Loop& loop_;
  const scenario::Scenario& scenario_;
  const bool simulated_;
  const Placement placement_;
  std::map<bool, Path> paths_;  // by mps
  std::map<Variant, std::unique_ptr<Job>> jobs_;
  std::vector<std::string> problems_;
};

// What a job runs: `job` is an index, and counts on from the seed.
std::vector<std::string> command_of(const scenario::Scenario& scenario, size_t job, bool simulated,
                                    uint64_t seed);

// Refuses, by file and line, a job that cannot be had on this device.
void check_jobs(const scenario::Scenario& scenario, bool simulated);

}  // namespace heddle::bench
