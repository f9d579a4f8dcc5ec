// Which launches clients need not report: those of a client alone at work, now and then
// (observation.h), and those that follow each other too closely (ipc/sparse.h). Loop thread only.
#pragma once

#include "daemon/server/devices.h"
#include "daemon/server/observation.h"
#include "daemon/server/roster.h"
#include "daemon/server/stepper.h"

namespace heddle::server {

class Reports {
 public:
  Reports(const Config& config, const Roster& roster, const Devices& devices, Stepper& stepper)
      : config_(config), roster_(roster), devices_(devices), stepper_(stepper) {}
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  // Ends, or begins, that a client alone at work need not report its launches; from `next_review`
  // on.
  void review(core::TimeNs now);
  core::TimeNs next_review() const { return observation_.next(); }
  const Client* unobserved() const { return unobserved_; }

  // Somebody comes, goes or does anything: the client that went unobserved is observed.
  void observe_all(core::TimeNs now);
  // What decides changes, or somebody listens to everything: each launch is told until the next
  // review.
  void observe_each(core::TimeNs now);

  bool at_work(const Client& client, core::TimeNs now) const;

 private:
  void set_unobserved(Client* client, core::TimeNs now);
  Client* alone_at_work(core::TimeNs now) const;
  bool need_not_tell(const Client& client) const;  // each of its launches

  const Config& config_;
  const Roster& roster_;
  const Devices& devices_;
  Stepper& stepper_;
  Observation observation_;
  Client* unobserved_ = nullptr;
};

}  // namespace heddle::server
