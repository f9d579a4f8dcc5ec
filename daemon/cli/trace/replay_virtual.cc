// `heddle replay --virtual`: the recorded clients on the GPU model, under two policies.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/trace/recorded_policies.h"
#include "daemon/cli/trace/trace.h"
#include "daemon/sim/script.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using sim::TimeNs;

constexpr TimeNs kTenths = 10;

// Plays the iterations of a client over and over, from its first launch to its end.
class Player final : public sim::Program {
 public:
  Player(const sim::TraceScript& script, TimeNs until) : script_(script), until_(until) {}

  bool next(TimeNs now, sim::Step& step) override {
    if (position_ == script_.iterations[iteration_].size()) {
      ends_.push_back(now);
      took_us_.push_back(static_cast<double>(now - began_) / 1e3);
      position_ = 0;
      iteration_ = (iteration_ + 1) % script_.iterations.size();
    }
    if (now >= until_) return false;
    const sim::TraceScript::Launch& call = script_.iterations[iteration_][position_];
    step.think_ns = static_cast<TimeNs>(static_cast<double>(call.think_us) * 1e3);
    if (position_++ == 0) began_ = now + step.think_ns;
    step.kind = call.synchronize ? sim::Step::Kind::kSynchronize : sim::Step::Kind::kLaunch;
    if (call.synchronize) return true;
    const std::vector<float>& measured = script_.measured_us[call.kernel];
    step.kernel = call.kernel;
    // In turn, so that both policies meet the same.
    step.us = static_cast<double>(call.us > 0 ? call.us : measured[drawn_++ % measured.size()]);
    return true;
  }
  const std::vector<TimeNs>& ends() const { return ends_; }
  const std::vector<double>& took_us() const { return took_us_; }

 private:
  const sim::TraceScript& script_;
  const TimeNs until_;
  size_t iteration_ = 0, position_ = 0, drawn_ = 0;
  TimeNs began_ = 0;
  std::vector<TimeNs> ends_;
  std::vector<double> took_us_;
};

struct Played {  // a client of the trace that can be
  const trace::ClientTrack* track;
  sim::TraceScript script;
};

// What the trace says besides the timeline.
struct Setting {
  std::map<uint8_t, core::Config> devices;
  std::map<uint8_t, trace::PolicyRecord> policies;  // the first of each device
  trace::Timeline timeline;
  std::vector<Played> clients;
  std::vector<std::string> lacks;
};

Result<Setting> read_setting(const std::string& file) {
  Setting setting;
  Result<trace::Reader> reader = trace::Reader::open(file);
  if (!reader) return tl::unexpected<Error>(reader.error());
  trace::Record record;
  size_t changes = 0;
  for (;;) {
    const Result<bool> more = reader->next(record);
    if (!more) return tl::unexpected<Error>(more.error());
    if (!*more) break;
    if (const auto* device = std::get_if<trace::DeviceRecord>(&record)) {
      setting.devices.emplace(device->config.device, device->config);
    } else if (const auto* policy = std::get_if<trace::PolicyRecord>(&record)) {
      if (!setting.policies.emplace(policy->device, *policy).second) ++changes;
    }
  }
  if (changes > 0) {
    setting.lacks.push_back("the policy changed " + std::to_string(changes) +
                            " times in it: the first one is re-run");
  }
  Result<trace::Reader> again = trace::Reader::open(file);
  if (!again) return tl::unexpected<Error>(again.error());
  Result<trace::Timeline> timeline = trace::read_timeline(*again);
  if (!timeline) return tl::unexpected<Error>(timeline.error());
  setting.timeline = std::move(*timeline);
  if (setting.timeline.lost > 0) {
    setting.lacks.push_back(std::to_string(setting.timeline.lost) + " records are missing");
  }
  return setting;
}

// What of the client is inferred or left out, in words.
void note_lacks(const trace::ClientTrack& track, std::vector<std::string>& lacks) {
  const std::string who = "client " + std::to_string(track.id) + " " + printable(track.name());
  uint64_t kernels = 0, untimed = 0;
  uint16_t threads = 0;
  for (const trace::KernelTrack& kernel : track.kernels) {
    kernels += kernel.launches > 0 ? 1 : 0;
    untimed += kernel.launches > 0 && kernel.measured_us.empty() ? 1 : 0;
  }
  for (const trace::LaunchTrack& launch : track.launches) {
    threads = std::max<uint16_t>(threads, static_cast<uint16_t>(launch.thread + 1));
  }
  if (untimed > 0) {
    lacks.push_back(who + ": " + std::to_string(untimed) + " of " + std::to_string(kernels) +
                    " kernels were never timed; they last as long as the core inferred");
  }
  if (threads > 1) {
    lacks.push_back(who + ": its " + std::to_string(threads) + " threads are played as one");
  }
}

Result<void> make_clients(Setting& setting, const std::string& file) {
  for (const trace::ClientTrack& track : setting.timeline.clients) {
    if (track.launches.empty()) continue;
    Result<sim::TraceScript> script = sim::script_of(track, file);
    if (!script) {
      setting.lacks.push_back(script.error().message + "; it is left out");
      continue;
    }
    note_lacks(track, setting.lacks);
    setting.clients.push_back({&track, std::move(*script)});
  }
  if (setting.clients.empty()) {
    return fail(file + ": no client can be re-run" +
                (setting.lacks.empty() ? "" : ": " + setting.lacks.front()));
  }
  return {};
}

sim::ClientSpec spec_of(const trace::ClientTrack& track) {
  const core::AttachedBody& who = track.who;
  sim::ClientSpec spec;
  spec.name = std::string(who.name, strnlen(who.name, sizeof who.name));
  spec.label = std::string(who.label, strnlen(who.label, sizeof who.label));
  spec.priority = who.priority;
  spec.share = who.share > 0 ? static_cast<double>(who.share) : 1;
  spec.slo_ms = static_cast<double>(who.slo_ms);
  spec.slowdown_max = who.slowdown_max;
  spec.channel_max = who.channel_max;
  spec.compute = who.compute;
  if (!who.sm_set.empty()) spec.place = {who.sm_set, who.groups.sms_of(who.sm_set)};
  return spec;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

// Of each client of the device, in their order.
std::vector<json> play(const Setting& setting, uint8_t device, core::Policy* policy, bool& ok) {
  const core::Config& config = setting.devices.at(device);
  sim::GpuConfig gpu;
  gpu.mode = config.mps ? sim::Mode::kMps : sim::Mode::kTimeSlice;
  gpu.sm_count = config.sm_total.get();
  sim::VirtualMachine machine(config, gpu);
  ok = policy == nullptr || machine.set_policy(policy);
  if (!ok) return {};
  const TimeNs length = setting.timeline.to - setting.timeline.from;
  std::vector<std::pair<size_t, std::unique_ptr<Player>>> players;
  for (const Played& one : setting.clients) {
    if (one.track->device != device) continue;
    const size_t client = machine.add_client(spec_of(*one.track));
    for (const sim::LaunchSpec& kernel : one.script.kernels) machine.add_kernel(client, kernel);
    const TimeNs end = one.track->detached != 0 ? one.track->detached : setting.timeline.to;
    const TimeNs from = one.track->launches.front().called - setting.timeline.from;
    players.emplace_back(client, std::make_unique<Player>(one.script, end - setting.timeline.from));
    machine.run(client, std::max<TimeNs>(0, from), *players.back().second);
  }
  machine.run_until(length);
  const std::vector<core::ClientStatus> statuses = machine.scheduler().view().clients();
  std::vector<json> all;
  for (const auto& [client, player] : players) {
    const core::Waits::Counts& waits = statuses.at(client).waits.counts();
    json runs = json::array();
    for (TimeNs i = 0; i < kTenths; ++i) {
      const auto edge = [&](TimeNs n) { return length * n / kTenths; };
      runs.push_back(std::count_if(player->ends().begin(), player->ends().end(),
                                   [&](TimeNs at) { return at >= edge(i) && at < edge(i + 1); }));
    }
    const sim::ClientStats stats = machine.stats(client);
    all.push_back({{"launches", stats.launches},
                   {"asks", stats.asks},
                   {"runs", player->ends().size()},
                   {"run_p50_us", quantile(player->took_us(), 0.5)},
                   {"run_p99_us", quantile(player->took_us(), 0.99)},
                   {"wait_p50_us", core::quantile_us(waits, 0.5)},
                   {"wait_p99_us", core::quantile_us(waits, 0.99)},
                   {"gpu_ms", stats.gpu_us / 1e3},
                   {"runs_in_time", std::move(runs)}});
  }
  return all;
}

std::string pair_of(const json& client, const char* key) {
  const auto text = [&](const char* who) {
    return std::to_string(std::llround(client.at(who).at(key).get<double>()));
  };
  return text("recorded") + " > " + text("candidate");
}

void print_virtual(std::ostream& out, const json& all) {
  out << "the GPU model's answer, " << std::llround(all.at("seconds").get<double>() * 1e3)
      << " ms: " << printable(all.at("recorded").get<std::string>()) << " > "
      << printable(all.at("candidate").get<std::string>()) << '\n';
  for (const json& lack : all.at("lacks"))
    out << "  " << printable(lack.get<std::string>()) << '\n';
  std::vector<Row> rows{
      {"CLIENT", "PRIO", "RUNS", "RUN P50 us", "P99 us", "WAIT P50 us", "P99 us", "GPU ms"}};
  std::vector<Row> times{{"CLIENT", "RUNS IN EACH TENTH, recorded -> candidate"}};
  for (const json& c : all.at("clients")) {
    const std::string who = c.at("id").dump() + " " + printable(c.at("name")).substr(0, 24);
    rows.push_back({who, "Q" + c.at("priority").dump(), pair_of(c, "runs"),
                    pair_of(c, "run_p50_us"), pair_of(c, "run_p99_us"), pair_of(c, "wait_p50_us"),
                    pair_of(c, "wait_p99_us"), pair_of(c, "gpu_ms")});
    std::string line;
    for (size_t i = 0; i < static_cast<size_t>(kTenths); ++i) {
      line += (i > 0 ? "  " : "") + c.at("recorded").at("runs_in_time").at(i).dump() + ">" +
              c.at("candidate").at("runs_in_time").at(i).dump();
    }
    times.push_back({who, line});
  }
  print_table(out, rows);
  print_table(out, times);
}

}  // namespace

int replay_virtual(const ReplayOptions& options) {
  const auto failed = [&](const std::string& what) {
    return show_error(options.as_json, {kFailed, what, {}});
  };
  Result<Setting> setting = read_setting(options.trace);
  if (!setting) return failed(setting.error().message);
  if (Result<void> made = make_clients(*setting, options.trace); !made) {
    return failed(made.error().message);
  }
  RecordedPolicies recorded(options.policies);
  json clients = json::array();
  std::string names[2] = {"builtin", ""};
  for (const auto& [device, config] : setting->devices) {
    core::Policy* before = nullptr;
    if (const auto found = setting->policies.find(device); found != setting->policies.end()) {
      const Result<core::Policy*> loaded = recorded.load(found->second);
      if (!loaded) return failed(loaded.error().message);
      before = *loaded;
      names[0] = found->second.name;
    }
    auto after = policy::load_policy_file(options.file, {}, policy::virtual_time_limits());
    if (!after) return failed(after.error().message);
    names[1] = (*after)->name();
    bool ok[2] = {};
    std::vector<json> one = play(*setting, device, before, ok[0]);
    std::vector<json> other = play(*setting, device, after->get(), ok[1]);
    if (!ok[0] || !ok[1]) return failed(names[ok[0] ? 1 : 0] + ": init failed in virtual time");
    const policy::Fault& fault = (*after)->last_fault();
    if (fault.count > 0) {
      setting->lacks.push_back(names[1] + " faulted " + std::to_string(fault.count) +
                               " times, the last: " + fault.message);
    }
    size_t at = 0;
    for (const Played& played : setting->clients) {
      if (played.track->device != device) continue;
      clients.push_back({{"id", played.track->id},
                         {"device", device},
                         {"name", played.track->name()},
                         {"priority", played.track->who.priority},
                         {"recorded", std::move(one[at])},
                         {"candidate", std::move(other[at])}});
      ++at;
    }
  }
  const json all = {
      {"mode", "virtual"},
      {"seconds", static_cast<double>(setting->timeline.to - setting->timeline.from) / 1e9},
      {"recorded", names[0]},
      {"candidate", names[1]},
      {"lacks", setting->lacks},
      {"clients", std::move(clients)}};
  if (options.as_json) {
    write_json(all);
  } else {
    print_virtual(std::cout, all);
  }
  return kOk;
}

}  // namespace heddle::cli
