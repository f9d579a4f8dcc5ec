#include "daemon/core/windows.h"

#include <algorithm>

#include "daemon/core/builtin.h"

namespace heddle::core {

void Windows::refresh() {
  now_.windows_dirty = false;
  if (now_.kernels_dirty) sizes_.ask_about_all();
  lent_until_ = kNever;
  highest_attached_ = roster_.highest_attached();
  for (const ClientId id : roster_.ids()) {
    Client& c = *roster_.find(id);
    if (c.standing.choice.lends(now_.clock))
      lent_until_ = std::min(lent_until_, c.standing.choice.lent_until);
    const uint32_t us = now_.bypass ? kWindowLeased : of(c, c.standing.choice);
    send(c, us, builtin_free_streams(c.rule.priority, roster_.highest_active(), us));
  }
}

uint32_t Windows::of(const Client& c, const WindowChoice& choice) const {
  if (choice.refused) return c.rule.fail_closed ? kWindowGated : kWindowLeased;
  if (ceilings_.limits(c)) return kWindowGated;
  const uint32_t builtin =
      builtin_window(c.rule.priority, roster_.highest_active(), highest_attached_, now_.config);
  return std::min(choice.window_us(builtin, now_.clock), c.rule.window_max_us);
}

void Windows::send(Client& c, uint32_t window_us, uint32_t free_streams) {
  const SmSet set = now_.bypass ? SmSet() : places_.isolated_set(c);
  const bool gated = window_us == kWindowGated, above = highest_attached_ < c.rule.priority;
  // The core's own window bounds what is queued for whoever may come. Gates do that better: what
  // stands there can be recalled. What a policy or a rule gave stays a bound.
  const bool own = !c.standing.choice.chosen && c.rule.window_max_us == kWindowLeased;
  const bool beside = !now_.config.alone && (gated || (own && window_us != kWindowLeased));
  const bool gates_wanted = c.rule.gates && !now_.bypass && (beside || above);
  // Who always asks may be stopped for anybody.
  const bool gates_inside = gates_wanted && (gated || above);
  const bool kernels_ask =
      c.rule.gates && seat_.policy() != nullptr && seat_.policy()->chooses_per_launch;
  if (c.standing.window_sent && c.standing.window_us == window_us &&
      c.standing.free_streams == free_streams && c.standing.gates_wanted == gates_wanted &&
      c.standing.gates_inside == gates_inside && c.standing.kernels_ask == kernels_ask &&
      c.standing.refused_sent == c.standing.choice.refused && c.place.window_set == set) {
    return;
  }
  c.place.window_set = set;
  c.standing.window_sent = true;
  c.standing.refused_sent = c.standing.choice.refused;
  c.standing.window_us = window_us;
  c.standing.free_streams = free_streams;
  c.standing.gates_wanted = gates_wanted;
  c.standing.gates_inside = gates_inside;
  c.standing.kernels_ask = kernels_ask;
  progress_.unsettle(c);
  telling_.window(c, now_.bypass);
  // Whoever waits under an opened window would wait for nothing.
  if (window_us != kWindowGated) now_.dispatch_wanted = true;
}

}  // namespace heddle::core
