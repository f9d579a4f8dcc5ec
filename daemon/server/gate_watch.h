// What the GPU says of launches at gates rings no bell: when to look, and that the core hears of
// all that was read. Loop thread only.
#pragma once

#include "daemon/server/presence.h"
#include "daemon/server/reports.h"

namespace heddle::server {

// Rings that nobody rings for fill meanwhile: 1 024 records are over 3 ms of launches.
inline constexpr core::TimeNs kDrainNs = 2'000'000;

class GateWatch {
 public:
  GateWatch(const Roster& roster, const Reports& reports, Presence& presence)
      : roster_(roster), reports_(reports), presence_(presence) {}

  // Claims are taken: launches at open gates change nobody's fate, so that they keep no one awake.
  void begin() { news_ = false; }
  void note(const Client& client, const Claim& claim) {
    if (!news_) news_ = !Intake::is_gated(claim) || !client.gates_open();
  }
  bool news() const { return news_; }  // since begin()

  // It is time to tell(), though no client wrote anything.
  bool due(core::TimeNs now) const { return !told_all_ || now >= told_at_ + kLookNs; }
  // Tells the core of each client's gates, as much as a turn has room for.
  void tell(core::TimeNs now);
  // When tell() is due next, with nobody to ring.
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
