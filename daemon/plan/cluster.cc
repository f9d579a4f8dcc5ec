#include "daemon/plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDone_s = 1e-6;

struct Kind {
  const char* model;
  uint32_t least, most;  // batches
};
// MMK's Table III, without ResNet18 and Transformer, which ParvaGPU has not measured.
constexpr Kind kOnline[] = {{"vgg16", 32, 256},
                            {"mobilenetv2", 32, 256},
                            {"densenet121", 32, 256},
                            {"vgg19", 32, 256},
                            {"resnet50", 32, 256}};
constexpr Kind kOffline[] = {{"bert", 2, 16},          {"resnet152", 16, 128},
                             {"densenet201", 16, 128}, {"densenet121", 32, 256},
                             {"vgg19", 32, 256},       {"resnet50", 32, 256}};

std::vector<const JobCurve*> curves_of(const JobTable& table, std::span<const Kind> kinds) {
  std::vector<const JobCurve*> found, all;
  for (const JobCurve& curve : table.curves) {
    all.push_back(&curve);
    for (const Kind& kind : kinds) {
      if (curve.model == kind.model && curve.batch >= kind.least && curve.batch <= kind.most) {
        found.push_back(&curve);
      }
    }
  }
  const bool another_table = found.size() < kinds.size();
  return another_table ? all : found;
}

}  // namespace

std::vector<SimJob> make_trace(const JobTable& table, const TraceOptions& options) {
  Random random(options.seed);
  const auto online = curves_of(table, kOnline), offline = curves_of(table, kOffline);
  std::vector<SimJob> jobs;
  uint32_t left_online = options.online, left_offline = options.offline;
  double at = 0;
  while (left_online + left_offline > 0) {
    SimJob job;
    job.online = random.below(left_online + left_offline) < left_online;
    --(job.online ? left_online : left_offline);
    const auto& choice = job.online ? online : offline;
    job.job = choice[random.below(choice.size())];
    at += random.exponential(options.interval_s / options.gpus);
    job.arrives_s = at;
    job.work_s = options.least_s * std::pow(options.most_s / options.least_s, random.uniform());
    jobs.push_back(job);
  }
  return jobs;
}

bool GpuState::online(const std::vector<SimJob>& jobs) const {
  return std::any_of(running.begin(), running.end(),
                     [&](const Running& r) { return jobs[r.job].online; });
}

double GpuState::free_gib(const std::vector<SimJob>& jobs, size_t slice) const {
  double free = layout[slice].profile->memory_gib;
  for (const Running& r : running) {
    if (r.slice == slice) free -= jobs[r.job].job->memory_gib;
  }
  return free;
}

void Cluster::start(size_t job, size_t gpu, size_t slice, double share) {
  GpuState& g = gpus[gpu];
  if (g.free_gib(jobs, slice) + 1e-9 < jobs[job].job->memory_gib) {
    throw std::logic_error("a policy placed a job where it does not fit");
  }
  if (std::erase(waiting, job) != 1) throw std::logic_error("a policy started a job twice");
  g.running.push_back({job, slice, share, jobs[job].work_s, now_s, 0});
  started_s_[job] = now_s;
}

void Cluster::set_share(size_t gpu, size_t job, double share, bool live) {
  for (Running& r : gpus[gpu].running) {
    if (r.job != job || r.share == share) continue;
    r.share = share;
    if (live || started_s_[job] == now_s) continue;
    r.paused_until_s = std::max(r.paused_until_s, now_s) + costs.checkpoint_s;
    checkpoint_s += costs.checkpoint_s;
  }
}

void Cluster::repartition(size_t gpu, const Layout& layout, const std::vector<Move>& moves) {
  GpuState& g = gpus[gpu];
  g.layout = layout;
  for (Running& r : g.running) {
    for (const Move& move : moves) {
      if (move.job == r.job) r.slice = move.slice;
    }
    r.paused_until_s = std::max(r.paused_until_s, now_s) + costs.mig_s + costs.checkpoint_s;
    mig_s += costs.mig_s;
    checkpoint_s += costs.checkpoint_s;
  }
  for (size_t slice = 0; slice < layout.size(); ++slice) {
    if (g.free_gib(jobs, slice) < -1e-9) {
      throw std::logic_error("a policy repartitioned into a slice that is too small");
    }
  }
}

struct Simulation {
  Cluster& c;
  JobPolicy& policy;
  std::vector<double> ended_s = std::vector<double>(c.jobs.size(), -1);
  size_t next_arrival = 0, left = c.jobs.size();

  // The pace of everything, as it is from now on.
  void pace() {
    std::vector<Tenant> tenants;
    std::vector<Running*> members;
    for (GpuState& g : c.gpus) {
      for (size_t slice = 0; slice < g.layout.size(); ++slice) {
        tenants.clear();
        members.clear();
        for (Running& r : g.running) {
          if (r.slice != slice) continue;
          r.pace = 0;
          if (r.paused_until_s > c.now_s + kDone_s) continue;
          tenants.push_back({c.jobs[r.job].job, c.jobs[r.job].online, r.share});
          members.push_back(&r);
        }
        for (size_t i = 0; i < members.size(); ++i) {
          members[i]->pace =
              true_pace(tenants, i, g.layout[slice].profile->compute, policy.sharing());
        }
      }
    }
  }

  double next_event() const {
    double at = next_arrival < c.jobs.size() ? c.jobs[next_arrival].arrives_s : kNever;
    for (const GpuState& g : c.gpus) {
      for (const Running& r : g.running) {
        const double end = r.pace > 0 ? c.now_s + r.left_s / r.pace : kNever;
        at = std::min(at, r.paused_until_s > c.now_s + kDone_s ? r.paused_until_s : end);
      }
    }
    return at;
  }

  void run() {
    while (left > 0) {
      pace();
      const double at = next_event();
      if (at == kNever) throw std::logic_error("a policy leaves jobs waiting for ever");
      for (GpuState& g : c.gpus) {
        for (Running& r : g.running) r.left_s -= r.pace * (at - c.now_s);
      }
      c.now_s = at;
      std::vector<size_t> gone;
      for (size_t gpu = 0; gpu < c.gpus.size(); ++gpu) {
        const size_t ended = std::erase_if(c.gpus[gpu].running, [&](const Running& r) {
          if (r.left_s <= kDone_s) ended_s[r.job] = at;
          return r.left_s <= kDone_s;
        });
        if (ended > 0) gone.push_back(gpu);
        left -= ended;
      }
      const size_t before = next_arrival;
      while (next_arrival < c.jobs.size() && c.jobs[next_arrival].arrives_s <= at) {
        c.waiting.push_back(next_arrival++);
      }
      if (!gone.empty() || next_arrival > before) policy.schedule(c, gone);
    }
  }

  Outcome outcome() const {
    Outcome o;
    const auto n = static_cast<double>(c.jobs.size());
    double work = 0, ran = 0, online = 0;
    for (size_t i = 0; i < c.jobs.size(); ++i) {
      const SimJob& job = c.jobs[i];
      const double jct = ended_s[i] - job.arrives_s;
      o.jct_s += jct / n;
      (job.online ? o.online_jct_s : o.offline_jct_s) += jct;
      online += job.online ? 1 : 0;
      o.queueing_s += (c.started_s_[i] - job.arrives_s) / n;
      o.relative_jct.push_back(jct / job.work_s);
      o.antt += jct / job.work_s / n;
      o.makespan_s = std::max(o.makespan_s, ended_s[i]);
      work += job.work_s;
      ran += ended_s[i] - c.started_s_[i];
    }
    o.online_jct_s /= std::max(online, 1.0);
    o.offline_jct_s /= std::max(n - online, 1.0);
    o.makespan_s -= c.jobs.front().arrives_s;
    o.stp = work / o.makespan_s / static_cast<double>(c.gpus.size());
    o.run_s = ran / n;
    o.mig_part = c.mig_s / ran;
    o.checkpoint_part = c.checkpoint_s / ran;
    return o;
  }
};

Outcome simulate(const std::vector<SimJob>& jobs, const GpuModel& gpu, uint32_t gpus, Costs costs,
                 JobPolicy& policy) {
  Cluster cluster(jobs, gpu, gpus, costs);
  Simulation simulation{cluster, policy};
  simulation.run();
  return simulation.outcome();
}

double pace_among(const JobCurve& job, uint32_t compute, double n) {
  const auto& row = job.pace[size_index(compute)];
  if (row[0] <= 0) return 0;
  // Times grow in a line with the number: between two measured ones, and in proportion beyond.
  double at = 1, time = 1 / row[0];
  for (size_t i = 1; i < kProcessesMost; ++i) {
    if (row[i] <= 0) continue;
    const auto count = static_cast<double>(i + 1);
    const double next = 1 / row[i];
    if (n <= count) return 1 / (time + (next - time) * std::max(n - at, 0.0) / (count - at));
    at = count;
    time = next;
  }
  if (at > 1) return 1 / (time * std::max(n / at, 1.0));
  return 1 / (time * std::max(n * wants(job, compute), 1.0));  // no company was measured
}

double pace_of_share(const JobCurve& job, uint32_t compute, double share) {
  const double size = compute * share;
  const double whole = pace_among(job, compute, 1);
  // Times fall in a line with 1 / size; below the smallest that fits, in proportion.
  double at = 0, pace = 0;
  for (size_t i = 0; i < kSliceSizes.size(); ++i) {
    if (!job.fits(i)) continue;
    const double next = job.pace[i][0], next_at = kSliceSizes[i];
    if (size <= next_at) {
      if (at == 0) return std::min(whole, next * size / next_at);
      const double part = (1 / at - 1 / size) / (1 / at - 1 / next_at);
      return std::min(whole, 1 / (1 / pace + (1 / next - 1 / pace) * part));
    }
    at = next_at;
    pace = next;
  }
  return std::min(whole, pace);
}

double wants(const JobCurve& job, uint32_t compute) {
  const auto& row = job.pace[size_index(compute)];
  double room = 1;
  bool company = false;
  for (size_t n = 2; n <= kProcessesMost; ++n) {
    if (row[n - 1] <= 0) continue;
    company = true;
    room = std::max(room, static_cast<double>(n) * row[n - 1] / row[0]);
  }
  if (company || job.use.sm < 0) return 1 / room;
  // No company was measured in this slice: its SM use alone, at the rate that it has there.
  const double pace = row[0];
  return std::clamp(job.use.sm * pace * 7.0 / compute, 0.05, 1.0);
}

double true_pace(std::span<const Tenant> tenants, size_t which, uint32_t compute, Sharing sharing) {
  const Tenant& self = tenants[which];
  const double alone = pace_among(*self.job, compute, 1);
  if (alone <= 0) return 0;
  if (sharing == Sharing::kTimeSliced) return alone / static_cast<double>(tenants.size());
  const double own = wants(*self.job, compute);
  double online = 0, offline = 0;  // what the others want, within their shares
  bool any_offline = false;
  for (size_t i = 0; i < tenants.size(); ++i) {
    any_offline |= !tenants[i].online;
    if (i == which) continue;
    const double want = std::min(wants(*tenants[i].job, compute), tenants[i].share);
    (tenants[i].online ? online : offline) += want;
  }
  double copies = 1 + (online + offline) / own;
  if (sharing == Sharing::kPriority && self.online) {
    copies = (1 + online / own) / (any_offline ? 1 - kOfflineLeast : 1);
  } else if (sharing == Sharing::kPriority && online > 0) {
    copies = (1 + offline / own) / std::max(1 - online, kOfflineLeast);
  }
  const double among = pace_among(*self.job, compute, copies);
  // Copies may measure a little faster than one alone: without a limit that stands.
  return self.share >= 1 ? among : std::min(pace_of_share(*self.job, compute, self.share), among);
}

}  // namespace heddle::plan
