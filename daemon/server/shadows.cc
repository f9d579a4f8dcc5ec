// A candidate beside the live policy: begun and ended on all devices together.
#include "daemon/server/shadows.h"

#include <time.h>

#include "daemon/server/engine.h"

namespace heddle::server {
namespace {

using nlohmann::json;

core::TimeNs host_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

json waits_json(const core::Waits& waits) {
  return {{"p50_us", core::quantile_us(waits.counts(), 0.5)},
          {"p99_us", core::quantile_us(waits.counts(), 0.99)}};
}

core::ShadowLimits limits() {
  core::ShadowLimits limits;
  limits.clock = host_now;
  return limits;
}

}  // namespace

json window_json(uint32_t window_us) {
  if (window_us == core::kWindowLeased) return "lease";
  if (window_us == core::kWindowGated) return "gate";
  return window_us;
}

json shadow_json(const core::ShadowReport& report) {
  const double passed_us = static_cast<double>(report.now - report.since) / 1e3;
  json clients = json::array();
  for (const core::ShadowOfClient& one : report.clients) {
    clients.push_back({{"id", one.id},
                       {"there", one.there},
                       {"name", one.name},
                       {"label", one.label},
                       {"priority", one.priority},
                       {"alike", one.counts.alike},
                       {"sooner", one.counts.sooner},
                       {"later", one.counts.later},
                       {"unseen", one.counts.unseen},
                       {"live", waits_json(one.counts.live)},
                       {"candidate", waits_json(one.counts.candidate)},
                       {"live_window", window_json(one.live_window_us)},
                       {"window", window_json(one.window_us)}});
  }
  return {
      {"seconds", passed_us / 1e6},      {"ended", report.ended},
      {"faulted", report.faulted},       {"calls", report.calls},
      {"skipped", report.skipped},       {"spent_us", report.spent_us},
      {"longest_us", report.longest_us}, {"share", passed_us > 0 ? report.spent_us / passed_us : 0},
      {"clients", std::move(clients)}};
}

Result<void> Engine::begin_shadow(Prepared fresh, core::TimeNs now) {
  if (!fresh.generation.make) {
    return fail("policy shadow: the built-in is no candidate; name a policy");
  }
  end_shadow("another candidate took its place");
  observe_each(now);
  shadow_ = std::move(fresh.generation);
  shadow_spare_ = std::move(fresh.instances);
  for (std::string* text : {&told_shadow_, &shadow_end_, &shadow_fault_}) text->clear();
  for (Device& device : devices_) {
    if (device.scheduler) start_shadow(device, now);
    if (!shadow_running()) return fail(shadow_->path + ": " + shadow_end_ + ": " + shadow_fault_);
  }
  log_.info("policy_shadow", {{"policy", shadow_->name},
                              {"path", shadow_->path},
                              {"hash", shadow_->hash},
                              {"uid", shadow_->by.uid},
                              {"pid", shadow_->by.pid}});
  return {};
}

void Engine::start_shadow(Device& device, core::TimeNs now) {
  if (!shadow_running()) return;
  Result<std::unique_ptr<core::Policy>> made = nullptr;
  if (!shadow_spare_.empty()) {
    made = std::move(shadow_spare_.back());
    shadow_spare_.pop_back();
  } else {
    made = shadow_->make();
  }
  if (!made) return end_shadow(made.error().message);
  device.candidate = std::move(*made);
  if (!device.scheduler->begin_shadow(*device.candidate, limits(), now)) {
    shadow_fault_ = store_.describe(*device.candidate).value("fault", "it said no");
    end_shadow("it faulted at once");
  }
}

// What it found stays to be looked at.
void Engine::end_shadow(const std::string& why) {
  if (!shadow_running()) return;
  shadow_end_ = why;
  for (Device& device : devices_) {
    if (!device.scheduler || !device.scheduler->shadow_is_over()) continue;
    const core::ShadowReport report = *device.scheduler->shadow();
    shadow_end_ = report.ended;
    if (report.faulted) shadow_fault_ = store_.describe(*device.candidate).value("fault", "");
  }
  const json told = shadow_json();
  for (Device& device : devices_) {
    if (device.scheduler) device.scheduler->end_shadow(shadow_end_);
    device.candidate.reset();
  }
  shadow_spare_.clear();
  told_shadow_ = told.dump(-1, ' ', false, json::error_handler_t::replace);
  log_.info("policy_shadow_ended", {{"policy", shadow_->name},
                                    {"hash", shadow_->hash},
                                    {"why", shadow_end_},
                                    {"fault", shadow_fault_}});
}

void Engine::check_shadow() {
  for (Device& device : devices_) {
    if (device.scheduler && device.scheduler->shadow_is_over()) return end_shadow("");
  }
}

json Engine::shadow_json() const {
  if (!shadow_) return nullptr;
  if (!told_shadow_.empty()) return json::parse(told_shadow_);
  json devices = json::array();
  for (const Device& device : devices_) {
    const auto report = device.scheduler ? device.scheduler->shadow() : std::nullopt;
    if (!report) continue;
    devices.push_back(server::shadow_json(*report));
    devices.back()["device"] = device.scheduler->config().device;
    devices.back()["policy"] = store_.describe(*device.candidate);
  }
  return {{"name", shadow_->name},
          {"path", shadow_->path},
          {"hash", shadow_->hash},
          {"live", {{"name", generation_.name}, {"generation", generation_.number}}},
          {"ended", shadow_end_},
          {"fault", shadow_fault_},
          {"devices", std::move(devices)}};
}

core::RunTimes Engine::runs_above() const {
  core::RunTimes all;
  for (const Device& device : devices_) {
    if (!device.scheduler) continue;
    const core::RunTimes of = device.scheduler->runs_above();
    all.count += of.count;
    all.took_us += of.took_us;
    all.alone_us += of.alone_us;
  }
  return all;
}

}  // namespace heddle::server
