// What the jobs of a run meet: an MPS server, a simulated GPU, heddled. Each is private to the run,
// in its folder, so that the host's own are left as found; each ends with its object.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/runner/process.h"

namespace heddle::bench {

using Json = nlohmann::ordered_json;

// A physical core for each job and one for the daemon, alike in every row: a thread that spins
// slows whoever shares its core by half, which would be measured as a difference between rows.
// Empty where the host has too few.
struct Placement {
  std::vector<std::vector<int>> jobs;
  std::vector<int> daemon;

  const std::vector<int>& job(size_t index) const;
};
Placement place(size_t jobs);

// The Lua of the baseline `exclusive`: one process at a time, in turns.
const char* turns_policy();

// The install tree that this executable is part of, with a trailing part such as "bin/heddle".
std::string installed(const std::string& part);

// How processes reach the GPU: with or without MPS, real or simulated. `environment()` is what
// every process on that path gets; starting a second path beside it changes nothing for the first.
class GpuPath {
 public:
  GpuPath(Loop& loop, std::string folder, bool mps, bool simulated);
  ~GpuPath();
  GpuPath(const GpuPath&) = delete;
  GpuPath& operator=(const GpuPath&) = delete;

  const Environment& environment() const { return environment_; }
  bool mps() const { return mps_; }
  bool simulated() const { return gpu_ != nullptr; }

 private:
  void start_mps();
  void stop_mps();

  Loop& loop_;
  const std::string folder_;
  const bool mps_;
  Environment environment_;
  std::unique_ptr<Process> gpu_;  // the simulated one
  bool server_ = false;           // MPS runs
};

// heddled with a generated configuration, on one path to the GPU; `config` is further lines of it,
// "gpu.idle_us = 500\n". Policies change live, through the `heddle` command. All calls throw
// HostError.
class Daemon {
 public:
  struct Given {
    std::string config;    // its lines
    std::string policy;    // the first that it runs, if `config` names it; a name or a path
    std::string profiles;  // a directory of which it has a copy; empty: it knows no program
    std::string rules;     // its lines, behind the others
  };
  Daemon(Loop& loop, const std::string& folder, const GpuPath& path, const Given& given,
         const std::vector<int>& cpus);
  ~Daemon();

  // Exactly these parameters: what the daemon keeps from an earlier row of the same policy goes
  // back to the file's defaults. `policy` is a name, or a path to a Lua file.
  void use(const std::string& policy, const std::map<std::string, std::string>& params);
  Json status();
  // What the scheduler sees and decides in the next `seconds`, into a trace; returns when it ended.
  void record(const std::string& file, double seconds);
  // Another one takes its place, and has learned nothing; returns when its clients are attached.
  void restart();
  bool running() const { return process_->running(); }
  int pid() const { return process_->pid(); }
  // In front of a job's command. `sms` as `heddle run --sms` takes it, "": all.
  std::vector<std::string> prefix(int priority, const std::string& label,
                                  const std::string& sms) const;
  const Environment& environment() const { return environment_; }

 private:
  void start();
  std::string named(const std::string& policy) const;
  std::string command(std::vector<std::string> arguments);

  Loop& loop_;
  const std::string folder_;
  const bool simulated_;
  const std::vector<int> cpus_;
  Environment environment_;
  std::unique_ptr<Process> process_;
  std::optional<std::pair<std::string, std::map<std::string, std::string>>> loaded_;
  std::map<std::string, std::string> defaults_;  // of the loaded policy's parameters
};

// "NVIDIA H200" and its driver's version; nothing without a GPU.
struct Gpu {
  std::string name, driver;
};
std::optional<Gpu> find_gpu(Loop& loop);
// What heddle-stop-probe says of it, while nobody is on it.
Json ask_stops(Loop& loop);

}  // namespace heddle::bench
