// The words in which the GPU reports launches at gates do not wake the daemon. GateWatch decides
// when to read them, and tells the core. Loop thread only.
#pragma once

#include "daemon/server/presence.h"
#include "daemon/server/reports.h"

namespace heddle::server {

// How long rings may fill without a doorbell: 1 024 records are over 3 ms of launches.
inline constexpr core::TimeNs kDrainNs = 2'000'000;

class GateWatch {
 public:
  GateWatch(const Roster& roster, const Reports& reports, Presence& presence)
      : roster_(roster), reports_(reports), presence_(presence) {}

  // A batch of claims begins. Launches at open gates affect no decision, so they are no news that
  // would keep the daemon awake.
  void begin() { news_ = false; }
  void note(const Client& client, const Claim& claim) {
    if (!news_) news_ = !Intake::is_gated(claim) || !client.gates_open();
  }
  bool news() const { return news_; }  // since begin()

  // Whether tell() is due even if no client wrote anything.
  bool due(core::TimeNs now) const { return !told_all_ || now >= told_at_ + kLookNs; }
  // Tells the core about all clients' gates, as far as a turn has room.
  void tell(core::TimeNs now);
  // When tell() is due next if no doorbell rings.
  core::TimeNs next(core::TimeNs now) const;

 private:
  static constexpr core::TimeNs kLookNs = 50'000;

  const Roster& roster_;
  const Reports& reports_;
  Presence& presence_;
  core::TimeNs told_at_ = 0;
  bool told_all_ = true;
  bool news_ = true;
};

}  // namespace heddle::server
