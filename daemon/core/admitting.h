// Admission: which of the waiting launches are granted, and when. The policy decides first, then
// the built-in for launches that the policy did not place. The core enforces the starvation bound.
#pragma once

#include "daemon/core/allowances.h"
#include "daemon/core/explaining.h"
#include "daemon/core/openings.h"
#include "daemon/core/pauses.h"
#include "daemon/core/stalls.h"

namespace heddle::core {

class Candidate;
class Trial;

class Admitting {
 public:
  Admitting(const Scene& scene, Telling& telling, Stalls& stalls, Explaining& told, Seat& seat,
            KernelSizes& sizes, Progress& progress, Allowances& allowances, Openings& openings)
      : now_(scene.now),
        roster_(scene.roster),
        heads_(scene.heads),
        places_(scene.places),
        ceilings_(scene.ceilings),
        pauses_(scene),
        telling_(telling),
        stalls_(stalls),
        told_(told),
        seat_(seat),
        sizes_(sizes),
        progress_(progress),
        allowances_(allowances),
        openings_(openings) {}

  // A launch goes without a grant in this step: under a lease, through open gates, or on its own
  // decision (bypass, exempt, starved).
  void posted(Client& client, const Event& event);
  void asked(Client& client, const Event& event);
  void withdrawn(Client& client, const LaunchBody& launch);
  void forget(const Client& client);  // the client leaves
  // The client's waiting launch, or every waiting launch, is put to the policy anew.
  void ask_again(const Client& client);
  void ask_again_all();

  // Ends a step: refreshes allowances if they may have changed, then grants until no launch may go.
  void settle();
  void reconsider();  // the same, without looking whether it is necessary
  TimeNs deadline() const {
    return heads_.count() > 0 ? std::min(retry_at_, withheld_until_) : kNever;
  }

  // The built-in's choice: the launch of the most important client, equals by turns. A gated client
  // has none while a more important one is busy; below an active one it has one launch on the GPU
  // at a time. 0: no launch may go. `world`: a candidate's world; nullptr: the real one.
  LaunchId pick_builtin(bool unplaced_only, const Candidate* world = nullptr) const;
  // The trial is told of each waiting launch that ends; nullptr: there is no trial.
  void set_trial(Trial* trial) { trial_ = trial; }

 private:
  void stood_at_gate(const Client& client, uint16_t gates_inside, double ran_us, Work& work);
  void enqueue(uint32_t slot);
  void take_back(uint32_t slot);  // from the policy's queue; the policy will be asked again
  void release(uint32_t slot);
  // The launches of a client over a ceiling wait here; let_in() ends that once it owes nothing.
  void withhold(const Client& client);
  void let_in();
  void look_again(const Client& client);  // schedules let_in() for when the client owes nothing
  void refresh_allowances();
  void dispatch();
  bool dispatch_once();
  bool goes_ahead(const Client& client, const AllowanceChoice& choice) const;
  bool grant(LaunchId id, Decider decider, const DispatchVerdict& verdict);
  void free_stuck();
  void starve();

  Situation& now_;
  const Roster& roster_;
  Heads& heads_;
  Places& places_;
  const Ceilings& ceilings_;
  Pauses pauses_;
  Telling& telling_;
  Stalls& stalls_;
  Explaining& told_;
  Seat& seat_;
  KernelSizes& sizes_;
  Progress& progress_;
  Allowances& allowances_;
  Openings& openings_;
  Trial* trial_ = nullptr;
  TimeNs starve_at_ = 0;            // no launch starves before
  TimeNs withheld_until_ = kNever;  // when the first withheld client owes nothing any more
  double again_us_ = 0;             // after IDLE: how soon to dispatch again
  TimeNs retry_at_ = 0;             // next dispatch while launches wait and the policy said IDLE
};

}  // namespace heddle::core
