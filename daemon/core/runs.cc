#include "daemon/core/runs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

// Numbers of launches that begin with the same three bits are taken for the same.
uint64_t RunComparison::kind_of(uint32_t first_kernel, uint32_t launches) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(launches)) - 3);
  return uint64_t{first_kernel} << 32 | static_cast<uint32_t>(shift) << 8 | launches >> shift;
}

double RunComparison::add(uint64_t kind, double us, double launching_us, bool alone, TimeNs now) {
  if (kinds_.size() >= kKindsMax && !kinds_.contains(kind)) kinds_.clear();
  Kind& k = kinds_[kind];
  double alone_us = 0;
  if (k.known()) {
    const bool by_host = launching_us != kHeldUp && !k.held_up && k.alone_us > 0;
    const double host = by_host ? k.launching_us / k.alone_us : 0;
    alone_us = k.alone_us + host * (launching_us - k.launching_us);
  }
  if (alone) {
    k.held_up = launching_us == kHeldUp;
    if (k.held_up) launching_us = us;  // not looked at while it is
    const bool agrees = k.known() && std::abs(us - alone_us) < kAgree * alone_us;
    k.beside_max = agrees ? std::min(2 * k.beside_max, kBesideMost) : kBesideMax;
    // One that was held up for long does not count as much.
    if (k.known() && us > 2 * k.alone_us) {
      launching_us *= 2 * k.alone_us / us;
      us = 2 * k.alone_us;
    }
    const double weight = std::max(1.0 / ++k.alone, kMemory);
    k.alone_us += (us - k.alone_us) * weight;
    k.launching_us += (launching_us - k.launching_us) * weight;
    k.beside = 0;
  } else {
    ++k.beside;
  }
  if (since_ != 0 && ((alone && kind == wanted_) || !comparing(now))) {
    not_before_ = now + kRest * std::min(now - since_, patience_ns_);
    since_ = 0;
  }
  if (since_ == 0 && now >= not_before_ && k.beside >= (k.known() ? k.beside_max : kUnknownMax)) {
    since_ = now;
    patience_ns_ = std::clamp(static_cast<TimeNs>(3e3 * us), kPatienceNs, kPatienceMostNs);
    wanted_ = kind;
    k.beside = 0;  // it may never come again
  }
  return alone_us;
}

// A run of the client ended that nobody else as important or more was beside. What the client did
// on its own before, since the last, is a part of what it is slowed down of; but not all of it if
// it did nothing, for want of requests.
void Scheduler::State::compare_run(Client& c, TimeNs at) {
  if (!alone_since(c, c.run.start, c.rule.priority)) return c.promise.account.end_run(0, 0, true);
  const bool alone = alone_since(c, c.run.start, kPriorityLowest);
  const double us = to_us(at - c.run.start);
  const double apart_us = to_us(c.run.start - std::exchange(c.run.before, at));
  const uint64_t kind = RunComparison::kind_of(c.run.first, c.run.launches);
  const double alone_us = c.run.comparison.add(kind, us, c.run.launching_us(at), alone, clock);
  c.promise.account.end_run(us, alone_us, !alone);
  if (alone_us == 0) return;
  if (!roster.below(c.rule.priority).empty()) {
    ++runs_above.count;
    runs_above.took_us += us;
    runs_above.alone_us += alone_us;
  }
  RunTimes& sum = runs_of[static_cast<size_t>(c.rule.priority)];
  ++sum.count;
  const double before_us = std::min(apart_us, alone_us);
  sum.took_us += before_us + us;
  sum.alone_us += before_us + alone_us;
  sum.pauses_us += before_us;
}

RunTimes Scheduler::State::runs(int priority) const {
  RunTimes all;
  for (int p = 0; p < std::clamp(priority, 0, kPriorityCount); ++p) {
    const RunTimes& sum = runs_of[static_cast<size_t>(p)];
    all.count += sum.count;
    all.took_us += sum.took_us;
    all.alone_us += sum.alone_us;
    all.pauses_us += sum.pauses_us;
  }
  return all;
}

RunTimes Scheduler::runs_above() const { return state_->runs_above; }

bool Scheduler::State::comparing(int priority) const {
  const auto above = roster.above(priority);
  return std::any_of(above.begin(), above.end(),
                     [&](const Client* c) { return c->run.comparison.comparing(clock); });
}

}  // namespace heddle::core
