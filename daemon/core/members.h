// Members: clients attach, get other terms, and detach.
#pragma once

#include "daemon/core/admitting.h"
#include "daemon/core/stops.h"

namespace heddle::core {

class Members {
 public:
  Members(const Scene& scene, GpuTime& gpu_time, Seat& seat, Admitting& admission, Stops& stops)
      : now_(scene.now),
        roster_(scene.roster),
        promises_(scene.promises),
        ceilings_(scene.ceilings),
        learning_(scene.learning),
        places_(scene.places),
        gpu_time_(gpu_time),
        seat_(seat),
        admission_(admission),
        stops_(stops) {}

  void attached(const Event& event);
  void detached(Client& client);
  // The rules give the client other terms. A policy without a client_update hook sees the client
  // leave and come back, with its waiting launch: decisions by the old terms are forgotten.
  void terms(Client& client, const TermsBody& terms);
  void left_gates(Client& client);

 private:
  void set_terms(Client& client, const TermsBody& terms);

  Situation& now_;
  Roster& roster_;
  Promises& promises_;
  Ceilings& ceilings_;
  Learning& learning_;
  Places& places_;
  GpuTime& gpu_time_;
  Seat& seat_;
  Admitting& admission_;
  Stops& stops_;
};

}  // namespace heddle::core
