#include "daemon/plan/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <numeric>

namespace heddle::plan {
namespace {

constexpr int kSteps = 10;  // ML = [10, 20, ..., 100] percent

double step_up(double share) {
  return std::clamp(std::ceil(share * kSteps - 1e-9), 1.0, double{kSteps}) / kSteps;
}

double alone(const Estimate& estimate, const SliceProfile& slice, size_t job, double share) {
  const Member member{job, share};
  return estimate(slice, {&member, 1});
}

// "jobs[i].sm" (line 31) is defined nowhere. MMK's prose gives "optimal SM resources": here the SMs
// that it uses alone, of this slice; or ours, the right size.
double wanted(const PlannedJob& job, size_t index, const SliceProfile& slice,
              const Estimate& estimate, Method method) {
  const double part = static_cast<double>(slice.compute) / double{kComputeSlices};
  if (method == Method::kMmk) return step_up(job.use.sm < 0 ? 1 : job.use.sm / part);
  const double whole = alone(estimate, slice, index, 1);
  for (int step = 1; step < kSteps; ++step) {
    const double share = double(step) / kSteps;
    if (alone(estimate, slice, index, share) >= kRightSizePace * whole) return share;
  }
  return 1;
}

// Fills in the paces. Line 33 adds up stp(jobs[i]) where line 14 reads tp, and line 15 both: here
// all are one sum of paces.
double predict(std::vector<Assigned>& shares, const SliceProfile& slice, const Estimate& estimate) {
  std::vector<Member> company;
  for (const Assigned& a : shares) company.push_back({a.job, a.share});
  double sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    std::swap(company[0], company[i]);
    shares[i].pace = estimate(slice, company);
    std::swap(company[0], company[i]);
    sum += shares[i].pace;
  }
  return sum;
}

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char line[160];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

// The slice where one more job adds most to the sum of the predicted paces; as many as there are if
// none has the memory.
size_t best_slice(std::span<const PlannedJob> jobs, size_t job, const Layout& layout,
                  const std::vector<std::vector<size_t>>& members, const std::vector<double>& used,
                  const Estimate& estimate) {
  size_t best = layout.size();
  double most = -1e9;
  for (size_t s = 0; s < layout.size(); ++s) {
    if (used[s] + jobs[job].memory_gib > layout[s].profile->memory_gib) continue;
    const auto sum = [&](const std::vector<size_t>& of) {
      double paces = 0;
      for (const Assigned& a : share_out(jobs, of, layout[s], s, estimate, Method::kOurs)) {
        paces += a.pace;
      }
      return paces;
    };
    std::vector<size_t> with = members[s];
    with.push_back(job);
    const double more = sum(with) - sum(members[s]);
    if (more <= most + 1e-9) continue;
    most = more;
    best = s;
  }
  return best;
}

bool any_online(std::span<const PlannedJob> jobs) {
  return std::any_of(jobs.begin(), jobs.end(), [](const PlannedJob& j) { return j.online; });
}

}  // namespace

std::vector<Assigned> share_out(std::span<const PlannedJob> jobs, std::span<const size_t> members,
                                const Slice& slice, size_t slice_index, const Estimate& estimate,
                                Method method) {
  const SliceProfile& profile = *slice.profile;
  std::vector<size_t> order(members.begin(), members.end());
  std::vector<double> want(jobs.size()), worth(jobs.size());
  for (size_t job : members) {
    want[job] = wanted(jobs[job], job, profile, estimate, method);
    worth[job] = alone(estimate, profile, job, 1) / want[job];
  }
  // Line 25: throughput ÷ SM use, descending. Online jobs come first: section III-B updates the
  // shares of offline jobs alone, and Fig. 9 leaves its online job at 100 %.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (jobs[a].online != jobs[b].online) return jobs[a].online;
    return worth[a] > worth[b];
  });
  double remaining = 1;
  std::vector<Assigned> shares;
  for (size_t job : order) {
    // Lines 28 to 30 end at rsm < 0 and leave the rest of the jobs without a share, though the
    // loop over partitions (line 7) has already put them there. They get the least there is.
    double share = std::clamp(want[job], 1.0 / kSteps, std::max(remaining, 1.0 / kSteps));
    remaining -= share;
    if (jobs[job].online) share = 1;
    shares.push_back({job, slice_index, share, 0});
  }
  const double sum = predict(shares, profile, estimate);
  if (method == Method::kOurs) {
    // A limit that gains nothing only keeps a job off SMs that nobody uses.
    std::vector<Assigned> unlimited = shares;
    for (Assigned& a : unlimited) a.share = 1;
    if (predict(unlimited, profile, estimate) >= sum) shares = unlimited;
  }
  std::sort(shares.begin(), shares.end(), [](auto& a, auto& b) { return a.job < b.job; });
  return shares;
}

Plan pack(std::span<const PlannedJob> jobs, const Layout& layout, const Estimate& estimate,
          Method method) {
  Plan plan;
  plan.layout = layout;
  // Line 1 says neither way. Descending, as first fit packs best so. Larger slices come first.
  std::vector<size_t> order(jobs.size()), slices(layout.size());
  std::iota(order.begin(), order.end(), 0);
  std::iota(slices.begin(), slices.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return jobs[a].memory_gib > jobs[b].memory_gib; });
  std::stable_sort(slices.begin(), slices.end(), [&](size_t a, size_t b) {
    return layout[a].profile->compute > layout[b].profile->compute;
  });
  std::vector<double> used(layout.size());
  std::vector<std::vector<size_t>> members(layout.size());
  // Lines 3 to 10: the loops never advance i and j, and put a job into every slice that it fits.
  for (size_t job : order) {
    const auto first = std::find_if(slices.begin(), slices.end(), [&](size_t s) {
      return used[s] + jobs[job].memory_gib <= layout[s].profile->memory_gib;
    });
    const size_t slice = first == slices.end() ? layout.size()
                         : method == Method::kMmk
                             ? *first
                             : best_slice(jobs, job, layout, members, used, estimate);
    if (slice == layout.size()) {
      plan.waiting.push_back(job);
      continue;
    }
    used[slice] += jobs[job].memory_gib;
    members[slice].push_back(job);
  }
  for (size_t s = 0; s < layout.size(); ++s) {
    std::sort(members[s].begin(), members[s].end());
    for (const Assigned& a : share_out(jobs, members[s], layout[s], s, estimate, method)) {
      plan.throughput += a.pace;
      plan.jobs.push_back(a);
    }
  }
  std::sort(plan.waiting.begin(), plan.waiting.end());
  return plan;
}

Plan plan(std::span<const PlannedJob> jobs, const GpuModel& gpu, const Estimate& estimate,
          const PlanOptions& options) {
  // Line 2 initializes pc with what there is; on an empty GPU, with the whole of it.
  const bool online = any_online(jobs);
  const Layout whole = {{&gpu.profiles.back(), 0}};
  Plan best = pack(jobs, options.current.value_or(whole), estimate, options.method);
  if (!options.repartition) {
    best.why.push_back("layout " + to_string(best.layout) + " stays: no other was allowed");
  } else if (online && options.current) {
    best.why.push_back("layout " + to_string(best.layout) + " stays: an online job runs");
  } else {
    // Lines 12 to 21. The list of every layout is walked with k, which never advances; line 14
    // indexes dict_job by slices that no job was put into: each layout is packed anew.
    const double before = best.throughput;
    const size_t waiting = best.waiting.size();
    size_t tried = 0;
    for (const Layout& layout : distinct(layouts(gpu))) {
      Plan candidate = pack(jobs, layout, estimate, options.method);
      ++tried;
      const bool more = candidate.throughput > best.throughput + 1e-9;
      const size_t left = candidate.waiting.size();
      if (left < best.waiting.size() || (left == best.waiting.size() && more)) {
        best = std::move(candidate);
      }
    }
    best.why.push_back("layout " + to_string(best.layout) + ": the best of " +
                       std::to_string(tried) +
                       text(", predicted throughput %.2f against %.2f", best.throughput, before) +
                       (options.current ? " in the current one" : " of the whole GPU") +
                       (best.waiting.size() < waiting ? ", and fewer jobs wait" : ""));
  }
  for (const Assigned& a : best.jobs) {
    const SliceProfile& slice = *best.layout[a.slice].profile;
    best.why.push_back(
        jobs[a.job].name + ": slice " + std::string(slice.name) +
        text(" has %.1f GiB, it needs %.1f", slice.memory_gib, jobs[a.job].memory_gib) +
        text("; share %.0f %%, predicted at %.2f of its pace alone", 100 * a.share, a.pace) +
        (jobs[a.job].online ? "; online: not limited" : ""));
  }
  for (size_t job : best.waiting) {
    best.why.push_back(jobs[job].name +
                       text(": waits, no slice has %.1f GiB free", jobs[job].memory_gib));
  }
  return best;
}

}  // namespace heddle::plan
