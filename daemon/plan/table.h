// Measured tables of jobs: how fast each runs in a MIG slice, alone there and beside copies of
// itself; or on a share of the SMs, alone and beside another job. The predictor learns from them,
// and the job simulator takes every true pace from them.
//
// A pace is a job's rate over its rate alone on the whole GPU.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::plan {

inline constexpr std::array<uint32_t, 5> kSliceSizes = {1, 2, 3, 4, 7};  // compute slices
inline constexpr size_t kProcessesMost = 5;
inline constexpr double kNotMeasured = -1;

// Parts of the whole GPU that a job uses while it runs alone on it.
struct UseOfGpu {
  double sm = kNotMeasured, bandwidth = kNotMeasured, l2 = kNotMeasured;
};

struct JobCurve {
  std::string model;
  uint32_t batch = 0;
  double alone_ms = 0;    // of one iteration on the whole GPU
  double memory_gib = 0;  // of one process; parvagpu: an upper bound, by what fitted where
  UseOfGpu use;
  // Pace alone on a share of the SMs, where that was measured.
  std::map<double, double> shares;
  // pace[size][n - 1]: of each of n processes in a slice of kSliceSizes[size].
  std::array<std::array<double, kProcessesMost>, kSliceSizes.size()> pace;

  JobCurve() {
    for (auto& row : pace) row.fill(kNotMeasured);
  }
  std::string name() const { return model + "/" + std::to_string(batch); }
  // Runs in such a slice at all.
  bool fits(size_t size) const { return pace[size][0] > 0; }
  // Alone on a share of the SMs: between the nearest two that were measured. Without any it is as
  // slow as the share is smaller than its use of SMs.
  double alone_at(double share) const;
};

// One job on a share of the SMs beside another on its share. The one's SMs begin at the first SM,
// the other's end at the last one: they have in common what both shares are above 1.
struct Beside {
  size_t job = 0, neighbour = 0;  // of JobTable::curves
  double share = 1, neighbour_share = 1;
  double pace = 0;
};

// Between the nearest two of `points` (by key), level beyond them.
double between(const std::map<double, double>& points, double at);

struct JobTable {
  std::string source;  // for the label of every figure that is made of it
  std::string gpu;     // plan::gpu_model
  std::vector<JobCurve> curves;
  std::vector<Beside> beside;  // of `heddle-bench collect`

  const JobCurve* find(const std::string& name) const;
};

size_t size_index(uint32_t compute);  // of kSliceSizes; the largest that is not above it

// A directory with MODEL.csv files as ParvaGPU's prof_data has them. Rows of zeros did not fit. A
// row that repeats the one above it to the last digit is a copy, and left out. SM use is the rate
// over the model's best rate at any batch, alone on the whole GPU: the data has no other.
Result<JobTable> read_parvagpu(const std::string& directory);

// A directory with slices.csv and whole_gpu.csv, of MISO's logs. One process in a slice, no
// company.
Result<JobTable> read_miso(const std::string& directory);

// A directory with jobs.csv and samples.csv of `heddle-bench collect`. The use of SMs is the least
// share at which a job keeps kFullPace of its pace. Nobody measured MIG slices: one of k sevenths
// counts as that share.
inline constexpr double kFullPace = 0.95;
Result<JobTable> read_collected(const std::string& directory);

// By what the directory holds.
Result<JobTable> read_jobs(const std::string& directory);

}  // namespace heddle::plan
