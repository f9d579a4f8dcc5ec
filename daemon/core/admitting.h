// Admission: launches that ask, and which of them go, when. The policy decides, then the built-in
// for what the policy left; the starvation bound is the core's own.
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

  // A launch is on its way without a grant of this step: by a lease, by gates that stand open, or
  // by itself.
  void posted(Client& client, const Event& event);
  void asked(Client& client, const Event& event);
  void withdrawn(Client& client, const LaunchBody& launch);
  void forget(const Client& client);  // it leaves
  // All that the client waits for, or everybody, meets the policy as if it asked now.
  void ask_again(const Client& client);
  void ask_again_all();

  // What a step ends with: allowances where they may be others, then grants until nobody can go.
  void settle();
  void reconsider();  // the same, whatever was said
  TimeNs deadline() const {
    return heads_.count() > 0 ? std::min(retry_at_, withheld_until_) : kNever;
  }

  // The built-in's choice: the most important client that nobody above holds up; equals by turns,
  // and below somebody active each has one launch on the GPU. 0: none.
  // `world`: of a candidate; nullptr: this one.
  LaunchId pick_builtin(bool unplaced_only, const Candidate* world = nullptr) const;
  // Hears of asks that end; nullptr: there is none.
  void set_trial(Trial* trial) { trial_ = trial; }

 private:
  void stood_at_gate(const Client& client, uint16_t gates_inside, double ran_us, Work& work);
  void enqueue(uint32_t slot);
  void take_back(uint32_t slot);  // from the policy, which will meet it again
  void release(uint32_t slot);
  // Of the clients over a ceiling all that waits; and of those that are so no more.
  void withhold(const Client& client);
  void let_in();
  void look_again(const Client& client);  // once it owes nothing
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
  TimeNs starve_at_ = 0;            // nobody waits for too long before
  TimeNs withheld_until_ = kNever;  // the first of those whose client is over a ceiling
  double again_us_ = 0;             // after IDLE, as the policy wanted it
  TimeNs retry_at_ = 0;             // next dispatch while launches wait and the policy said IDLE
};

}  // namespace heddle::core
