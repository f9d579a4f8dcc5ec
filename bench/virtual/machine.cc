#include "bench/virtual/machine.h"

#include <algorithm>
#include <fstream>

#include "bench/virtual/oracle.h"
#include "daemon/server/config.h"
#include "daemon/trace/encoder.h"
#include "ipc/sm_set.h"

namespace heddle::bench {
namespace {

using sim::TimeNs;

// As the runner: every job is busy before the block begins; the first half second teaches the core
// what a daemon that runs for longer has learned.
constexpr TimeNs kLead = 800'000'000;
// An iteration that began in the block may end behind it; who is held up for longer has no sample.
constexpr TimeNs kTail = 2'000'000'000, kTailStep = 10'000'000;

TimeNs to_ns(double seconds) { return static_cast<TimeNs>(seconds * 1e9); }

uint64_t seed_of(std::initializer_list<uint64_t> words) {
  std::vector<uint32_t> halves;
  for (const uint64_t word : words) {
    halves.push_back(static_cast<uint32_t>(word));
    halves.push_back(static_cast<uint32_t>(word >> 32));
  }
  std::seed_seq sequence(halves.begin(), halves.end());
  uint32_t out[2];
  sequence.generate(out, out + 2);
  return uint64_t{out[0]} << 32 | out[1];
}

// What `heddle run --sms` makes of a share.
sim::Place place_of(const scenario::SmShare& share) {
  if (share == scenario::SmShare{}) return {};
  std::vector<uint16_t> widths(sim::facts::kGroups, sim::facts::kGroupSms);
  widths.push_back(sim::facts::kSmCount - sim::facts::kGroups * sim::facts::kGroupSms);
  const ipc::SmSet chosen = ipc::groups_of({share.from, share.to, true}, widths);
  return {chosen, ipc::sms_of(chosen, widths)};
}

// What the daemon of a row would read; of it, what the core has is in force here.
server::Config configuration(const Row& row) {
  auto config = server::parse_config(row.config, "row " + row.name);
  if (!config) throw std::runtime_error(config.error().message);
  return *config;
}

// Writes what the core sees, as `heddle record` does.
class TraceFile final : public sim::Witness {
 public:
  TraceFile(const std::string& path, const Row& row, const core::Config& config,
            const policy::LuaPolicy& policy)
      : path_(path), file_(path, std::ios::binary) {
    trace::Header header;
    header.heddle = HEDDLE_VERSION;
    header.gpu = "GPU model";
    header.driver = "virtual time";
    header.mode = row.mps ? "mps" : "timeslice";
    header.started = "virtual";
    file_ << trace::Encoder::header(header);
    put(encoder_.device(config, 0, true));
    // As a path, so that `heddle replay --policies FOLDER` finds it.
    trace::PolicyRecord record{0, 0, std::string(policy.name()), row.policy, policy.content_hash()};
    if (!record.path.ends_with(".lua")) record.path += ".lua";
    for (const policy::Param& p : policy.params()) record.params[p.name] = p.value;
    put(encoder_.policy(record));
  }
  ~TraceFile() override { put(encoder_.end(records_, 0)); }
  void event(const core::Event& e) override { put(encoder_.event(e)); }
  void decision(const core::Decision& d) override { put(encoder_.decision(d)); }

 private:
  void put(std::span<const std::byte> record) {
    encoder_.kept();
    ++records_;
    file_.write(reinterpret_cast<const char*>(record.data()),
                static_cast<std::streamsize>(record.size()));
  }

  const std::string path_;
  std::ofstream file_;
  trace::Encoder encoder_;
  uint64_t records_ = 0;
};

// One GPU of a block.
class Machine {
 public:
  Machine(const VirtualSetting& setting, const Row& row, uint32_t repetition, uint32_t gpu)
      : setting_(setting), row_(row), repetition_(repetition), oracle_(row.policy == kOracle) {
    const server::Config config = configuration(row);
    gates_ = config.gates;
    stops_ = config.stops != server::StopsSetting::kOff;
    core::Config core = config.core;
    core.mps = row.mps;
    core.sm_total = core::SmCount(sim::facts::kSmCount);
    core.switch_us = core::switch_us_of(row.mps);
    gpu_.mode = row.mps ? sim::Mode::kMps : sim::Mode::kTimeSlice;
    sim::HostCosts costs;
    if (oracle_) costs.round_trip_ns = costs.marker_ns = 0;
    costs.mark_all = oracle_;
    machine_ = std::make_unique<sim::VirtualMachine>(core, gpu_, costs, !row.policy.empty());
    set_policy(core);
    settled_ = row.policy.empty() ? 0 : to_ns(setting.scenario.settle_s);
    from_ = kLead + settled_;
    to_ = from_ + to_ns(setting.scenario.block_s);
    const uint32_t copies = row.alone ? 1 : setting.copies;
    for (uint32_t copy = gpu; copy < copies; copy += setting.gpus) {
      for (const Variant& variant : row.jobs) add(variant, copy);
    }
  }

  double run() {
    machine_->run_until(to_);
    TimeNs until = to_;
    const auto owes = [](const Job& j) { return j.program->owes(); };
    while (until < to_ + kTail && std::any_of(jobs_.begin(), jobs_.end(), owes)) {
      machine_->run_until(until += kTailStep);
    }
    return static_cast<double>(until) / 1e9;
  }

  void add_to(VirtualBlock& out) {
    Block& block = out.block;
    for (Job& job : jobs_) {
      if (row_.alone && job.program->iterations() > 0) {
        out.gpu_us =
            machine_->stats(job.client).gpu_us / static_cast<double>(job.program->iterations());
      }
      const Samples& one = job.program->samples();
      Samples& all = block.jobs[setting_.scenario.jobs[job.job].name];
      // Copies of a job are pooled; together they take as long as the longest.
      all.us.insert(all.us.end(), one.us.begin(), one.us.end());
      all.tbt_us.insert(all.tbt_us.end(), one.tbt_us.begin(), one.tbt_us.end());
      all.ttft_us.insert(all.ttft_us.end(), one.ttft_us.begin(), one.ttft_us.end());
      all.span_s = std::max(all.span_s, one.span_s);
      all.unserved += one.unserved;
    }
    if (row_.policy.empty()) return;
    const core::Stats& s = machine_->scheduler().stats();
    for (const auto& [key, value] : {std::pair{"events", s.events},
                                     {"asked", s.asked},
                                     {"granted", s.granted},
                                     {"on_set", s.on_set},
                                     {"off_set", s.off_set},
                                     {"starved", s.starved},
                                     {"by_builtin", s.by_builtin},
                                     {"policy_faults", s.policy_faults},
                                     {"gaps_filled", s.gaps_filled},
                                     {"bound_violations", s.bound_violations}}) {
      if (value > 0) block.counters[key] = block.counters.value(key, uint64_t{0}) + value;
    }
  }

 private:
  struct Job {
    size_t job = 0;
    size_t client = 0;
    std::unique_ptr<JobProgram> program;
  };

  void set_policy(const core::Config& config) {
    core::Policy* policy = nullptr;
    if (oracle_) {
      clairvoyant_ = std::make_unique<Oracle>(*machine_, gpu_, 0);
      policy = clairvoyant_.get();
    } else if (!row_.policy.empty() && row_.policy != "builtin") {
      auto loaded = load_row_policy(setting_, row_);
      if (!loaded) throw std::runtime_error(loaded.error().message);
      lua_ = std::move(*loaded);
      policy = lua_.get();
    }
    if (lua_ && !setting_.trace.empty() && repetition_ == 0) {
      witness_ = std::make_unique<TraceFile>(setting_.trace + "/" + row_.name + ".trace", row_,
                                             config, *lua_);
      machine_->set_witness(witness_.get());
    }
    if (policy != nullptr && !machine_->set_policy(policy)) {
      throw std::runtime_error(row_.policy + ": init failed" +
                               (lua_ ? ": " + lua_->last_fault().message : ""));
    }
  }

  void add(const Variant& variant, uint32_t copy) {
    const scenario::Job& job = setting_.scenario.jobs[variant.job];
    const uint64_t index = uint64_t{copy} << 32 | variant.job;
    Arrivals arrivals(job.arrivals, setting_.recorded[variant.job],
                      seed_of({setting_.seed, repetition_, index, 1}), settled_);
    const uint64_t seed = seed_of({setting_.seed, repetition_, index, 2});
    const HostSpeed host(setting_.host_noise, seed_of({setting_.seed, repetition_, index, 3}));
    const TraceScript* script = setting_.scripts[variant.job].get();
    Job& added = jobs_.emplace_back();
    added.job = variant.job;
    added.program =
        script != nullptr
            ? make_traced(*script, job.sim->tokens, std::move(arrivals), from_, to_, host, seed)
            : make_synthetic(*job.sim, std::move(arrivals), from_, to_, host, seed);
    sim::ClientSpec spec;
    spec.name = job.name;
    spec.priority = priority_of(variant, setting_.scenario);
    spec.place = place_of(variant.sms);
    spec.slo_ms = job.slo_ms.value_or(0);
    spec.slowdown_max = {static_cast<float>(job.slowdown_max),
                         static_cast<float>(job.slowdown_p99_max)};
    spec.gates = gates_ && variant.managed && !oracle_;  // which answers each launch at once
    spec.stops = spec.gates && stops_;
    // CUDA_MPS_CLIENT_PRIORITY=1 of the others is "below normal": they are one level behind.
    const bool split = std::any_of(row_.jobs.begin(), row_.jobs.end(),
                                   [](const Variant& v) { return v.client_priority; });
    if (split && !variant.client_priority) spec.stream_priority = -1;
    spec.sm_limit = (sim::facts::kSmCount * variant.percent + 99) / 100;
    const size_t client = machine_->add_client(spec);
    added.client = client;
    added.program->load(*machine_, client);
    machine_->run(client, 0, *added.program);
  }

  const VirtualSetting& setting_;
  const Row& row_;
  const uint32_t repetition_;
  const bool oracle_;
  bool gates_ = false, stops_ = false;
  sim::GpuConfig gpu_;
  TimeNs settled_ = 0, from_ = 0, to_ = 0;
  // The machine's scheduler may ask its policy until it ends, and is gone first.
  std::unique_ptr<policy::LuaPolicy> lua_;
  std::unique_ptr<Oracle> clairvoyant_;
  std::unique_ptr<TraceFile> witness_;
  std::vector<Job> jobs_;
  std::unique_ptr<sim::VirtualMachine> machine_;
};

}  // namespace

heddle::Result<std::unique_ptr<policy::LuaPolicy>> load_row_policy(const VirtualSetting& setting,
                                                                   const Row& row) {
  if (row.policy == "turns") {
    return policy::load_policy({turns_policy(), "turns.lua", ""}, row.params,
                               policy::virtual_time_limits());
  }
  const bool path = row.policy.find('/') != std::string::npos;
  return policy::load_policy_file(path ? scenario::resolve(setting.scenario, row.policy)
                                       : setting.policy_directory + "/" + row.policy + ".lua",
                                  row.params, policy::virtual_time_limits());
}

VirtualBlock run_block(const VirtualSetting& setting, const Row& row, uint32_t repetition) {
  VirtualBlock out;
  out.block.repetition = repetition;
  out.block.row = row.name;
  out.block.counters = Json::object();
  const uint32_t used = std::min(setting.gpus, row.alone ? 1 : setting.copies);
  for (uint32_t gpu = 0; gpu < used; ++gpu) {
    Machine machine(setting, row, repetition, gpu);
    const double ran_s = machine.run();
    out.virtual_s += ran_s;
    if (!row.policy.empty()) out.block.counted_s = std::max(out.block.counted_s, ran_s);
    machine.add_to(out);
  }
  return out;
}

}  // namespace heddle::bench
