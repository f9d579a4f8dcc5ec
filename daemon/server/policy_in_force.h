// The policy in force: the generation that runs on every device, whether it has proved itself, and
// what was quarantined. One takes the place of another on all devices, between two decisions. Loop
// thread only; nothing here waits for a disk, or for a policy to be made: launches wait for this.
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

// Whether a policy generation has proved itself: where the next one falls back to that does not.
// Told the time; no clock of its own.
class Probation {
 public:
  // A generation is good once it has decided for `good` without a fault.
  explicit Probation(core::TimeNs good) : good_(good) {}

  void begin(core::TimeNs now) { *this = Probation(good_, now); }
  // To be told now and then what the generation has decided and got wrong so far. True once: when
  // it becomes good.
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
  // Of time in which nothing was decided no more counts in a row: an idle GPU proves nothing.
  static constexpr core::TimeNs kPauseNs = 1'000'000'000;

  Probation(core::TimeNs good, core::TimeNs now) : good_(good), updated_(now), decided_(now) {}

  core::TimeNs good_;
  core::TimeNs updated_ = 0, decided_ = 0;
  core::TimeNs proved_ = 0;
  uint64_t decisions_ = 0, faults_ = 0;
  bool is_good_ = false;
};

// The newest policy that faulted too often, until another is loaded.
struct Quarantined {
  Generation generation;
  std::string fault;  // the last one: its kind, hook, file and line
  // The exit dump, JSON: what the policy says of itself, its queues, the last decisions. "null":
  // that is not known any more.
  std::string exit = "null";
};

struct PolicyCounts {
  uint64_t decisions = 0, faults = 0;       // of the generation that runs, on all devices
  uint64_t reloads = 0, reload_errors = 0;  // of all generations
};

class PolicyInForce {
 public:
  PolicyInForce(const Config& config, PolicyStore& store, Log& log, Devices& devices,
                Stepper& stepper, Reports& reports);
  ~PolicyInForce();
  PolicyInForce(const PolicyInForce&) = delete;
  PolicyInForce& operator=(const PolicyInForce&) = delete;

  // How many instances adopt() has use for: one for each device, and one for the next.
  size_t instances_wanted() const;
  // Puts the generation to work on every device between two decisions, or on none.
  Result<void> adopt(Prepared fresh, core::TimeNs now);
  // What a policy that was quarantined falls back to, unless somebody has loaded another meanwhile.
  void fall_back(Prepared good, core::TimeNs now);
  // A policy could not be loaded.
  Result<void> failed(Error error);
  // The configured policy is quarantined: where the built-in decides, something is to be fallen
  // back to.
  void refuse_quarantined(const Generation& generation);
  // What runs is what its file says again: it goes on, and starts where it could not.
  void mistake_undone(core::TimeNs now);
  // The last generation was rolled back: why, for `heddle status`.
  void note_rollback(const std::string& why) { error_ = why; }

  // It, and the candidate beside it, go to work on a device whose scheduler is new.
  void open(uint8_t gpu, core::TimeNs now);
  // A policy that faulted too often makes place for the built-in. After each step.
  void check_quarantine(core::TimeNs now);
  void check_probation(core::TimeNs now);

  // True once after a policy was quarantined: the store has something to remember, and perhaps
  // something to fall back to. Until then the built-in decides.
  bool take_fallback_wanted() { return std::exchange(fallback_wanted_, false); }
  // True once when another generation runs, or it has proved itself: the store has it to remember.
  bool take_to_remember() { return std::exchange(to_remember_, false); }

  // Beside it; it ends with the generation, too.
  Candidate& candidate() { return candidate_; }
  const Candidate& candidate() const { return candidate_; }

  const Generation& generation() const { return generation_; }
  const core::Policy* on(uint8_t gpu) const { return seats_[gpu].policy.get(); }  // null: built-in
  const std::string& error() const { return error_; }
  const std::optional<Quarantined>& quarantined() const { return quarantined_; }
  bool is_good() const { return probation_.is_good(); }
  PolicyCounts counts() const;
  // Puts down in a recording what runs on the GPU.
  void record(uint8_t gpu, core::TimeNs now) const;

 private:
  struct Seat {                            // of a device
    std::unique_ptr<core::Policy> policy;  // null: the built-in
    core::Stats before;                    // what was counted when it came
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
  std::vector<std::unique_ptr<core::Policy>> spare_;  // instances of it for devices to come
  std::string error_;
  std::optional<Quarantined> quarantined_;
  Probation probation_;
  Candidate candidate_;
  bool fallback_wanted_ = false, to_remember_ = false;
  uint64_t reloads_ = 0, reload_errors_ = 0;
};

}  // namespace heddle::server
