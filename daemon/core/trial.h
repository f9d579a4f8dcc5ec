// The trial of a candidate (shadow.h): asks it within its cost limits, and compares its answers
// with the real grants. Its answers affect only its own world (candidate.h).
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "daemon/core/admitting.h"
#include "daemon/core/candidate.h"
#include "daemon/core/shadow.h"

namespace heddle::core {

class Trial {
 public:
  Trial(const Scene& scene, const Allowances& allowances, const Admitting& admission,
        Policy& candidate, const ShadowLimits& limits);

  bool over() const { return !ended_.empty(); }
  void end(const std::string& why, bool faulted);
  ShadowReport report() const;

  bool hears(bool (Policy::*what)() const) const { return !over() && (candidate_.*what)(); }
  // Calls a hook of the candidate, takes its time, and returns its verdict. Does nothing once the
  // trial is over, or if the hook `may_skip` and the candidate has used up its time.
  template <class Verdict, class Hook>
  Verdict ask(bool may_skip, Hook&& hook);
  void allowance(AllowanceVerdict (Policy::*hook)(Gpu&, ClientId), ClientId id);
  void meet(ClientId id);
  void leave(ClientId id);
  // A launch asks. In the candidate's world it goes at once if the candidate allows its client
  // more.
  void asked(LaunchId id);
  // Dispatches as the scheduler would, until the candidate holds the rest.
  void decide();

  // A launch was granted. `forced`: whatever the policy said, so the candidate could not have held
  // it.
  void granted(uint32_t slot, Decider decider, bool forced);
  void forget(uint32_t slot) { world_.forget(slot); }

 private:
  bool affords();
  bool decide_once();
  ShadowCounts& counts_of(const Client& client);

  const Situation& now_;
  const Roster& roster_;
  const Heads& heads_;
  const Admitting& admission_;
  Policy& candidate_;
  const ShadowLimits limits_;
  Candidate world_;
  std::vector<ShadowOfClient> counted_;
  ShadowReport so_far_;
  std::string ended_;
  TimeNs budget_ns_ = 0, refilled_at_ = 0, skipped_at_ = -1;
};

template <class Verdict, class Hook>
Verdict Trial::ask(bool may_skip, Hook&& hook) {
  if (over()) return {};
  if (!affords() && may_skip) {
    ++so_far_.skipped;
    skipped_at_ = now_.clock;
    return {};
  }
  const TimeNs before = limits_.clock != nullptr ? limits_.clock() : 0;
  Verdict verdict = hook(candidate_, world_);
  const TimeNs took = limits_.clock != nullptr ? limits_.clock() - before : 0;
  budget_ns_ -= took;
  ++so_far_.calls;
  so_far_.spent_us += to_us(took);
  so_far_.longest_us = std::max(so_far_.longest_us, to_us(took));
  HookResult result;
  if constexpr (std::is_same_v<Verdict, HookResult>) {
    result = verdict;
  } else {
    result = verdict.result;
  }
  if (result == HookResult::kFault) end("the candidate faulted", true);
  return verdict;
}

}  // namespace heddle::core
