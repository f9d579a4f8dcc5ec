// MMK's hybrid partition scheduler (Algorithm 1, section III-B): which job of one GPU goes into
// which MIG slice, and at which MPS share. A pure function of the jobs and of who predicts them.
//
// Algorithm 1 cannot run as it is printed. partition.cc follows the prose, and names each such
// place by its line.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/plan/mig.h"
#include "daemon/plan/table.h"

namespace heddle::plan {

struct PlannedJob {
  std::string name;
  bool online = false;
  double memory_gib = 0;
  double alone_ms = 0;  // of one iteration
  UseOfGpu use;         // alone on the whole GPU
};

// A job (a place in the list) with so much of its slice's SMs.
struct Member {
  size_t job = 0;
  double share = 1;  // 0.1 to 1
};
// The pace of the first member beside the others, all in one slice.
using Estimate = std::function<double(const SliceProfile& slice, std::span<const Member> members)>;

struct Assigned {
  size_t job = 0;
  size_t slice = 0;  // of the layout
  double share = 1;  // of the slice's SMs: 0.1 to 1
  double pace = 0;   // predicted
};

struct Plan {
  Layout layout;
  std::vector<Assigned> jobs;    // by slice, then in the order of the list
  std::vector<size_t> waiting;   // no slice has the memory
  double throughput = 0;         // the sum of the predicted paces
  std::vector<std::string> why;  // one sentence a decision
};

// MMK: a job goes into the first slice with the memory, and is given what SMs it uses. Ours: into
// the slice where the sum of the predicted paces grows most, with its right size: the least share
// at which it is predicted to keep 95 % of its pace; but nobody is limited where that gains
// nothing.
enum class Method : uint8_t { kMmk, kOurs };
inline constexpr double kRightSizePace = 0.95;

struct PlanOptions {
  Method method = Method::kMmk;
  bool repartition = true;        // other layouts may be chosen at all
  std::optional<Layout> current;  // what the GPU has; none: it is empty, and any may be chosen
};

// Shares of the jobs of one slice, and their paces (MPSConfig).
std::vector<Assigned> share_out(std::span<const PlannedJob> jobs, std::span<const size_t> members,
                                const Slice& slice, size_t slice_index, const Estimate& estimate,
                                Method method);

// Into the slices of this layout, the job of most memory first.
Plan pack(std::span<const PlannedJob> jobs, const Layout& layout, const Estimate& estimate,
          Method method);

// The whole algorithm. A layout other than the current one is chosen only if no job is online.
Plan plan(std::span<const PlannedJob> jobs, const GpuModel& gpu, const Estimate& estimate,
          const PlanOptions& options);

}  // namespace heddle::plan
