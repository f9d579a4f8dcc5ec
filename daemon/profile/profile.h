// A task's profile: what the measurement stage found of its kernels on one GPU model and driver
// (FIKIT section 3.2: Task Key -> SK, SG). The file format is daemon/profile/README.md; here are
// its reader, its writer, and what can be done with profiles. No clock; files in load() and save()
// alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/scheduler.h"
#include "daemon/model/interference.h"

namespace heddle::profiles {

inline constexpr int kVersion = 4;
inline constexpr size_t kKernelsMax = 1 << 16;

// The task beside one microbenchmark (bench/workloads/interference.cu), at one level of pressure.
struct Neighbour {
  core::Channel channel = core::Channel::kSlots;
  std::string spec;      // of the microbenchmark
  double use = 0;        // of the channel, by the microbenchmark alone; 0: unknown
  double slowdown = 1;   // of the task
  double stretched = 1;  // and of the microbenchmark, by the task; 0: unknown
};

// What a task does to others and they to it, where nobody measured its kernels' metrics:
// `heddle profile probe`.
struct Probe {
  double busy = 0;  // part of the time that it is on the GPU, alone
  std::vector<Neighbour> beside;
  ipc::KernelMetrics metrics{};  // of a kernel of it, by what it did to its neighbours
};
inline constexpr size_t kNeighboursMax = 256;

// From what was measured, the metrics: of each channel the largest use that a neighbour tells of,
// over `busy`, since only kernels on the GPU use any.
ipc::KernelMetrics probed_metrics(const Probe& probe, const core::DeviceModel& device);

struct Profile {
  std::string gpu;      // as the driver names it, "NVIDIA H200"
  std::string driver;   // its version, "580.159.04"
  std::string label;    // of the client that was measured, may be empty
  std::string command;  // its executable and arguments; with the label the task key is made of them
  std::string measured;    // when: date and time, ISO 8601, UTC; may be empty
  core::TaskProfile task;  // kernels by ascending name, then ID; no ID twice
  // Whose programs were measured, and so have a use for it; none: an administrator's file, for all.
  std::optional<uint32_t> uid;
  std::optional<Probe> probe;

  std::string file;  // where it was read from, and the lines of what others may not have:
  uint32_t gpu_line = 0, driver_line = 0;
};

// Any text is a profile, or an error "FILE:LINE: what; remedy". An unknown key is an error.
Result<Profile> parse(std::string_view text, const std::string& file);
Result<Profile> load(const std::string& path);

// The text that parse() takes, one line a fact, for diffs. What is no UTF-8 in names becomes '?'.
std::string format(const Profile& profile);
// As replace_file() does, readable by the owner alone: command lines may hold secrets.
Result<void> save(const std::string& path, const Profile& profile);

// "LABEL-KEY.toml", or the executable's name where there is no label; KEY tells GPUs,
// drivers and users apart as well.
std::string file_name(const Profile& profile);

// Its task for the core: kernels of which no use of a channel was measured have the probe's.
core::TaskProfile told(const Profile& profile);
// The reverse: kernels with just the probe's metrics have none, and `profile` has the probe.
void take_probe(Profile& profile, const Probe& probe);

// An error that names file and line if the profile is of another GPU or driver.
Result<void> fits(const Profile& profile, const std::string& gpu, const std::string& driver);

// Adds what `into` lacks of `from`: kernels, and of those that it has durations in contexts, if
// those of `from` are of more samples. True if there was anything. `from` is not moved.
bool add_kernels(core::TaskProfile& into, const core::TaskProfile& from);

// Puts the mean durations of `on` (a run on `groups` groups; 0: on all) into the curves of `into`.
// How many kernels had one.
size_t add_to_curve(core::TaskProfile& into, const core::TaskProfile& on, core::GroupCount groups);

// Both of one task, user, GPU and driver, or an error. Of a kernel that both have, each
// distribution is the one of more samples: quantiles of a union cannot be had from quantiles.
Result<Profile> merge(const Profile& a, const Profile& b);

struct Difference {
  uint64_t kernel_id = 0;
  std::string name;
  std::string what;  // "duration", "gap_launching", "gap_synchronized", "only in A", "only in B"
  double a_us = 0, b_us = 0;  // the means
};
// Kernels that only one has, and means further apart than `within` of the larger one and than
// `least_us`, both shares and µs from 0. Largest difference first.
std::vector<Difference> diff(const Profile& a, const Profile& b, double within, double least_us);

// Removes kernels with fewer than `samples` of their duration; how many. One that nobody timed, for
// it runs inside graphs only, stays for its metrics.
size_t prune(Profile& profile, uint32_t samples);

// What `heddle profile probe` measures a program against, and what follows from it: how much slower
// it and each microbenchmark make the other (SoCC 2025, section 4;
// bench/workloads/interference.cu).

// What one level of pressure is: a channel, and a specification of interference.cu.
struct Pressure {
  core::Channel channel;
  std::string spec;
};
// Two levels of each channel, of `channels` alone if it names any, weaker first. `unknown`: a name
// of no channel.
std::vector<Pressure> pressures(const std::string& channels, std::string& unknown);

// What was measured at one level: rates are the program's launches a second, pressures the
// microbenchmark's, in its own unit.
struct Level {
  Pressure of;
  double held_alone = 0, held_beside = 0;
  double rate_before = 0, rate_beside = 0, rate_after = 0;
};
// In parts of the most that a microbenchmark of the channel reached alone; of those whose peak is
// known (issue, fp64) in parts of that.
std::vector<Neighbour> neighbours(const std::vector<Level>& levels);

}  // namespace heddle::profiles
