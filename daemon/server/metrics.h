// The table of metrics: every counter of the daemon, its policies, the cores and the clients, with
// unit and meaning. The daemon writes its answers from it, the command line prints by it.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <variant>

#include "daemon/core/scheduler.h"
#include "daemon/server/attached.h"
#include "daemon/server/engine.h"

namespace heddle::server {

enum class MetricType : uint8_t { kCounter, kGauge };

// One row of the table. All output (`heddle status`, `ps`, `metrics`, their --json) goes through
// the table, so that a new counter is one line there.
struct MetricInfo {
  const char* name;  // its key in JSON
  const char* unit;  // of the value: "us", or "" for a number
  const char* help;  // one sentence
  MetricType type;
};

// `Of` is a plain struct; the member may belong to a base of it.
template <class Of>
struct Metric : MetricInfo {
  std::variant<uint64_t Of::*, uint32_t Of::*, double Of::*> member;
};

// The structs with rows below, each with its place in the JSON. `counters` of status:
struct DaemonCounts : EngineCounters {
  uint64_t broken_invariants = 0, connections = 0, refused = 0, log_lines_lost = 0, naps = 0;
};
// `policy` of status is PolicyCounts. Each of the `devices` of status, whose `stats` is
// core::Stats:
struct DeviceGauges {
  uint32_t sm_total = 0;
  double switch_us = 0;
  uint64_t waiting = 0;
};
// Each client's `counters` in ps, as the client counts them, with those of `self` apart:
struct ClientCounts {
  uint64_t launches = 0;
  uint64_t starved = 0, stale = 0, pool = 0, capturing = 0, exempt = 0, bypass = 0, unmanaged = 0;
  uint64_t forced = 0;
  uint32_t threads = 0;
  uint64_t dropped = 0, marker_errors = 0, on_sm_set = 0, off_sm_set = 0, green_streams = 0;
  uint64_t malformed = 0;
  // Executable graphs (shim/sm/twins.h).
  uint64_t graph_twins = 0, twin_launches = 0, graphs_not_cloned = 0, graphs_device = 0,
           graphs_cooperative = 0, graphs_updated = 0, graphs_refused = 0, graphs_full = 0;
  uint64_t broken_checks = 0;
};
// Each of a client's `devices` in ps:
struct ClientOnDevice : core::ClientStatus {
  ClientOnDevice() = default;
  explicit ClientOnDevice(const core::ClientStatus& status)
      : core::ClientStatus(status),
        queued(view.queued),
        stops(view.stops),
        stopped_us(view.stopped_us),
        parked(view.parked ? 1 : 0),
        compute_request(view.request),
        compute_limit(view.limit),
        compute_got(got[1]),
        compute_short(short_of_request()),
        promise_slowdown_max(std::round(promise.slowdown_max * 1e6) / 1e6),  // comes from a float
        promise_slowdown(promise.slowdown),
        promise_p99_slowdown_max(std::round(promise_p99.slowdown_max * 1e6) / 1e6),
        promise_p99_slowdown(promise_p99.slowdown),
        promise_blocks(promise.blocks),
        promise_broken(promise.broken),
        promise_p99_blocks(promise_p99.blocks),
        promise_p99_broken(promise_p99.broken) {}

  uint32_t queued = 0;
  uint64_t stops = 0;
  double stopped_us = 0;
  uint32_t parked = 0;
  double compute_request = 0, compute_limit = 0, compute_got = 0;
  uint32_t compute_short = 0;
  double promise_slowdown_max = 0, promise_slowdown = 0;
  double promise_p99_slowdown_max = 0, promise_p99_slowdown = 0;
  uint64_t promise_blocks = 0, promise_broken = 0, promise_p99_blocks = 0, promise_p99_broken = 0;
  uint64_t memory_bytes = 0, memory_limit_bytes = 0, memory_group_bytes = 0, memory_refused = 0;
};

ClientCounts counts_of(const Client& client);

inline constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge;

inline constexpr Metric<DaemonCounts> kDaemonMetrics[] = {
    {{"claims", "", "Records that clients wrote and the daemon handled", kCounter},
     &DaemonCounts::claims},
    {{"malformed", "", "Records of clients that made no sense and were dropped", kCounter},
     &DaemonCounts::malformed},
    {{"broken_invariants", "", "Mistakes of the scheduler that its own checks found", kCounter},
     &DaemonCounts::broken_invariants},
    {{"let_go", "", "Clients detached because their memory made no sense", kCounter},
     &DaemonCounts::let_go},
    {{"connections", "", "Connections that were accepted", kCounter}, &DaemonCounts::connections},
    {{"refused", "", "Connections and clients that got no place", kCounter},
     &DaemonCounts::refused},
    {{"log_lines_lost", "", "Lines that the log could not take", kCounter},
     &DaemonCounts::log_lines_lost},
    {{"naps", "", "Times that the daemon's loop slept", kCounter}, &DaemonCounts::naps},
};

inline constexpr Metric<PolicyCounts> kPolicyMetrics[] = {
    {{"decisions", "", "Launches that the running generation let go", kGauge},
     &PolicyCounts::decisions},
    {{"faults", "", "Faults of the running generation", kGauge}, &PolicyCounts::faults},
    {{"reloads", "", "Generations that went live", kCounter}, &PolicyCounts::reloads},
    {{"reload_errors", "", "Policies that could not be loaded", kCounter},
     &PolicyCounts::reload_errors},
};

inline constexpr Metric<DeviceGauges> kDeviceGauges[] = {
    {{"sm_total", "", "Streaming multiprocessors of the GPU", kGauge}, &DeviceGauges::sm_total},
    {{"switch_us", "us", "Cost of letting another client in", kGauge}, &DeviceGauges::switch_us},
    {{"waiting", "", "Launches that wait for a grant now", kGauge}, &DeviceGauges::waiting},
};

inline constexpr Metric<core::Stats> kDeviceMetrics[] = {
    {{"events", "", "Events that the scheduler took", kCounter}, &core::Stats::events},
    {{"rejected", "", "Events that made no sense", kCounter}, &core::Stats::rejected},
    {{"posted", "", "Launches and copies that were reported as they went", kCounter},
     &core::Stats::posted},
    {{"asked", "", "Held launches, or units of them, that asked for a grant", kCounter},
     &core::Stats::asked},
    {{"granted", "", "Launches that were granted", kCounter}, &core::Stats::granted},
    {{"on_sm_set", "", "Launches granted on fewer SMs than their client has", kCounter},
     &core::Stats::on_set},
    {{"off_sm_set", "", "Launches that the policy gave a size and that ran on all SMs", kCounter},
     &core::Stats::off_set},
    {{"starved", "", "Launches granted by the starvation bound", kCounter}, &core::Stats::starved},
    {{"by_builtin", "", "Launches granted by the built-in policy", kCounter},
     &core::Stats::by_builtin},
    {{"policy_faults", "", "Faults of policies on this GPU", kCounter},
     &core::Stats::policy_faults},
    {{"stops", "", "Times that what ran of a client was stopped in its middle", kCounter},
     &core::Stats::stops},
    {{"stops_bounded", "", "Times that this was put off, for there were too many", kCounter},
     &core::Stats::stops_bounded},
    {{"stops_starved", "", "Of those stops, ended by the starvation bound", kCounter},
     &core::Stats::stops_starved},
    {{"gaps_filled", "", "Gaps that ended while less important work was in flight", kCounter},
     &core::Stats::gaps_filled},
    {{"bound_violations", "", "Gaps whose stated bound was exceeded", kCounter},
     &core::Stats::bound_violations},
};

inline constexpr Metric<ClientCounts> kClientMetrics[] = {
    {{"launches", "", "Launches of the program, on all devices", kCounter},
     &ClientCounts::launches},
    {{"threads", "", "Threads of the program that launch", kGauge}, &ClientCounts::threads},
    {{"dropped", "", "Records that found no room in their ring", kCounter}, &ClientCounts::dropped},
    {{"marker_errors", "", "Completion markers that the driver refused", kCounter},
     &ClientCounts::marker_errors},
    {{"on_sm_set", "", "Launches kept on some of the SMs", kCounter}, &ClientCounts::on_sm_set},
    {{"off_sm_set", "", "Launches that were to be kept on some SMs and were not", kCounter},
     &ClientCounts::off_sm_set},
    {{"green_streams", "", "Streams of Green Contexts that the program made; never moved",
      kCounter},
     &ClientCounts::green_streams},
    {{"graph_twins", "", "Graphs made again for some SMs or a priority, 255 at most", kCounter},
     &ClientCounts::graph_twins},
    {{"twin_launches", "", "Launches of graphs that ran as made again", kCounter},
     &ClientCounts::twin_launches},
    {{"graphs_not_cloned", "", "Graphs kept as they are: conditional, allocation or free nodes",
      kCounter},
     &ClientCounts::graphs_not_cloned},
    {{"graphs_device", "", "Graphs kept as they are: the device may launch them", kCounter},
     &ClientCounts::graphs_device},
    {{"graphs_cooperative", "", "Graphs kept as they are: a cooperative kernel", kCounter},
     &ClientCounts::graphs_cooperative},
    {{"graphs_updated", "", "Graphs kept as they are: the program updated them", kCounter},
     &ClientCounts::graphs_updated},
    {{"graphs_refused", "", "Graphs kept as they are: the driver refused the twin", kCounter},
     &ClientCounts::graphs_refused},
    {{"graphs_full", "", "Graphs kept as they are: too many of them", kCounter},
     &ClientCounts::graphs_full},
    {{"broken_checks", "", "Mistakes of the shim that its own checks found, 255 at most", kCounter},
     &ClientCounts::broken_checks},
    {{"malformed", "", "Records of the program that made no sense", kCounter},
     &ClientCounts::malformed},
};

// Launches that went without waiting for a grant, by reason.
inline constexpr Metric<ClientCounts> kSelfMetrics[] = {
    {{"starved", "", "The launch waited for longer than the bound", kCounter},
     &ClientCounts::starved},
    {{"stale", "", "The daemon did not answer", kCounter}, &ClientCounts::stale},
    {{"pool", "", "No ring was free, or the device is beyond the limit", kCounter},
     &ClientCounts::pool},
    {{"capturing", "", "The stream was being captured", kCounter}, &ClientCounts::capturing},
    {{"exempt", "", "The launch must never be held back", kCounter}, &ClientCounts::exempt},
    {{"bypass", "", "heddle bypass was on", kCounter}, &ClientCounts::bypass},
    {{"unmanaged", "", "The client was refused", kCounter}, &ClientCounts::unmanaged},
    {{"forced", "", "The program, not heddled, opened the gate", kCounter}, &ClientCounts::forced},
};

inline constexpr Metric<ClientOnDevice> kClientDeviceMetrics[] = {
    {{"queued", "", "Launches that wait for a grant now", kGauge}, &ClientOnDevice::queued},
    {{"launches", "", "Launches on this GPU that the scheduler knows of", kCounter},
     &ClientOnDevice::launches},
    {{"granted", "", "Launches that were granted", kCounter}, &ClientOnDevice::granted},
    {{"outstanding_us", "us", "Predicted time of what the client has on the GPU", kGauge},
     &ClientOnDevice::outstanding_us},
    {{"gpu_us", "us", "GPU time that the client has had", kCounter}, &ClientOnDevice::gpu_us},
    {{"stops", "", "Times that what ran of it was stopped in its middle", kCounter},
     &ClientOnDevice::stops},
    {{"stopped_us", "us", "For so long in all", kCounter}, &ClientOnDevice::stopped_us},
    {{"compute_request", "", "Part of the GPU's time that it has beside others, by rule; 0: none",
      kGauge},
     &ClientOnDevice::compute_request},
    {{"compute_limit", "", "Part of the GPU's time that it has at most, by rule; 0: any", kGauge},
     &ClientOnDevice::compute_limit},
    {{"compute_got", "", "Part of the GPU's time that it had over the last ten seconds", kGauge},
     &ClientOnDevice::compute_got},
    {{"compute_short", "", "1: it waits, and had less than its request", kGauge},
     &ClientOnDevice::compute_short},
    {{"kernels", "", "Kernels of the client that are known", kGauge}, &ClientOnDevice::kernels},
    {{"runs", "", "Runs that the measurement stage has seen", kGauge}, &ClientOnDevice::runs},
    {{"added_us_max", "us", "Most that others may add to one of its gaps; infinite: no bound",
      kGauge},
     &ClientOnDevice::added_us_max},
    {{"gaps_filled", "", "Its gaps that ended while less important work was in flight", kCounter},
     &ClientOnDevice::gaps_filled},
    {{"gaps_exceeded", "", "Its gaps whose stated bound was exceeded", kCounter},
     &ClientOnDevice::gaps_exceeded},
    {{"promise_slowdown_max", "", "Most that others may slow its runs, as promised; 0: nothing is",
      kGauge},
     &ClientOnDevice::promise_slowdown_max},
    {{"promise_slowdown", "",
      "How much others slowed the last block of its runs; 0: none has ended", kGauge},
     &ClientOnDevice::promise_slowdown},
    {{"promise_blocks", "", "Blocks of runs that its promise was judged by", kCounter},
     &ClientOnDevice::promise_blocks},
    {{"promise_broken", "", "Blocks of runs in which its promise was broken", kCounter},
     &ClientOnDevice::promise_broken},
    {{"promise_p99_slowdown_max", "",
      "Most that others may slow its runs but one in a hundred, as promised; 0: nothing is",
      kGauge},
     &ClientOnDevice::promise_p99_slowdown_max},
    {{"promise_p99_slowdown", "",
      "99th percentile of its last block's runs over the same alone; 0: none has ended", kGauge},
     &ClientOnDevice::promise_p99_slowdown},
    {{"promise_p99_blocks", "", "Blocks of runs that its p99 was judged by", kCounter},
     &ClientOnDevice::promise_p99_blocks},
    {{"promise_p99_broken", "", "Blocks of runs in which more than one in a hundred was slow",
      kCounter},
     &ClientOnDevice::promise_p99_broken},
    {{"memory_bytes", "", "Device memory that the client has allocated", kGauge},
     &ClientOnDevice::memory_bytes},
    {{"memory_limit_bytes", "", "Limit on the device memory of its group; 0: none", kGauge},
     &ClientOnDevice::memory_limit_bytes},
    {{"memory_group_bytes", "", "What counts of that limit, of all clients of the group", kGauge},
     &ClientOnDevice::memory_group_bytes},
    {{"parked", "", "1: its memory is on the host, or on its way", kGauge},
     &ClientOnDevice::parked},
    {{"memory_refused", "", "Allocations that the limit refused", kCounter},
     &ClientOnDevice::memory_refused},
};

// Every row of a table as one JSON object. Infinite values are null, because JSON has none.
template <class Of, size_t N>
nlohmann::json metrics_json(const Metric<Of> (&table)[N], const std::type_identity_t<Of>& of) {
  nlohmann::json all = nlohmann::json::object();
  for (const Metric<Of>& metric : table) {
    nlohmann::json& value = all[metric.name];
    std::visit([&](auto member) { value = of.*member; }, metric.member);
    if (value.is_number_float() && value.get<double>() == core::kUnlimitedUs) value = nullptr;
  }
  return all;
}

}  // namespace heddle::server
