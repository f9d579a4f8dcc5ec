// A candidate beside the live policy on every device (core/shadow.h): `heddle policy shadow`. Begun
// and ended on all devices together. Loop thread only.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/shadow.h"
#include "daemon/server/devices.h"
#include "daemon/server/policy_source.h"
#include "daemon/server/reports.h"

namespace heddle::server {

// {seconds, ended, faulted, calls, skipped, spent_us, longest_us, share, clients: [{id, there,
// name, label, priority, alike, sooner, later, unseen, live, candidate: {p50_us, p99_us},
// live_allowed, allowed}]}.
nlohmann::json shadow_json(const core::ShadowReport& report);
const char* allowed_text(core::Allowance allowed);  // "gate", "open" or "lease"

class Candidate {
 public:
  // `live` is the generation that runs.
  Candidate(const Generation& live, const Devices& devices, PolicyStore& store, Reports& reports,
            Log& log)
      : live_(live), devices_(devices), store_(store), reports_(reports), log_(log) {}

  // Runs it on every device, until it ends or is ended.
  Result<void> begin(Prepared candidate, core::TimeNs now);
  // On a device that came meanwhile, which has nothing of another scheduler's.
  void start(uint8_t gpu, core::TimeNs now);
  // What it found stays to be looked at.
  void end(const std::string& why);
  void check();  // now and then: whether it ended by itself

  bool running() const { return generation_ && end_.empty(); }
  const std::optional<Generation>& generation() const { return generation_; }  // the last one
  nlohmann::json json() const;  // what it found so far, also once it has ended; null: none

 private:
  const Generation& live_;
  const Devices& devices_;
  PolicyStore& store_;
  Reports& reports_;
  Log& log_;
  std::optional<Generation> generation_;
  std::array<std::unique_ptr<core::Policy>, ipc::kDevices> instances_;  // by the GPU's number
  std::vector<std::unique_ptr<core::Policy>> spare_;                    // for devices to come
  std::string end_, fault_;                                             // "": it runs; of itself
  std::string told_;                                                    // JSON, once it has ended
};

}  // namespace heddle::server
