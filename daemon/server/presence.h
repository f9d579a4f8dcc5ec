// The presence of clients on GPUs: tells the GPUs' cores that a client comes and goes, its kernels
// and terms, and its records. Passes its task's measurements to the profile store. Loop thread
// only.
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

// Contention: a client is contended, and reports finely, while a less important client waits for a
// GPU that it works on. Loop thread only.
class Contention {
 public:
  Contention(const Roster& roster, const Devices& devices) : roster_(roster), devices_(devices) {}

  // Looks which clients wait, and tells the contended clients.
  void update(core::TimeNs now);
  bool concerns(const Client& client) const;
  // Whether a thread waits for a grant, or did a moment ago. Launches that wait on the GPU do not
  // count, because they hold up no thread.
  bool any() const { return any_; }

 private:
  struct Below {
    int8_t priority = -1;  // of the least important client that waits; -1: none
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
  // Called before an event for a GPU to which the client has posted no work yet: introduces the
  // client there if the GPU's core does not know it.
  void begin(Client& client, const core::Event& event);
  // Tells the core a claim of the client.
  void take(Client& client, const Claim& claim);
  // Tells the core about the oldest launches with tickets, until there is nothing new: a grant for
  // one client may make another launch the oldest. False: there is more than fits a turn.
  bool tell_gated(const std::vector<Client*>& clients, core::TimeNs now);
  // Tells the core which launches went by their tickets. Called before a completion, which may be
  // of those launches.
  void tell_gone(Client& client, core::TimeNs now);
  // Passes on shims' news about stops. True: there was some.
  bool tell_stops(const std::vector<Client*>& clients, core::TimeNs now);
  void register_kernel(Client& client, const KernelMessage& message, core::TimeNs now);
  void tell_terms(const Client& client, core::TimeNs now);
  void tell_memory(const Client& client, uint8_t gpu, const core::MemoryBody& memory,
                   core::TimeNs now);
  void leave(Client& client, core::TimeNs now);
  // Passes newly completed measurements to the profile store.
  void collect_profile(const Client& client);

 private:
  bool has_room(const Client& client, uint32_t index);  // for another kernel
  bool tell_next(Client& client, core::TimeNs now, bool if_touched);
  void tell(const Client& client, core::Event event);  // to each GPU that knows the client

  Devices& devices_;
  Stepper& stepper_;
  PolicyInForce& policy_;
  const Contention& contention_;
  const StopAnswers& stop_answers_;
  profiles::ProfileStore& profiles_;
  Log& log_;
  std::unordered_map<uid_t, size_t> places_;  // taken by the kernels of a user's clients
  bool told_full_ = false;                    // it was logged that new kernels have no place
};

}  // namespace heddle::server
