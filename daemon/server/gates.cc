#include "daemon/server/gates.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "ipc/gate.h"

namespace heddle::server {
namespace {

using ipc::gate_later;
using ipc::gate_lets;

// While the gates stand open, the next unit of a stream counts as begun this long after the
// predicted end of the one before, even if that is not over: if the GPU writes no words about ends,
// and if it does.
constexpr core::TimeNs kSilentNs = 1'000'000, kLateNs = 20'000'000;
// As long as claimed work counts in the core (kClaimedNs).
constexpr core::TimeNs kUnheardNs = 2'000'000'000;
// While the gates stand open, at most so many units wait: the oldest beyond count as begun.
constexpr size_t kWaitingMost = 1024;

uint16_t thread_of(size_t device) { return static_cast<uint16_t>(ipc::kThreads + device); }

uint32_t ticket_of(const Claim& claim) { return claim.fields.ask_seq; }

bool stops_inside(const Claim& claim) {
  return claim.fields.kind == wire::Kind::GRAPH && claim.fields.may_follow > 0;
}

}  // namespace

bool GateQueue::Device::may_recall(const Claim& claim) const {
  return stops_inside(claim) && !ipc::gate_lets(floor, ticket_of(claim));
}

bool GateQueue::add(const Claim& claim, float predicted_us) {
  used_ = std::max<size_t>(used_, claim.fields.device + 1u);
  Device& d = devices_[claim.fields.device];
  if (d.waiting.size() + d.fresh.size() >= kMost) return false;
  const uint32_t ticket = ticket_of(claim);
  touched_ = true;
  d.fresh.push_back(claim);
  d.fresh.back().fields.duration_us = std::max(predicted_us, 1.0F);
  threads.add(d.fresh.back());
  d.newest = gate_later(d.newest, ticket);
  return true;
}

// Merges the claims of a turn into those that wait. The tickets of several threads may be read in
// another order than they were drawn. The unit that has asked stays the first. One merge for a
// whole turn costs one sort, whatever order a client writes in.
void GateQueue::merge(Device& d) {
  if (d.fresh.empty()) return;
  // A total order of all ticket numbers, so that a hostile client's numbers cannot break the sort.
  const uint32_t oldest = d.newest - (uint32_t{1} << 31);
  const auto before = [oldest](const Claim& a, const Claim& b) {
    return ticket_of(a) - oldest - 1 < ticket_of(b) - oldest - 1;
  };
  if (!std::ranges::is_sorted(d.fresh, before)) {  // a sort allocates
    std::stable_sort(d.fresh.begin(), d.fresh.end(), before);
  }
  const size_t first = std::max<size_t>(d.recalled, d.asked ? 1 : 0), there = d.waiting.size();
  d.waiting.insert(d.waiting.end(), d.fresh.begin(), d.fresh.end());
  d.fresh.clear();
  const auto at = [&d](size_t i) { return d.waiting.begin() + static_cast<std::ptrdiff_t>(i); };
  if (there > first && before(*at(there), *at(there - 1))) {
    std::inplace_merge(at(first), at(there), d.waiting.end(), before);
  }
}

std::optional<Claim> GateQueue::next(core::TimeNs now, bool all_open, bool if_touched) {
  if (if_touched && !touched_) return std::nullopt;
  for (size_t i = 0; i < used_; ++i) {
    Device& d = devices_[i];
    if (!d.ended.empty()) {
      Claim claim = d.ended.front();
      d.ended.pop_front();
      claim.at = now;
      return claim;
    }
    if (auto claim = next(i, now, all_open)) return claim;
  }
  touched_ = false;
  return std::nullopt;
}

std::optional<Claim> GateQueue::next(size_t i, core::TimeNs now, bool all_open) {
  Device& d = devices_[i];
  merge(d);
  if (std::exchange(d.moved, false)) {
    d.heard = now;
    d.held = 0;
    d.silent = false;
  }
  d.silent |= !d.under_way.empty() && now - d.heard > kUnheardNs;
  if (d.silent) {
    if (auto claim = let_be(i, now)) return claim;
    if (!threads.any()) return std::nullopt;
  }
  all_open |= given_up_ || ipc::gate_is_open(d.floor, d.newest);
  if (d.closing) {
    d.closing = std::ranges::any_of(d.under_way, [&](const auto& c) { return d.may_recall(c); });
    if (d.closing && !d.asked) return recall(i, now);
  }
  if (d.waiting.empty()) return std::nullopt;
  const uint32_t ticket = ticket_of(d.waiting.front());
  const bool finished = d.recalled > 0 && over(i, ticket);
  const bool goes = all_open || (d.recalled > 0 ? d.open || gate_lets(d.floor, ticket)
                                                : may_have_begun(i, d.waiting.front(), now));
  const bool withdraws = d.asked && (goes || finished || d.closing);
  if (d.asked && !withdraws) return std::nullopt;
  Claim claim = d.waiting.front();
  claim.thread = thread_of(i);
  claim.seq = ticket;
  claim.at = now;
  if (std::exchange(d.asked, false)) {
    claim.source = Claim::Source::kWithdrawal;
    return claim;
  }
  if (finished) {
    d.waiting.pop_front();
    --d.recalled;
    return next(i, now, all_open);
  }
  if (goes) {
    // Its ticket was released before its record was read, and it may stand at a gate inside.
    d.closing |= !d.running && !all_open && stops_inside(claim);
    return pop(i, now);
  }
  if (d.open) return std::nullopt;  // it has not begun
  claim.source = Claim::Source::kAsk;
  claim.fields.duration_us = 0;  // the core computes the time of a graph's pieces itself
  const bool whole = !stops_inside(claim);
  for (size_t k = 0; whole && k < d.waiting.size() && ticket_of(d.waiting[k]) == ticket; ++k) {
    claim.fields.duration_us += d.waiting[k].fields.duration_us;
  }
  d.asked = true;
  return claim;
}

// The device is silent for too long: all its launches go, and the core is told of none, because it
// would wait for each one's end. If threads wait, the core goes on deciding who goes, but counts
// the launches under way as done.
std::optional<Claim> GateQueue::let_be(size_t i, core::TimeNs now) {
  Device& d = devices_[i];
  const bool all = !threads.any();
  if (all && std::exchange(d.asked, false)) {
    Claim claim = d.waiting.front();
    claim.source = Claim::Source::kWithdrawal;
    claim.thread = thread_of(i);
    claim.seq = ticket_of(claim);
    claim.at = now;
    return claim;
  }
  if (all && !d.open && (!d.waiting.empty() || !d.running)) {
    d.released = d.newest;
    let(i, d.released);
    run(i, true);
  }
  if (all) {
    d.waiting.clear();
    d.recalled = 0;
    d.closing = false;
  }
  if (d.under_way.empty()) return std::nullopt;
  Claim claim = d.under_way.front();
  d.under_way.clear();
  claim.at = now;
  claim.fields.kind = wire::Kind::COMPLETION;
  claim.fields.stream = ipc::kAllStreams;
  claim.fields.evidence = wire::Evidence::MARKER;
  claim.fields.duration_us = 0;
  return claim;
}

// Recalls the newest graph under way. The newest comes first, so that in the end the oldest is in
// front of `waiting`.
Claim GateQueue::recall(size_t i, core::TimeNs now) {
  Device& d = devices_[i];
  const auto newest = std::find_if(d.under_way.rbegin(), d.under_way.rend(),
                                   [&](const Claim& c) { return d.may_recall(c); });
  Claim claim = *newest;
  d.under_way.erase(std::next(newest).base());
  d.waiting.push_front(claim);
  ++d.recalled;
  if (d.under_way.empty()) d.held = now - d.heard;
  claim.source = Claim::Source::kRecall;
  claim.thread = thread_of(i);
  claim.at = now;
  return claim;
}

Claim GateQueue::pop(size_t i, core::TimeNs now) {
  Device& d = devices_[i];
  Claim claim = d.waiting.front();
  d.waiting.pop_front();
  if (d.recalled > 0) --d.recalled;
  threads.goes(claim);
  claim.waiter = ipc::kThreads;
  d.told = gate_later(d.told, ticket_of(claim));
  d.told_until = now + core::to_ns(static_cast<double>(claim.fields.duration_us));
  claim.thread = thread_of(i);
  claim.at = now;
  claim.seq = ticket_of(claim);
  if (d.under_way.empty()) d.heard = now - d.held;
  d.under_way.push_back(claim);
  if (d.under_way.size() > ipc::kGateUnits) {
    const auto oldest = std::find_if_not(d.under_way.begin(), d.under_way.end(), stops_inside);
    d.under_way.erase(oldest != d.under_way.end() ? oldest : d.under_way.begin());
  }
  return claim;
}

bool GateQueue::over(size_t device, uint32_t ticket) const {
  return page_.done[device][ticket % ipc::kGateUnits].load(std::memory_order_relaxed) == ticket;
}

void GateQueue::look() {
  for (size_t i = 0; i < used_; ++i) look(i);
}

// When a unit of a stream is over, all units before it in that stream are over, too.
void GateQueue::look(size_t i) {
  Device& d = devices_[i];
  merge(d);
  const uint32_t floor = d.floor;
  d.floor = page_.floor[i].load(std::memory_order_acquire);
  if (!d.waiting.empty() || !d.under_way.empty() || d.silent) look_at_done(i);
  check_words(i, floor);
}

void GateQueue::look_at_done(size_t i) {
  Device& d = devices_[i];
  uint32_t ticket = d.newest - std::min(d.newest - d.done, ipc::kGateUnits - 1);
  // The GPU writes no words for tickets of waiting threads, so look only from the oldest known one.
  if (!d.silent) {
    const Claim& oldest = d.under_way.empty() ? d.waiting.front() : d.under_way.front();
    ticket = gate_later(ticket, ticket_of(oldest));
  }
  // A unit at a closed gate is not over, whatever the page says.
  for (; gate_lets(d.newest, ticket) && (d.open || d.has_let(ticket)); ++ticket) {
    if (!over(i, ticket)) continue;
    d.moved |= d.done != ticket;
    d.done = ticket;
  }
  const auto is_over = [&](const Claim& claim) { return over(i, ticket_of(claim)); };
  for (;;) {
    const auto found = std::find_if(d.under_way.rbegin(), d.under_way.rend(), is_over);
    if (found == d.under_way.rend()) break;
    Claim claim = *found;
    over(claim.fields);
    claim.fields.kind = wire::Kind::COMPLETION;
    claim.fields.evidence = wire::Evidence::MARKER;
    claim.fields.duration_us = 0;
    d.ended.push_back(claim);
  }
  // `running` was for the graph that was let go, and that is over: others must ask.
  if (d.running && !d.open && d.recalled > 0 && !std::ranges::any_of(d.under_way, stops_inside)) {
    run(i, false);
  }
}

void GateQueue::let(size_t i, uint32_t upto) {
  ipc::gate_release(page_.word[i], page_.floor[i], upto);
}

void GateQueue::run(size_t i, bool on) {
  Device& d = devices_[i];
  d.running = on;
  ipc::gate_run(page_.running[i], page_.floor[i], d.none_stands_up_to(), on);
}

uint32_t GateQueue::Device::none_stands_up_to() const {
  uint32_t upto = newest;
  const auto look_at = [&upto](const Claim& claim) {
    if (stops_inside(claim) && gate_lets(upto, ticket_of(claim))) upto = ticket_of(claim) - 1;
  };
  std::ranges::for_each(under_way, look_at);
  std::ranges::for_each(waiting, look_at);
  std::ranges::for_each(fresh, look_at);
  return upto;
}

// Checks whether the client's words are what the daemon stored. The shim opens gates while the
// daemon is silent, and a hostile client can open its own. Launches that went are gone. They are
// counted as forced unless the floor moved, and the gates are closed again.
void GateQueue::check_words(size_t i, uint32_t floor_before) {
  Device& d = devices_[i];
  const uint32_t word = page_.word[i].load(std::memory_order_acquire);
  d.floor = page_.floor[i].load(std::memory_order_acquire);  // the shim raises it before the word
  const uint32_t closed = gate_later(d.released, d.floor);
  const bool runs = page_.running[i].load(std::memory_order_acquire) != 0;
  const bool should = d.running || !gate_lets(d.none_stands_up_to(), d.floor);
  if (runs == should && (d.open ? ipc::gate_is_open(word, d.newest) : word == closed)) return;
  const bool counts = !d.open && d.floor == floor_before;
  for (size_t k = 0; k < d.waiting.size() && counts; ++k) {
    const uint32_t ticket = ticket_of(d.waiting[k]);
    const bool went = k < d.recalled ? runs && !should : gate_lets(word, ticket);
    if (went && !gate_lets(closed, ticket) && !gate_lets(d.forced, ticket)) ++forced_;
  }
  d.forced = gate_later(d.forced, d.newest);
  if (!d.open) d.released = gate_later(d.released, gate_lets(word, d.newest) ? d.newest : word);
  let(i, d.open ? ipc::gate_open(d.newest) : d.released);
  run(i, d.running);
}

// Whether a unit may have begun, so that the core must be told. The gate of a unit shows that the
// unit before it in the stream is over. A unit that is told too early counts as released when the
// gates close, and the client above waits for it.
bool GateQueue::may_have_begun(size_t device, const Claim& claim, core::TimeNs now) const {
  const Device& d = devices_[device];
  // A waiting thread launches as soon as its ticket is released.
  if (!d.open || threads.any()) return d.open || d.has_let(ticket_of(claim));
  const bool stands = std::ranges::any_of(d.under_way, [&](const Claim& before) {
    return before.fields.stream == claim.fields.stream && ticket_of(before) != ticket_of(claim) &&
           !over(device, ticket_of(before));
  });
  return !stands || now >= d.told_until + (d.done != 0 ? kLateNs : kSilentNs) ||
         d.waiting.size() > kWaitingMost;
}

bool GateQueue::release(uint16_t thread, core::TimeNs now) {
  const size_t i = thread - ipc::kThreads;
  Device& d = devices_[i];
  if (!d.asked) return false;
  touched_ = true;
  merge(d);
  d.asked = false;
  d.released = gate_later(d.released, ticket_of(d.waiting.front()));
  pop(i, now);
  return true;
}

void GateQueue::let_go(uint16_t thread) {
  const size_t i = thread - ipc::kThreads;
  const Device& d = devices_[i];
  let(i, d.open ? ipc::gate_open(d.newest) : d.released);
  run(i, true);
}

void GateQueue::set_open(size_t i, bool open) {
  Device& d = devices_[i];
  touched_ = true;
  open |= given_up_;
  if (open) {
    let(i, ipc::gate_open(d.newest));
  } else {
    if (d.open) {
      look(i);
      d.released = gate_later(d.told, gate_lets(d.done, d.newest) ? d.newest : d.done + 1);
    }
    let(i, d.released);
  }
  d.open = open;
  d.closing = !open;
  run(i, open);
}

void GateQueue::give_up() {
  given_up_ = true;
  for (size_t i = 0; i < devices_.size(); ++i) set_open(i, true);
}

core::TimeNs GateQueue::look_at(core::TimeNs now) const {
  core::TimeNs at = std::numeric_limits<core::TimeNs>::max();
  for (const Device& d : std::span(devices_).first(used_)) {
    if (!d.asked || d.under_way.empty()) continue;
    const Claim& first = d.under_way.front();
    const auto end = first.at + core::to_ns(static_cast<double>(first.fields.duration_us));
    if (now < end + kSilentNs) at = std::min(at, end);
  }
  return at;
}

void GateQueue::over(const ipc::RecordFields& completion) {
  Device& d = devices_[completion.device];
  touched_ = true;
  const auto over = [&](const Claim& claim) {
    const ipc::RecordFields& f = claim.fields;
    return completion.stream == ipc::kAllStreams ||
           (f.stream == completion.stream && f.stream_seq <= completion.stream_seq);
  };
  d.moved |= std::erase_if(d.under_way, over) > 0 || d.silent;
  // Write the word that the GPU will write once it reaches a later unit.
  std::for_each_n(d.waiting.begin(), d.recalled, [&](const Claim& claim) {
    const uint32_t ticket = ticket_of(claim);
    if (over(claim)) page_.done[claim.fields.device][ticket % ipc::kGateUnits].store(ticket);
  });
}

}  // namespace heddle::server
