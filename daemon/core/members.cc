#include "daemon/core/members.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heddle::core {
namespace {

template <size_t N>
std::string text(const char (&chars)[N]) {
  return std::string(chars, strnlen(chars, N));
}

}  // namespace

void Members::attached(const Event& e) {
  if (e.attached.priority >= kPriorityCount || e.client == 0 || roster_.find(e.client) != nullptr) {
    ++now_.stats.rejected;
    return;
  }
  auto owned = std::make_unique<Client>();
  Client& c = *owned;
  c.id = e.client;
  c.who.task = e.attached.task;
  c.who.name = text(e.attached.name);
  c.who.label = text(e.attached.label);
  c.who.pid = e.attached.pid;
  c.who.uid = e.attached.uid;
  learning_.attach(c, e.attached.profile_runs);
  const AttachedBody& b = e.attached;
  set_terms(c, {b.share, b.slo_ms, b.priority, b.slowdown_max, b.channel_max, b.compute});
  c.got.pass(e.at / kSecondNs, 0);
  c.rule.fail_closed = e.attached.fail_closed;
  c.rule.gates = e.attached.gates;
  c.place.groups = e.attached.groups;
  c.place.groups.count = std::min(c.place.groups.count, GroupCount(kSmGroups));
  c.place.sm_set = e.attached.sm_set;
  roster_.add(std::move(owned));
  places_.give_family(c, seat_.family(), b.made_sets);
  seat_.allowance(c, &Policy::client_init);
  now_.allowances_dirty = now_.dispatch_wanted = true;
}

void Members::detached(Client& c) {
  admission_.forget(c);
  seat_.exit(c);
  gpu_time_.set_resident(c.gpu_time, false);
  promises_.forget(c);
  ceilings_.forget(c);
  stops_.forget(c);
  learning_.detach(c);
  roster_.remove(c);
  now_.allowances_dirty = now_.dispatch_wanted = true;
}

void Members::left_gates(Client& c) {
  c.rule.gates = false;
  c.rule.ungated = true;
  now_.allowances_dirty = now_.dispatch_wanted = true;
}

void Members::set_terms(Client& c, const TermsBody& terms) {
  c.rule.priority = terms.priority;
  c.rule.share = terms.share > 0 ? terms.share : 1;
  c.rule.slo_ms = terms.slo_ms;
  c.rule.compute = terms.compute;
  promises_.promise(c, terms.slowdown_max);
  ceilings_.limit(c, terms.channel_max);
}

void Members::terms(Client& c, const TermsBody& terms) {
  if (terms.priority >= kPriorityCount) {
    ++now_.stats.rejected;
    return;
  }
  const bool updates = seat_.hears(&Policy::hears_updates);
  if (!updates) seat_.exit(c);
  set_terms(c, terms);
  roster_.move(c);
  c.bound.added_us_max = 0;
  c.standing.allowance_sent = false;  // its launch priority may have changed
  now_.allowances_dirty = now_.dispatch_wanted = true;
  if (updates) return seat_.allowance(c, &Policy::client_update);
  c.standing.forget_policy();
  seat_.allowance(c, &Policy::client_init);
  if (c.active) seat_.allowance(c, &Policy::client_active);
  admission_.ask_again(c);
}

}  // namespace heddle::core
