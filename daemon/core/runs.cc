#include "daemon/core/runs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace heddle::core {

namespace {

// How many steps slower than alone, kSteps at most. 0: as fast, or not a number.
size_t steps_of(double times) {
  constexpr double kRounding = 1e-6;
  const double steps = std::ceil(std::log(times) / std::log(SlowRuns::kStep) - kRounding);
  return static_cast<size_t>(std::min(std::max(0.0, steps), static_cast<double>(SlowRuns::kSteps)));
}

}  // namespace

void SlowRuns::add(double took_us, double alone_us) {
  if (const size_t steps = steps_of(took_us / alone_us); steps > 0) ++by_step_[steps - 1];
}

uint64_t SlowRuns::slower(double times) const {
  const uint64_t* const from = by_step_.data() + steps_of(times);
  return std::accumulate(from, by_step_.data() + kSteps, uint64_t{0});
}

double SlowRuns::p99(uint64_t runs) const {
  uint64_t slower = 0;
  size_t step = kSteps;
  while (step > 0 && slower + by_step_[step - 1] <= runs / 100) slower += by_step_[--step];
  return std::pow(kStep, static_cast<double>(step));
}

// Two numbers of launches count as the same if they have equal length and their top three bits
// agree.
uint64_t RunComparison::kind_of(uint32_t first_kernel, uint32_t launches) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(launches)) - 3);
  return uint64_t{first_kernel} << 32 | static_cast<uint32_t>(shift) << 8 | launches >> shift;
}

void RunComparison::Times::add(const Times& run, double weight) {
  us += (run.us - us) * weight;
  launching_us += (run.launching_us - launching_us) * weight;
}

double RunComparison::add(uint64_t kind, double us, double launching_us, bool alone, TimeNs now) {
  if (kinds_.size() >= kKindsMax && !kinds_.contains(kind)) kinds_.clear();
  Kind& k = kinds_[kind];
  double alone_us = 0;
  if (k.known()) {
    const bool by_host = launching_us != kHeldUp && !k.held_up && k.all.us > 0;
    const double host = by_host ? k.all.launching_us / k.all.us : 0;
    alone_us = k.all.us + host * (launching_us - k.all.launching_us);
  }
  if (alone) {
    k.held_up = launching_us == kHeldUp;
    if (k.held_up) launching_us = us;  // not used while `held_up` is set
    const bool agrees = k.known() && std::abs(us - alone_us) < kAgree * alone_us;
    k.beside_max = agrees ? std::min(2 * k.beside_max, kBesideMost) : kBesideMax;
    // An outlier counts as twice the mean at most.
    if (k.known() && us > 2 * k.all.us) {
      launching_us *= 2 * k.all.us / us;
      us = 2 * k.all.us;
    }
    const double only = 1.0 / ++k.alone;
    k.all.add({us, launching_us}, std::max(only, kMemory));
    k.lately.add({us, launching_us}, std::max(only, kMemoryLately));
    if (std::abs(k.lately.us - k.all.us) > kApart * k.all.us) k.all = k.lately;
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
    k.beside = 0;  // this kind may never come again
  }
  return alone_us;
}

}  // namespace heddle::core
