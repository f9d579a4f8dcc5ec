// On which GPUs a client is, and what their cores are told of it: that it comes, its kernels and
// terms, that it goes. What was measured of its task goes to the profile store. Loop thread only.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/profile/store.h"
#include "daemon/server/devices.h"
#include "daemon/server/policy_in_force.h"
#include "daemon/server/roster.h"
#include "daemon/server/stepper.h"
#include "daemon/server/stop_asking.h"

namespace heddle::server {

// Who waits for a GPU below whom: a client is contended, and reports finely, while somebody less
// important waits for a GPU that it works on. Loop thread only.
class Contention {
 public:
  Contention(const Roster& roster, const Devices& devices) : roster_(roster), devices_(devices) {}

  // Looks who waits, and tells the clients whom that concerns.
  void update(core::TimeNs now);
  bool concerns(const Client& client) const;
  // A thread waits for a grant, or did a moment ago, and its program with it; what waits on the GPU
  // holds no thread.
  bool any() const { return any_; }

 private:
  struct Below {
    int8_t priority = -1;  // the least important one that waits, -1: none
    core::TimeNs until = 0;
  };

  const Roster& roster_;
  const Devices& devices_;
  std::array<Below, ipc::kDevices> below_;  // by the GPU's number
  bool any_ = false;
  core::TimeNs any_until_ = 0;
};

class Presence {
 public:
  Presence(Devices& devices, Stepper& stepper, PolicyInForce& policy, const Contention& contention,
           const StopAnswers& stop_answers, profiles::ProfileStore& profiles, Log& log)
      : devices_(devices),
        stepper_(stepper),
        policy_(policy),
        contention_(contention),
        stop_answers_(stop_answers),
        profiles_(profiles),
        log_(log) {}

  void introduce(Client& client, uint8_t gpu, core::TimeNs now);
  // The client's first event of that GPU.
  void begin(Client& client, const core::Event& event);
  // Tells the core what the client wrote.
  void take(Client& client, const Claim& claim);
  // And of the oldest launch at each gate: a grant of one client may make the next launch of
  // another the oldest. False: there is more than fits a turn.
  bool tell_gated(const std::vector<Client*>& clients, core::TimeNs now);
  // Before it hears of work that is done: what a thread launched once its ticket went is that work.
  void tell_gone(Client& client, core::TimeNs now);
  // What their shims say of stops; true: there is something new.
  bool tell_stops(const std::vector<Client*>& clients, core::TimeNs now);
  void register_kernel(Client& client, const KernelMessage& message, core::TimeNs now);
  void tell_terms(const Client& client, core::TimeNs now);
  void leave(Client& client, core::TimeNs now);
  // Hands to the profile store what the measurement stages have finished since.
  void collect_profile(const Client& client);

 private:
  bool has_room(const Client& client, uint32_t index);  // for another kernel
  bool tell_next(Client& client, core::TimeNs now, bool if_touched);
  void tell(const Client& client, core::Event event);  // on each GPU that it is known on

  Devices& devices_;
  Stepper& stepper_;
  PolicyInForce& policy_;
  const Contention& contention_;
  const StopAnswers& stop_answers_;
  profiles::ProfileStore& profiles_;
  Log& log_;
  std::unordered_map<uid_t, size_t> places_;  // that the kernels of a user's clients take
  bool told_full_ = false;                    // that nothing is learned of new kernels
};

}  // namespace heddle::server
