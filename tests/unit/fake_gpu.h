// What a Lua policy's tests give it instead of the core.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/core/policy.h"

namespace heddle::policy {

using core::LaunchId;
using core::LaunchView;

// Waiting launches that exist as long as the test says, and queues as simple as can be.
class FakeGpu : public core::Gpu {
 public:
  core::TimeNs now() const override { return now_ns; }
  core::GpuView gpu() const override { return view; }
  bool launch(LaunchId id, LaunchView& out) const override {
    const auto found = launches.find(id);
    if (found != launches.end()) out = found->second;
    return found != launches.end();
  }
  bool client(core::ClientId id, core::ClientView& out) const override {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) return false;
    out = {};
    out.id = id;
    out.name = "app";
    out.label = label;
    out.priority = static_cast<int>(id % 10);
    out.active = active;
    return true;
  }
  std::span<const core::ClientId> clients() const override { return ids; }
  double gap_us(int) const override { return gap; }
  double gap_length_us(int) const override { return gap; }
  bool busy(int) const override { return false; }
  double idle_us(int) const override { return 0; }
  core::RunTimes runs(int) const override { return {}; }
  core::SlowRunCount slower_runs(int, double) const override { return {}; }
  bool comparing(int) const override { return false; }
  core::BudgetVerdict budget_fits(LaunchId, core::SmCount sm) override {
    budget_sm = sm.get();
    return budget;
  }
  core::SmCount free_sms(LaunchId, core::SmCount sm) const override { return sm; }
  double slowdown(core::ClientId id) override { return 1 + static_cast<double>(id) / 10; }
  double channel_left(core::Channel c) const override { return 0.1 * static_cast<double>(c); }
  core::QueueId queue_create(std::string_view name) override {
    names.emplace_back(name);
    queues.emplace_back();
    return static_cast<core::QueueId>(names.size() - 1);
  }
  bool queue_insert(core::QueueId q, LaunchId id, double key) override {
    if (!launches.contains(id)) return false;
    queues[q].emplace(key, id);
    return true;
  }
  LaunchId queue_peek(core::QueueId q, size_t place) const override {
    return place < queues[q].size() ? std::next(queues[q].begin(), static_cast<long>(place))->second
                                    : 0;
  }
  LaunchId queue_best_fit(core::QueueId q, double us) const override {
    for (const auto& [key, id] : queues[q]) {
      if (launches.at(id).predicted_us <= us) return id;
    }
    return 0;
  }
  size_t queue_len(core::QueueId q) const override { return queues[q].size(); }
  bool set_allowance(core::ClientId id, core::Allowance allowed, double for_us) override {
    cut_set = {id, allowed, for_us};
    return id <= 3;
  }
  bool keep_to(core::ClientId id, core::SmCount sm, double for_us) override {
    kept_to = {id, sm, for_us};
    return id <= 3;
  }
  bool set_stop(core::ClientId id, core::StopWhen when) override {
    stop_set = {id, when};
    return id <= 3;
  }
  bool set_slice(core::ClientId id, uint32_t us) override {
    slice_set = {id, us};
    return id <= 3;
  }
  bool set_parked(core::ClientId id, bool parked) override {
    parked_set = {id, parked};
    return id <= 3;
  }
  bool resize(core::ClientId id) override {
    resized.push_back(id);
    return id != 99;
  }
  bool set_launch_priority(core::ClientId id, int level) override {
    launch_priority_set = {id, level};
    return id <= 3;
  }

  core::TimeNs now_ns = 5'000;
  core::GpuView view{0, core::SmCount(132), core::SmCount(132), 0, 0, 10, true};
  double gap = 400;
  bool active = false;  // all clients
  std::string label;    // the same
  core::BudgetVerdict budget;
  uint32_t budget_sm = 0;
  std::map<LaunchId, LaunchView> launches;
  std::vector<core::ClientId> ids{1, 2, 3};
  std::vector<std::string> names;
  std::vector<core::ClientId> resized;
  std::vector<std::multimap<double, LaunchId>> queues;
  std::tuple<core::ClientId, core::Allowance, double> cut_set;
  std::pair<core::ClientId, int> launch_priority_set;
  std::tuple<core::ClientId, core::SmCount, double> kept_to;
  std::pair<core::ClientId, core::StopWhen> stop_set;
  std::pair<core::ClientId, uint32_t> slice_set;
  std::pair<core::ClientId, bool> parked_set;
};

}  // namespace heddle::policy
