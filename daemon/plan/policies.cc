#include "daemon/plan/policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

PlannedJob planned(const SimJob& job) {
  return {job.job->name(), job.online, job.job->memory_gib, job.job->alone_ms, job.job->use};
}

// GPUs by how many jobs they have, the fewest first.
std::vector<size_t> by_load(const Cluster& c) {
  std::vector<size_t> order(c.gpus.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return c.gpus[a].running.size() < c.gpus[b].running.size();
  });
  return order;
}

bool has_room(const Cluster& c, size_t gpu, size_t slice, size_t job) {
  const SimJob& j = c.jobs[job];
  return j.job->fits(size_index(c.gpus[gpu].layout[slice].profile->compute)) &&
         c.gpus[gpu].free_gib(c.jobs, slice) + 1e-9 >= j.job->memory_gib;
}

// The sum of the predicted paces of who is in a slice, and of `extra` beside them.
double sum_in(Cluster& c, size_t gpu, size_t slice, Judge& judge, const Tenant* extra) {
  std::vector<Tenant> tenants;
  for (const Running& r : c.gpus[gpu].running) {
    if (r.slice == slice) tenants.push_back({c.jobs[r.job].job, c.jobs[r.job].online, r.share});
  }
  if (extra != nullptr) tenants.push_back(*extra);
  const uint32_t compute = c.gpus[gpu].layout[slice].profile->compute;
  double sum = 0;
  for (size_t i = 0; i < tenants.size(); ++i) sum += judge.pace(tenants, i, compute);
  return sum;
}

double gain(Cluster& c, size_t gpu, size_t slice, Judge& judge, const Tenant& tenant) {
  return sum_in(c, gpu, slice, judge, &tenant) - sum_in(c, gpu, slice, judge, nullptr);
}

// First come first served onto whole GPUs.
class WholeGpus : public JobPolicy {
 public:
  explicit WholeGpus(Sharing sharing) : sharing_(sharing) {}
  Sharing sharing() const override { return sharing_; }
  void schedule(Cluster& c, std::span<const size_t>) override {
    for (bool placed = true; placed && !c.waiting.empty();) {
      placed = false;
      for (size_t gpu : by_load(c)) {
        if (!has_room(c, gpu, 0, c.waiting.front())) continue;
        c.start(c.waiting.front(), gpu, 0, 1);
        placed = true;
        break;
      }
    }
  }

 private:
  Sharing sharing_;
};

class Pairs : public JobPolicy {
 public:
  enum class By : uint8_t { kFirst, kRandom, kEstimate };
  Pairs(By by, Judge& judge, uint64_t seed) : by_(by), judge_(judge), random_(seed) {}
  Sharing sharing() const override { return Sharing::kMps; }
  void schedule(Cluster& c, std::span<const size_t>) override {
    while (!c.waiting.empty()) {
      const size_t job = c.waiting.front();
      std::vector<size_t> fit;
      for (size_t gpu = 0; gpu < c.gpus.size(); ++gpu) {
        if (c.gpus[gpu].running.size() < 2 && has_room(c, gpu, 0, job)) fit.push_back(gpu);
      }
      if (fit.empty()) return;
      size_t best = by_ == By::kRandom ? fit[random_.below(fit.size())] : fit.front();
      if (by_ == By::kEstimate) {
        const Tenant tenant{c.jobs[job].job, c.jobs[job].online, 1};
        best = *std::max_element(fit.begin(), fit.end(), [&](size_t a, size_t b) {
          return gain(c, a, 0, judge_, tenant) < gain(c, b, 0, judge_, tenant);
        });
      }
      c.start(job, best, 0, 1);
    }
  }

 private:
  By by_;
  Judge& judge_;
  Random random_;
};

class Miso : public JobPolicy {
 public:
  explicit Miso(Judge& judge) : judge_(judge) {}
  Sharing sharing() const override { return Sharing::kMps; }  // nobody has company

  void schedule(Cluster& c, std::span<const size_t> left) override {
    refused_.resize(c.gpus.size(), kNobody);
    for (size_t gpu : left) {
      refused_[gpu] = kNobody;
      improve(c, gpu);
    }
    for (bool placed = true; placed && !c.waiting.empty();) {
      const size_t job = c.waiting.front();
      placed = false;
      for (size_t gpu : by_load(c)) {
        if (refused_[gpu] == job) continue;  // nothing has changed there
        placed = admit(c, gpu, job);
        refused_[gpu] = placed ? kNobody : job;
        if (placed) break;
      }
    }
  }

 private:
  struct Choice {
    double sum = -1;
    Layout layout;
    std::vector<size_t> slices;  // of each job
  };

  using Paces = std::vector<std::array<double, kComputeSlices + 1>>;  // job, compute slices

  Paces paces_of(const Cluster& c, const std::vector<size_t>& jobs) {
    Paces paces(jobs.size());
    for (size_t j = 0; j < jobs.size(); ++j) {
      const SimJob& job = c.jobs[jobs[j]];
      const Tenant tenant{job.job, job.online, 1};
      for (const SliceProfile& slice : c.model.profiles) {
        if (slice.wide) continue;
        const bool room = job.job->memory_gib <= slice.memory_gib + 1e-9;
        paces[j][slice.compute] = room ? judge_.pace({&tenant, 1}, 0, slice.compute) : 0;
      }
    }
    return paces;
  }

  // The best slice for each of up to seven jobs: over all subsets of them, slice by slice.
  static Choice best(const Paces& jobs, const Layout& layout) {
    const size_t subsets = size_t{1} << jobs.size();
    std::vector<double> sum(subsets, -1);
    sum[0] = 0;
    std::vector<std::vector<int>> took(layout.size(), std::vector<int>(subsets, -1));
    for (size_t s = 0; s < layout.size(); ++s) {
      std::vector<double> next = sum;
      for (size_t j = 0; j < jobs.size(); ++j) {
        const double pace = jobs[j][layout[s].profile->compute];
        if (pace <= 0) continue;
        for (size_t with = 0; with < subsets; ++with) {
          const size_t before = with & ~(size_t{1} << j);
          if (before == with || sum[before] < 0 || sum[before] + pace <= next[with]) continue;
          next[with] = sum[before] + pace;
          took[s][with] = static_cast<int>(j);
        }
      }
      sum = next;
    }
    Choice choice{sum[subsets - 1], layout, std::vector<size_t>(jobs.size())};
    if (choice.sum < 0) return choice;
    size_t with = subsets - 1;
    for (size_t s = layout.size(); s-- > 0;) {
      if (took[s][with] < 0) continue;
      choice.slices[static_cast<size_t>(took[s][with])] = s;
      with &= ~(size_t{1} << took[s][with]);
    }
    return choice;
  }

  Choice best_of_all(const Cluster& c, const std::vector<size_t>& jobs) {
    Choice best_choice;
    if (layouts_.empty()) layouts_ = distinct(layouts(c.model));
    const Paces paces = paces_of(c, jobs);
    for (const Layout& layout : layouts_) {
      if (layout.size() < jobs.size()) continue;
      Choice choice = best(paces, layout);
      if (choice.sum > best_choice.sum) best_choice = std::move(choice);
    }
    return best_choice;
  }

  static std::vector<size_t> jobs_on(const GpuState& g) {
    std::vector<size_t> jobs;
    for (const Running& r : g.running) jobs.push_back(r.job);
    return jobs;
  }

  void apply(Cluster& c, size_t gpu, const std::vector<size_t>& jobs, const Choice& choice) {
    std::vector<Cluster::Move> moves;
    for (size_t i = 0; i < jobs.size(); ++i) moves.push_back({jobs[i], choice.slices[i]});
    c.repartition(gpu, choice.layout, moves);
  }

  // A free slice of what there is, if making others would not gain 5 %.
  bool admit(Cluster& c, size_t gpu, size_t job) {
    GpuState& g = c.gpus[gpu];
    if (g.running.size() >= kComputeSlices) return false;
    std::vector<size_t> jobs = jobs_on(g);
    jobs.push_back(job);
    const Choice choice = best_of_all(c, jobs);
    if (choice.sum < 0) return false;
    const Tenant tenant{c.jobs[job].job, c.jobs[job].online, 1};
    double free = -1, now = 0;
    size_t slice = 0;
    for (size_t s = 0; s < g.layout.size(); ++s) {
      const bool empty = std::none_of(g.running.begin(), g.running.end(),
                                      [&](const Running& r) { return r.slice == s; });
      if (!empty) now += sum_in(c, gpu, s, judge_, nullptr);
      if (!empty || !has_room(c, gpu, s, job)) continue;
      const double pace = judge_.pace({&tenant, 1}, 0, g.layout[s].profile->compute);
      if (pace > free) {
        free = pace;
        slice = s;
      }
    }
    if (free > 0 && now + free >= 0.95 * choice.sum) {
      c.start(job, gpu, slice, 1);
      return true;
    }
    apply(c, gpu, jobs, choice);
    c.start(job, gpu, choice.slices.back(), 1);
    return true;
  }

  // After a job has gone; 10 % pay for the restarts.
  void improve(Cluster& c, size_t gpu) {
    GpuState& g = c.gpus[gpu];
    if (g.running.empty() || !c.waiting.empty()) return;  // the next one repartitions anyway
    double now = 0;
    for (size_t s = 0; s < g.layout.size(); ++s) now += sum_in(c, gpu, s, judge_, nullptr);
    const std::vector<size_t> jobs = jobs_on(g);
    const Choice choice = best_of_all(c, jobs);
    if (choice.sum > 1.1 * now) apply(c, gpu, jobs, choice);
  }

  static constexpr size_t kNobody = SIZE_MAX;
  Judge& judge_;
  std::vector<Layout> layouts_;
  std::vector<size_t> refused_;  // by GPU: who last found no slice there
};

// What packs several jobs into a slice: MIGER, MMK and ours differ in these.
struct Packing {
  Sharing sharing = Sharing::kPriority;
  bool mig = true;               // other layouts at all
  bool limits = true;            // shares of SMs
  bool online_stops_mig = true;  // no other layout while an online job runs
  double alone_from = 2;         // who uses so much of a slice's SMs has it alone
  Method method = Method::kMmk;
  bool least_interference = false;  // else first fit on the GPU with fewest jobs
  bool live = false;                // shares change without a restart
  size_t look_ahead = 1;            // how many of the queue may be tried, of who wait
};

class Packer : public JobPolicy {
 public:
  Packer(Packing how, Judge& judge) : how_(how), judge_(judge) {}
  Sharing sharing() const override { return how_.sharing; }

  void schedule(Cluster& c, std::span<const size_t> left) override {
    for (size_t gpu : left) {
      for (size_t s = 0; s < c.gpus[gpu].layout.size(); ++s) share(c, gpu, s);
    }
    for (size_t at = 0; at < c.waiting.size() && at < how_.look_ahead;) {
      const bool started =
          how_.least_interference ? start_best(c, c.waiting[at]) : start_first(c, c.waiting[at]);
      at = started ? 0 : at + 1;
    }
  }

 private:
  Estimate estimate(const Cluster& c, const std::vector<size_t>& jobs) {
    return [this, &c, jobs](const SliceProfile& slice, std::span<const Member> members) {
      std::vector<Tenant> tenants;
      for (const Member& m : members) {
        tenants.push_back({c.jobs[jobs[m.job]].job, c.jobs[jobs[m.job]].online, m.share});
      }
      return judge_.pace(tenants, 0, slice.compute);
    };
  }

  // The shares of who is in the slice. A restart costs more than a small step of a share is worth.
  void share(Cluster& c, size_t gpu, size_t slice) {
    if (!how_.limits) return;
    std::vector<size_t> jobs, members;
    std::vector<PlannedJob> list;
    for (const Running& r : c.gpus[gpu].running) {
      if (r.slice != slice) continue;
      members.push_back(jobs.size());
      jobs.push_back(r.job);
      list.push_back(planned(c.jobs[r.job]));
    }
    const auto shares =
        share_out(list, members, c.gpus[gpu].layout[slice], slice, estimate(c, jobs), how_.method);
    for (const Assigned& a : shares) {
      const size_t job = jobs[a.job];
      const auto running = std::find_if(c.gpus[gpu].running.begin(), c.gpus[gpu].running.end(),
                                        [&](const Running& r) { return r.job == job; });
      const bool alone = members.size() == 1;  // nobody to leave SMs to
      const double to = alone ? 1 : a.share;
      if (how_.live || std::abs(running->share - to) >= 0.2) c.set_share(gpu, job, to, how_.live);
    }
  }

  // Whether a job that wants SMs for itself would have company.
  bool apart(const Cluster& c, size_t gpu, size_t slice, size_t job) const {
    const double part = c.gpus[gpu].layout[slice].profile->compute / double{kComputeSlices};
    bool company = false, hungry = c.jobs[job].job->use.sm / part >= how_.alone_from;
    for (const Running& r : c.gpus[gpu].running) {
      if (r.slice != slice) continue;
      company = true;
      hungry |= c.jobs[r.job].job->use.sm / part >= how_.alone_from;
    }
    return company && hungry;
  }

  void start_in(Cluster& c, size_t job, size_t gpu, size_t slice) {
    c.start(job, gpu, slice, 1);
    share(c, gpu, slice);
  }

  bool start_first(Cluster& c, size_t job) {
    for (size_t gpu : by_load(c)) {
      if (repartition(c, gpu, job)) return true;
      std::vector<size_t> slices(c.gpus[gpu].layout.size());
      std::iota(slices.begin(), slices.end(), 0);
      std::stable_sort(slices.begin(), slices.end(), [&](size_t a, size_t b) {
        return c.gpus[gpu].layout[a].profile->compute > c.gpus[gpu].layout[b].profile->compute;
      });
      for (size_t slice : slices) {
        if (!has_room(c, gpu, slice, job) || apart(c, gpu, slice, job)) continue;
        start_in(c, job, gpu, slice);
        return true;
      }
    }
    return false;
  }

  bool start_best(Cluster& c, size_t job) {
    const Tenant tenant{c.jobs[job].job, c.jobs[job].online, 1};
    double best = -1e9;
    size_t gpu = 0, slice = 0;
    for (size_t g = 0; g < c.gpus.size(); ++g) {
      for (size_t s = 0; s < c.gpus[g].layout.size(); ++s) {
        if (!has_room(c, g, s, job)) continue;
        const double more = gain(c, g, s, judge_, tenant);
        if (more <= best) continue;
        best = more;
        gpu = g;
        slice = s;
      }
    }
    if (best == -1e9) return false;
    start_in(c, job, gpu, slice);
    return true;
  }

  // Another layout for who is on the GPU and the new job, if it is predicted to be worth it.
  bool repartition(Cluster& c, size_t gpu, size_t job) {
    GpuState& g = c.gpus[gpu];
    const bool online = g.online(c.jobs);
    if (!how_.mig || (online && how_.online_stops_mig)) return false;
    std::vector<size_t> jobs;
    std::vector<PlannedJob> list;
    for (const Running& r : g.running) jobs.push_back(r.job);
    jobs.push_back(job);
    // The new one may be online: what counts is who runs.
    for (size_t j : jobs) list.push_back(planned(c.jobs[j]));
    for (PlannedJob& j : list) j.online = false;
    const Estimate by = estimate(c, jobs);
    const Plan now = pack(list, g.layout, by, how_.method);
    PlanOptions options;
    options.method = how_.method;
    options.current = g.layout;
    const Plan best = plan(list, c.model, by, options);
    const bool same = to_string(best.layout) == to_string(g.layout);
    const bool worth = best.waiting.size() < now.waiting.size() ||
                       best.throughput > 1.1 * now.throughput;  // 10 % pay for the restarts
    if (same || !worth || !best.waiting.empty()) return false;
    std::vector<Cluster::Move> moves;
    size_t slice = 0;
    for (const Assigned& a : best.jobs) {
      if (jobs[a.job] == job) {
        slice = a.slice;
      } else {
        moves.push_back({jobs[a.job], a.slice});
      }
      if (!c.jobs[jobs[a.job]].job->fits(size_index(best.layout[a.slice].profile->compute))) {
        return false;
      }
    }
    c.repartition(gpu, best.layout, moves);
    c.start(job, gpu, slice, 1);
    for (size_t s = 0; s < best.layout.size(); ++s) share(c, gpu, s);
    return true;
  }

  Packing how_;
  Judge& judge_;
};

}  // namespace

const std::vector<std::string>& job_policy_names() {
  static const std::vector<std::string> names = {
      "default",   "mps",    "miso",        "miger",       "mmk",          "mmk-7g",
      "mmk-no-ks", "heddle", "heddle-fcfs", "pairs-first", "pairs-random", "pairs-estimate"};
  return names;
}

std::unique_ptr<JobPolicy> job_policy(const std::string& name, Judge& judge, uint64_t seed) {
  Packing how;
  if (name == "default") return std::make_unique<WholeGpus>(Sharing::kTimeSliced);
  if (name == "mps") return std::make_unique<WholeGpus>(Sharing::kMps);
  if (name == "miso") return std::make_unique<Miso>(judge);
  if (name == "miger") {
    how.sharing = Sharing::kMps;
    how.online_stops_mig = false;
    how.alone_from = 0.7;
  } else if (name == "mmk-7g") {
    how.sharing = Sharing::kMps;
    how.mig = how.limits = false;
  } else if (name == "mmk-no-ks") {
    how.sharing = Sharing::kMps;
  } else if (name == "heddle" || name == "heddle-fcfs") {
    how.mig = false;
    how.method = Method::kOurs;
    how.least_interference = how.live = true;
    if (name == "heddle") how.look_ahead = 32;
  } else if (name.starts_with("pairs-")) {
    const auto by = name == "pairs-first"    ? Pairs::By::kFirst
                    : name == "pairs-random" ? Pairs::By::kRandom
                                             : Pairs::By::kEstimate;
    return std::make_unique<Pairs>(by, judge, seed);
  } else if (name != "mmk") {
    return nullptr;
  }
  return std::make_unique<Packer>(how, judge);
}

}  // namespace heddle::plan
