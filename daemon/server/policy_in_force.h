// The policy in force: the generation that runs on all devices, whether it has proved itself, and
// the last quarantined one. A generation replaces another on all devices between two decisions.
// Loop thread only. Nothing here waits for a disk or for a policy to be compiled, because launches
// wait for this thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/server/devices.h"
#include "daemon/server/policy_source.h"
#include "daemon/server/reports.h"
#include "daemon/server/shadows.h"

namespace heddle::server {

// Whether a policy generation has proved itself. A later generation that fails falls back to it.
// The caller passes the time.
class Probation {
 public:
  // A generation is good once it has decided for `good` without a fault.
  explicit Probation(core::TimeNs good) : good_(good) {}

  void begin(core::TimeNs now) { *this = Probation(good_, now); }
  // Called at intervals with the generation's decisions and faults so far. True once: when it
  // becomes good.
  bool update(core::TimeNs now, uint64_t decisions, uint64_t faults) {
    const core::TimeNs passed = std::min(now - updated_, kPauseNs);
    updated_ = now;
    if (decisions != decisions_) decided_ = now;
    if (faults != faults_) proved_ = 0;
    if (now - decided_ <= kPauseNs && faults == faults_ && decisions > 0) proved_ += passed;
    decisions_ = decisions;
    faults_ = faults;
    if (is_good_ || proved_ < good_) return false;
    return is_good_ = true;
  }
  bool is_good() const { return is_good_; }

 private:
  // Time without a decision counts up to this length at once: an idle GPU proves nothing.
  static constexpr core::TimeNs kPauseNs = 1'000'000'000;

  Probation(core::TimeNs good, core::TimeNs now) : good_(good), updated_(now), decided_(now) {}

  core::TimeNs good_;
  core::TimeNs updated_ = 0, decided_ = 0;
  core::TimeNs proved_ = 0;
  uint64_t decisions_ = 0, faults_ = 0;
  bool is_good_ = false;
};

// The last policy that faulted too often, until another is loaded.
struct Quarantined {
  Generation generation;
  std::string fault;  // its last fault: kind, hook, file and line
  // The exit dump as JSON: the policy's own text, its queues, the last decisions. "null": it is
  // lost.
  std::string exit = "null";
};

struct PolicyCounts {
  uint64_t decisions = 0, faults = 0;       // of the generation in force, on all devices
  uint64_t reloads = 0, reload_errors = 0;  // of all generations
};

class PolicyInForce {
 public:
  PolicyInForce(const Config& config, PolicyStore& store, Log& log, Devices& devices,
                Stepper& stepper, Reports& reports);
  ~PolicyInForce();
  PolicyInForce(const PolicyInForce&) = delete;
  PolicyInForce& operator=(const PolicyInForce&) = delete;

  // How many instances adopt() needs: one for each device, and one for the next device.
  size_t instances_wanted() const;
  // Adopts the generation on all devices between two decisions, or on none.
  Result<void> adopt(Prepared fresh, core::TimeNs now);
  // Falls back to `good` after a quarantine, unless another policy was loaded meanwhile.
  void fall_back(Prepared good, core::TimeNs now);
  // A policy could not be loaded.
  Result<void> failed(Error error);
  // The configured policy is quarantined: if the built-in is in force, asks for a fall back.
  void refuse_quarantined(const Generation& generation);
  // The policy's file has its running content again: clears the error, and starts the policy on
  // devices where it could not start.
  void mistake_undone(core::TimeNs now);
  // The last generation was rolled back; `why`: for `heddle status`.
  void note_rollback(const std::string& why) { error_ = why; }

  // Starts the policy, and the candidate beside it, on a device with a new scheduler.
  void open(uint8_t gpu, core::TimeNs now);
  // Replaces a policy that faulted too often by the built-in. Called after each step.
  void check_quarantine(core::TimeNs now);
  void check_probation(core::TimeNs now);

  // True once after a policy was quarantined: the store must save that, and may have a policy to
  // fall back to. Until then the built-in decides.
  bool take_fallback_wanted() { return std::exchange(fallback_wanted_, false); }
  // True once after another generation was adopted, or has proved itself: the store must save that.
  bool take_to_remember() { return std::exchange(to_remember_, false); }

  // The candidate beside the policy. It ends with the generation.
  Candidate& candidate() { return candidate_; }
  const Candidate& candidate() const { return candidate_; }

  const Generation& generation() const { return generation_; }
  const core::Policy* on(uint8_t gpu) const { return seats_[gpu].policy.get(); }  // null: built-in
  const std::string& error() const { return error_; }
  const std::optional<Quarantined>& quarantined() const { return quarantined_; }
  bool is_good() const { return probation_.is_good(); }
  PolicyCounts counts() const;
  // Writes the GPU's policy into a recording.
  void record(uint8_t gpu, core::TimeNs now) const;

 private:
  struct Seat {                            // of a device
    std::unique_ptr<core::Policy> policy;  // null: the built-in
    core::Stats before;                    // the scheduler's counts when it was adopted
  };

  void start(uint8_t gpu, core::TimeNs now);
  Result<void> swap(Prepared fresh, bool stands_in, core::TimeNs now);
  void put_to_work(uint8_t gpu, core::Policy* policy, const Generation& generation,
                   core::TimeNs now);
  void record(uint8_t gpu, const core::Policy* policy, const Generation& generation,
              core::TimeNs now) const;

  const Config& config_;
  PolicyStore& store_;
  Log& log_;
  Devices& devices_;
  Stepper& stepper_;
  Reports& reports_;
  Generation generation_;
  std::array<Seat, ipc::kDevices> seats_;             // by the GPU's number
  std::vector<std::unique_ptr<core::Policy>> spare_;  // instances for later devices
  std::string error_;
  std::optional<Quarantined> quarantined_;
  Probation probation_;
  Candidate candidate_;
  bool fallback_wanted_ = false, to_remember_ = false;
  uint64_t reloads_ = 0, reload_errors_ = 0;
};

}  // namespace heddle::server
