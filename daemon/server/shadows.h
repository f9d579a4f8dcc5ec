// A candidate beside the live policy on every device (core/shadow.h), for `heddle policy shadow`.
// It begins and ends on all devices together. Loop thread only.
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
  // `live`: the generation in force.
  Candidate(const Generation& live, const Devices& devices, PolicyStore& store, Reports& reports,
            Log& log)
      : live_(live), devices_(devices), store_(store), reports_(reports), log_(log) {}

  // Begins a candidate on every device.
  Result<void> begin(Prepared candidate, core::TimeNs now);
  // Begins it on a device that is new.
  void start(uint8_t gpu, core::TimeNs now);
  // Ends the candidate. Its report can still be read.
  void end(const std::string& why);
  void check();  // called at intervals: whether it ended by itself

  bool running() const { return generation_ && end_.empty(); }
  const std::optional<Generation>& generation() const { return generation_; }  // the last one
  nlohmann::json json() const;  // its report so far, also after its end; null: no candidate yet

 private:
  const Generation& live_;
  const Devices& devices_;
  PolicyStore& store_;
  Reports& reports_;
  Log& log_;
  std::optional<Generation> generation_;
  std::array<std::unique_ptr<core::Policy>, ipc::kDevices> instances_;  // by the GPU's number
  std::vector<std::unique_ptr<core::Policy>> spare_;                    // for later devices
  std::string end_, fault_;  // why it ended, "": it runs; its own fault
  std::string told_;         // its report as JSON, after its end
};

}  // namespace heddle::server
