// A candidate beside the live policy, which begins and ends on all devices together.
#include "daemon/server/shadows.h"

#include "daemon/server/clock.h"

namespace heddle::server {
namespace {

using nlohmann::json;

json quantiles_json(const core::Waits& waits) {
  return {{"p50_us", core::quantile_us(waits.counts(), 0.5)},
          {"p99_us", core::quantile_us(waits.counts(), 0.99)}};
}

core::ShadowLimits limits() {
  core::ShadowLimits limits;
  limits.clock = monotonic_now;
  return limits;
}

}  // namespace

const char* allowed_text(core::Allowance allowed) {
  constexpr const char* kTexts[] = {"gate", "open", "lease"};
  return kTexts[static_cast<size_t>(allowed)];
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
                       {"live", quantiles_json(one.counts.live)},
                       {"candidate", quantiles_json(one.counts.candidate)},
                       {"live_allowed", allowed_text(one.live_allowed)},
                       {"allowed", allowed_text(one.allowed)}});
  }
  return {
      {"seconds", passed_us / 1e6},      {"ended", report.ended},
      {"faulted", report.faulted},       {"calls", report.calls},
      {"skipped", report.skipped},       {"spent_us", report.spent_us},
      {"longest_us", report.longest_us}, {"share", passed_us > 0 ? report.spent_us / passed_us : 0},
      {"clients", std::move(clients)}};
}

Result<void> Candidate::begin(Prepared fresh, core::TimeNs now) {
  if (!fresh.generation.make) {
    return fail("policy shadow: the built-in is no candidate; name a policy");
  }
  end("another candidate took its place");
  reports_.observe_each(now);
  generation_ = std::move(fresh.generation);
  spare_ = std::move(fresh.instances);
  for (std::string* text : {&told_, &end_, &fault_}) text->clear();
  for (const auto& scheduler : devices_.schedulers()) {
    if (scheduler) start(scheduler->config().device, now);
    if (!running()) return fail(generation_->path + ": " + end_ + ": " + fault_);
  }
  log_.info("policy_shadow", {{"policy", generation_->name},
                              {"path", generation_->path},
                              {"hash", generation_->hash},
                              {"uid", generation_->by.uid},
                              {"pid", generation_->by.pid}});
  return {};
}

void Candidate::start(uint8_t gpu, core::TimeNs now) {
  instances_[gpu].reset();
  if (!running()) return;
  Result<std::unique_ptr<core::Policy>> made = take_instance(*generation_, spare_);
  if (!made) return end(made.error().message);
  instances_[gpu] = std::move(*made);
  if (!devices_.on(gpu).begin_shadow(*instances_[gpu], limits(), now)) {
    fault_ = store_.describe(*instances_[gpu]).value("fault", "it said no");
    end("it faulted at once");
  }
}

void Candidate::end(const std::string& why) {
  if (!running()) return;
  end_ = why;
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler || !scheduler->shadow_is_over()) continue;
    const core::ShadowReport report = *scheduler->shadow();
    end_ = report.ended;
    if (!report.faulted) continue;
    fault_ = store_.describe(*instances_[scheduler->config().device]).value("fault", "");
  }
  const nlohmann::json told = json();
  for (const auto& scheduler : devices_.schedulers()) {
    if (scheduler) scheduler->end_shadow(end_);
  }
  for (auto& instance : instances_) instance.reset();
  spare_.clear();
  told_ = told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  log_.info("policy_shadow_ended", {{"policy", generation_->name},
                                    {"hash", generation_->hash},
                                    {"why", end_},
                                    {"fault", fault_}});
}

void Candidate::check() {
  for (const auto& scheduler : devices_.schedulers()) {
    if (scheduler && scheduler->shadow_is_over()) return end("");
  }
}

nlohmann::json Candidate::json() const {
  if (!generation_) return nullptr;
  if (!told_.empty()) return nlohmann::json::parse(told_);
  nlohmann::json devices = nlohmann::json::array();
  for (const auto& scheduler : devices_.schedulers()) {
    const auto report = scheduler ? scheduler->shadow() : std::nullopt;
    if (!report) continue;
    const uint8_t gpu = scheduler->config().device;
    devices.push_back(shadow_json(*report));
    devices.back()["device"] = gpu;
    devices.back()["policy"] = store_.describe(*instances_[gpu]);
  }
  return {{"name", generation_->name},
          {"path", generation_->path},
          {"hash", generation_->hash},
          {"live", {{"name", live_.name}, {"generation", live_.number}}},
          {"ended", end_},
          {"fault", fault_},
          {"devices", std::move(devices)}};
}

}  // namespace heddle::server
