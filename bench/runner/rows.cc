#include "bench/runner/rows.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>

namespace heddle::bench {
namespace {

using scenario::Baseline;
using scenario::BaselineKind;
using scenario::Scenario;
using scenario::SmShare;

class Planner {
 public:
  explicit Planner(const Scenario& scenario) : scenario_(scenario) {}

  Plan make() {
    for (const Baseline& baseline : scenario_.baselines) add(baseline);
    for (const scenario::PolicyRow& policy : scenario_.policies) add(policy);
    add_alone();
    return std::move(plan_);
  }

 private:
  void add(const Baseline& baseline) {
    const BaselineKind kind = baseline.kind;
    Row row =
        shared(baseline.text, kind != BaselineKind::kTimeslice && kind != BaselineKind::kExclusive);
    if (kind == BaselineKind::kMpsPriority) prioritize(row);
    if (kind == BaselineKind::kMpsPercent) {
      for (Variant& v : row.jobs) v.percent = baseline.parts[v.job];
    }
    if (kind == BaselineKind::kExclusive) manage(row, "turns");
    if (kind == BaselineKind::kSplit) {
      manage(row, "builtin");
      for (Variant& v : row.jobs) v.sms = baseline.shares[v.job];
    }
    put(std::move(row));
  }

  void add(const scenario::PolicyRow& policy) {
    const std::string stem = policy.text.substr(0, policy.text.rfind('@'));
    for (const bool mps : {false, true}) {
      if (!(mps ? policy.mps : policy.timeslice)) continue;
      const std::string path = !mps ? "" : policy.client_priority ? "@mps+priority" : "@mps";
      Row row = shared(stem + path, mps);
      for (const auto& [key, value] : policy.config) row.config += key + " = " + value + "\n";
      row.params = policy.params;
      manage(row, policy.policy);
      if (policy.client_priority) prioritize(row);
      if (!policy.job.empty()) keep_only(row, policy.job);
      put(std::move(row));
    }
  }

  void keep_only(Row& row, const std::string& job) const {
    row.name.append(row.mps ? "/" : "@timeslice/").append(job);
    std::erase_if(row.jobs, [&](const Variant& v) { return scenario_.jobs[v.job].name != job; });
  }

  // Bare blocks of every job on each path, so that "alone" and the host's noise are measured too.
  void add_alone() {
    std::vector<Row> alone;
    for (const bool mps : {false, true}) {
      const bool used = std::any_of(plan_.rows.begin(), plan_.rows.end(),
                                    [&](const Row& row) { return row.mps == mps; });
      for (size_t job = 0; used && job < scenario_.jobs.size(); ++job) {
        Row row;
        row.name = alone_name(scenario_.jobs[job].name, mps);
        row.mps = mps;
        row.alone = true;
        row.jobs = {Variant{.job = job, .mps = mps}};
        alone.push_back(std::move(row));
      }
    }
    plan_.rows.insert(plan_.rows.begin(), alone.begin(), alone.end());
  }

  Row shared(const std::string& name, bool mps) const {
    Row row;
    row.name = name;
    row.mps = mps;
    for (size_t job = 0; job < scenario_.jobs.size(); ++job) {
      row.jobs.push_back(Variant{.job = job, .mps = mps});
    }
    return row;
  }

  static void manage(Row& row, const std::string& policy) {
    row.policy = policy;
    for (Variant& v : row.jobs) {
      v.managed = true;
      v.config = row.config;
    }
  }

  void prioritize(Row& row) const {
    for (Variant& v : row.jobs) {
      v.client_priority = scenario_.jobs[v.job].role == scenario::Role::kBatch;
    }
  }

  // A policy may be listed for both ways and for one of them again.
  void put(Row row) {
    for (const Row& other : plan_.rows) {
      if (other.name != row.name) continue;
      if (other.policy == row.policy) return;
      plan_.missing.push_back({row.name, "a baseline has this name; leave one of them out"});
      return;
    }
    plan_.rows.push_back(std::move(row));
  }

  const Scenario& scenario_;
  Plan plan_;
};

}  // namespace

Plan plan(const Scenario& scenario) { return Planner(scenario).make(); }

std::set<Variant> variants(const std::vector<Row>& rows) {
  std::set<Variant> out;
  for (const Row& row : rows) out.insert(row.jobs.begin(), row.jobs.end());
  return out;
}

std::vector<std::vector<Row>> parts_of(const std::vector<Row>& rows, bool apart) {
  if (!apart) return {rows};
  std::vector<std::vector<Row>> parts;
  for (const bool mps : {false, true}) {
    std::vector<Row> part;
    for (const Row& row : rows) {
      if (row.mps == mps) part.push_back(row);
    }
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

std::string rival(const Row& row, const std::vector<Row>& rows) {
  if (row.policy.empty() || row.alone) return "";
  const std::vector<std::string> names = row.mps ? std::vector<std::string>{"mps+priority", "mps"}
                                                 : std::vector<std::string>{"timeslice"};
  for (const std::string& name : names) {
    const auto rivals = [&](const Row& r) {
      return r.name == name && r.jobs.size() == row.jobs.size();
    };
    if (std::any_of(rows.begin(), rows.end(), rivals)) return name;
  }
  return "";
}

std::string share_text(const SmShare& sms) {
  return std::to_string(sms.from) + "%-" + std::to_string(sms.to) + "%";
}

int priority_of(const Variant& variant, const Scenario& scenario) {
  constexpr int kEqual = 4;  // the least important that the built-in policy leases
  return variant.sms != SmShare{} ? kEqual : scenario.jobs[variant.job].priority;
}

std::string alone_name(const std::string& job, bool mps) {
  return "alone/" + job + (mps ? "@mps" : "");
}

std::string variant_name(const Variant& variant, const Scenario& scenario) {
  std::string name = scenario.jobs[variant.job].name;
  if (variant.managed) name += ".heddle";
  if (variant.mps) name += ".mps";
  if (variant.client_priority) name += ".priority";
  if (variant.percent != 100) name.append(".").append(std::to_string(variant.percent));
  if (variant.sms != SmShare{}) name.append(".sms").append(share_text(variant.sms));
  std::string config = variant.config;  // names files
  std::replace(config.begin(), config.end(), '\n', '.');
  std::erase_if(config, [](char c) { return c == ' ' || c == '"'; });
  return config.empty() ? name : name + "." + config.substr(0, config.size() - 1);
}

std::string requests_of(const scenario::Scenario& scenario, const Variant& variant, double per_s,
                        const RequestSeed& seed) {
  using scenario::ArrivalKind;
  const scenario::Job& job = scenario.jobs[variant.job];
  const scenario::Arrivals& given = job.arrivals;
  std::seed_seq words{seed.run, uint64_t{seed.repetition}, uint64_t{variant.job}};
  uint32_t drawn[1];
  words.generate(drawn, drawn + 1);
  if (job.paired && variant.managed) return "paired " + std::to_string(drawn[0]);
  if (given.load > 0 && per_s <= 0) return "closed";
  if (given.load <= 0) per_s = given.per_s;
  char text[64];
  const auto seeded = [&](const char* kind) {
    snprintf(text, sizeof text, "%s %g %u", kind, per_s, drawn[0]);
    return std::string(text);
  };
  switch (given.kind) {
    case ArrivalKind::kClosed:
      return "closed";
    case ArrivalKind::kRecorded:
      return "recorded " + std::filesystem::absolute(resolve(scenario, given.file)).string();
    case ArrivalKind::kBurst:
      snprintf(text, sizeof text, "burst %u %g", given.burst, per_s);
      return text;
    case ArrivalKind::kOpen:
      return seeded("open");
    case ArrivalKind::kPoisson:
      return seeded("poisson");
    case ArrivalKind::kOnOff:
      return seeded("onoff");
  }
  return "closed";
}

void set_stops(std::vector<Row>& rows, const std::string& answer, const std::string& why) {
  for (Row& row : rows) {
    if (row.policy.empty() || row.config.find("gpu.stops") != std::string::npos) continue;
    if (answer == "not asked") {
      throw std::runtime_error("whether this GPU stops kernels could not be asked: " + why +
                               "; end what is on the GPU, or give each row its own gpu.stops");
    }
    row.config += answer == "yes" ? "gpu.stops = \"on\"\n" : "gpu.stops = \"off\"\n";
    for (Variant& job : row.jobs) job.config = row.config;
  }
}

}  // namespace heddle::bench
