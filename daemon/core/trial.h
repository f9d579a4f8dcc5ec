// A candidate is tried: asked within what it may cost, and compared with what is done. Whatever it
// says stays in its own world (candidate.h).
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
  // The candidate's hook, timed; what it returned. Nothing once it is over, or if it `may_skip` and
  // has had its time.
  template <class Verdict, class Hook>
  Verdict ask(bool may_skip, Hook&& hook);
  void allowance(AllowanceVerdict (Policy::*hook)(Gpu&, ClientId), ClientId id);
  void meet(ClientId id);
  void leave(ClientId id);
  // The launch asks, in the candidate's world as well; unless it would not have had to there.
  void asked(LaunchId id);
  // As the scheduler would: again until the candidate holds what is left.
  void decide();

  // `forced`: whatever the policy said, as it would be under the candidate.
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
