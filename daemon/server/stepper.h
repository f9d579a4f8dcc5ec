// The way into a core and out of it: an event goes in, and each decision that comes out is carried
// out in the memory of its client. A recorder sees both. Loop thread only; it makes no system call
// but futex wake-ups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/core/scheduler.h"
#include "daemon/server/mistakes.h"
#include "daemon/server/roster.h"
#include "daemon/trace/ring.h"

namespace heddle::server {

class Stepper {
 public:
  Stepper(const Roster& roster, Mistakes& mistakes) : roster_(roster), mistakes_(mistakes) {}

  // `of`: whose event it is in a batch, and so whose most of the decisions are; the batch's end
  // wakes whom it granted.
  void step(core::Scheduler& scheduler, const core::Event& event, Client* of = nullptr) {
    if (recorder_ != nullptr) recorder_->event(event);
    const std::span<const core::Decision> decisions = scheduler.step(event);
    if (!decisions.empty()) apply(decisions, of);
  }
  void apply(std::span<const core::Decision> decisions, Client* likely = nullptr);
  // A launch on a device that nobody schedules.
  void let_through(Client& client, const Claim& claim) {
    if (client.let_through(claim)) granted_.push_back(&client);
  }
  void note_granted(Client& client) {
    if (client.any_to_wake()) granted_.push_back(&client);
  }
  void wake_granted();

  // nullptr: nothing is recorded.
  trace::Recorder* recorder() const { return recorder_; }
  void record_to(trace::Recorder* recorder) { recorder_ = recorder; }

 private:
  const Roster& roster_;
  Mistakes& mistakes_;
  std::vector<Client*> granted_;  // since whoever sleeps was woken last
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace heddle::server
