// Decides which launches clients need not report: most of those of a client that is alone at work
// (Observation), and those that follow each other too closely (ipc/sparse.h). Loop thread only.
#pragma once

#include <cstdint>

#include "daemon/core/event.h"
#include "daemon/server/devices.h"
#include "daemon/server/roster.h"
#include "daemon/server/stepper.h"

namespace heddle::server {

// When a client is unobserved (ipc/layout.h, Header::unobserved).
//
// A record for each launch costs an eager program some percent, all of it cache misses. While a
// client is alone at work, no decision depends on its records. So it is observed for a twenty-fifth
// of the time only: enough to see that it still works, and to keep its kernels' statistics true.
// Reports decides which client that is. The caller passes the time.
class Observation {
 public:
  // A client with fewer launches a second would gain nothing.
  static constexpr double kLaunchesPerS = 5'000;
  // How long a client must have been alone.
  static constexpr core::TimeNs kSettleNs = 100'000'000;
  static constexpr core::TimeNs kUnobservedNs = 480'000'000;
  static constexpr core::TimeNs kObservedNs = 20'000'000;

  // Returns the client that is unobserved from now on; 0: none. `alone`: the client that is alone
  // at work and may be unobserved; 0: none. `posted`: its number of launches so far. Called when
  // `alone` changes, and from next() on.
  core::ClientId update(core::TimeNs now, core::ClientId alone, uint64_t posted);
  core::TimeNs next() const { return until_; }

 private:
  void observe(core::TimeNs now, core::TimeNs length, uint64_t posted);

  core::ClientId client_ = 0;
  bool unobserved_ = false;
  core::TimeNs since_ = 0, until_ = 0;
  uint64_t posted_ = 0;  // at the time since_
};

class Reports {
 public:
  Reports(const Config& config, const Roster& roster, const Devices& devices, Stepper& stepper)
      : config_(config), roster_(roster), devices_(devices), stepper_(stepper) {}
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  // Begins or ends that a client is unobserved. Called from next_review() on.
  void review(core::TimeNs now);
  core::TimeNs next_review() const { return observation_.next(); }
  const Client* unobserved() const { return unobserved_; }

  // Another client comes, goes or does anything: no client is unobserved any more.
  void observe_all(core::TimeNs now);
  // The policy changes, or a recording begins: every launch has a record until the next review.
  void observe_each(core::TimeNs now);

  bool at_work(const Client& client, core::TimeNs now) const;

 private:
  void set_unobserved(Client* client, core::TimeNs now);
  Client* alone_at_work(core::TimeNs now) const;
  bool need_not_tell(const Client& client) const;  // whether it may be unobserved

  const Config& config_;
  const Roster& roster_;
  const Devices& devices_;
  Stepper& stepper_;
  Observation observation_;
  Client* unobserved_ = nullptr;
};

}  // namespace heddle::server
