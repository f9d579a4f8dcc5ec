// What the recordings keep of a campaign's decisions.
#include <bit>

#include "tests/unit/core_campaign.h"

namespace heddle::core {

void DecisionLog::tell(double value) { tell(std::bit_cast<uint64_t>(value)); }

void DecisionLog::tell(std::string_view text) {
  for (const char c : text) tell(uint64_t{static_cast<unsigned char>(c)});
}

void DecisionLog::decision(const Decision& d) {
  for (const uint64_t value :
       {uint64_t{static_cast<uint16_t>(d.kind)}, uint64_t{d.device},
        uint64_t{static_cast<uint8_t>(d.decider)}, static_cast<uint64_t>(d.at), d.client,
        uint64_t{d.ask_seq}, uint64_t{d.thread}, uint64_t{static_cast<uint8_t>(d.launch_priority)},
        uint64_t{d.managed}, uint64_t{d.sm_set.bits()}, static_cast<uint64_t>(d.allowed),
        uint64_t{d.kernel}, uint64_t{std::bit_cast<uint32_t>(d.predicted_us)}, uint64_t{d.measure},
        uint64_t{d.size.get()}, uint64_t{d.raised}, uint64_t{d.ring.anchor},
        uint64_t{d.ring.positions}, uint64_t{d.sizes.bits()}}) {
    tell(value);
  }
  hashes_.push_back(hash_);
  decisions_.push_back(d);
}

// What status, explain and metrics show.
void DecisionLog::tell(const Scheduler& core, TimeNs now) {
  const Stats& s = core.stats();
  for (const uint64_t count :
       {s.events, s.rejected, s.posted, s.asked, s.granted, s.on_set, s.off_set, s.starved,
        s.by_builtin, s.policy_faults, s.gaps_filled, s.bound_violations,
        core.view().stalls().policy, core.view().stalls().client, core.view().stalls().gpu,
        static_cast<uint64_t>(core.view().last_stall().at),
        static_cast<uint64_t>(core.next_deadline()), uint64_t{core.waiting()},
        core.view().runs_above().count}) {
    tell(count);
  }
  tell(core.view().runs_above().took_us);
  for (const ClientStatus& c : core.view().clients()) {
    const ClientView& v = c.view;
    tell(v.id * 16 + v.active * 8 + v.profiled * 4 + core.view().sized(v.id) * 2 +
         core.view().full(v.id));
    for (const uint64_t count :
         {c.launches, c.granted, c.gaps_filled, c.gaps_exceeded, uint64_t{c.kernels},
          uint64_t{c.runs}, uint64_t{v.queued}, static_cast<uint64_t>(v.allowed), c.promise.blocks,
          c.promise.broken}) {
      tell(count);
    }
    for (const double us : {c.outstanding_us, c.gpu_us, c.added_us_max, c.worst.lasted_us,
                            c.promise.balance_us, c.promise.slowdown, v.inflight_us, v.share}) {
      tell(us);
    }
    tell(c.waits.sum_us());
    const Outlook o = core.view().outlook(v.id, now, 0);
    for (const double us : {o.gap_us, o.duration_us, static_cast<double>(o.queue_end),
                            static_cast<double>(o.idle_since)}) {
      tell(us);
    }
    const Explanation e = core.view().explain(v.id);
    for (const auto* waits : {&e.now, &e.past}) {
      for (const WaitTold& w : *waits) {
        tell(w.waited_us);
        tell(w.held.us_ago);
        for (const std::string* text : {&w.kernel, &w.queue, &w.why, &w.reason, &w.held.reason}) {
          tell(*text);
        }
      }
    }
    for (const KernelProfile& k : core.view().profile(v.id).kernels) {
      tell(double{k.duration.mean_us} + double{k.gap_synchronized.p50_us});
      tell(uint64_t{k.duration.count} * 1000 + k.after.size());
    }
  }
  if (const auto shadow = core.shadow()) {
    tell(shadow->calls);
    tell(shadow->ended);
    for (const ShadowOfClient& c : shadow->clients) {
      tell(c.counts.alike * 1'000'000 + c.counts.sooner * 1'000 + c.counts.later);
      tell(c.counts.candidate.sum_us());
      tell(static_cast<uint64_t>(c.allowed));
    }
  }
}

}  // namespace heddle::core
