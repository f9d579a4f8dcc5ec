// Which launches clients need not report: those of a client alone at work, now and then
// (Observation), and those that follow each other too closely (ipc/sparse.h). Loop thread only.
#pragma once

#include <cstdint>

#include "daemon/core/event.h"
#include "daemon/server/devices.h"
#include "daemon/server/roster.h"
#include "daemon/server/stepper.h"

namespace heddle::server {

// Which client's launches nobody need hear of, and when (ipc/layout.h, Header::unobserved).
//
// A record for each launch costs an eager program some percent, all of it cold caches. While a
// client is alone at work nobody depends on them, so that it is observed for a twenty-fifth of the
// time only: enough to see that it still works, and to keep what is learned of its kernels true.
// Who that is, and that it may be, is the engine's to say. Told the time; no clock of its own.
class Observation {
 public:
  // A slower program would gain nothing.
  static constexpr double kLaunchesPerS = 5'000;
  // Alone for this long it counts as alone.
  static constexpr core::TimeNs kSettleNs = 100'000'000;
  static constexpr core::TimeNs kUnobservedNs = 480'000'000;
  static constexpr core::TimeNs kObservedNs = 20'000'000;

  // The client that need not report from now on; 0: none. `alone` is who is alone at work and may
  // go unobserved, 0 if nobody may, and `posted` what it has reported so far. To be asked at each
  // change of either's meaning, and from `next` on.
  core::ClientId update(core::TimeNs now, core::ClientId alone, uint64_t posted);
  core::TimeNs next() const { return until_; }

 private:
  void observe(core::TimeNs now, core::TimeNs length, uint64_t posted);

  core::ClientId client_ = 0;
  bool unobserved_ = false;
  core::TimeNs since_ = 0, until_ = 0;
  uint64_t posted_ = 0;  // at `since_`
};

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
