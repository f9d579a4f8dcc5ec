// How fast jobs really are in the job simulator: from measured tables alone, never from what a
// planner predicts.
//
// Measured: a job alone in a slice, and beside copies of itself. Not measured by anybody: two
// different models together, and an MPS share of a slice. Two rules stand in for those.
// - A job beside others is as slow as beside so many copies of itself as want the same part of the
//   slice. What part a job wants follows from its own curve: a slice that n copies just fill.
// - A share of a slice is worth what a slice of so many SMs is worth.
#pragma once

#include <span>

#include "daemon/plan/table.h"

namespace heddle::plan {

// The pace of each of `n` copies, n >= 1 and any number between, in a slice of that many compute
// slices. 0 if the job does not fit. Beyond the most that was measured, n more take n times as
// long.
double pace_among(const JobCurve& job, uint32_t compute, double n);

// Alone with `share` of the SMs of such a slice.
double pace_of_share(const JobCurve& job, uint32_t compute, double share);

// The part of such a slice that one process of the job wants: 1 over how many it has room for.
double wants(const JobCurve& job, uint32_t compute);

enum class Sharing : uint8_t {
  kTimeSliced,  // n processes take turns: each 1/n of the time, whatever it wants
  kMps,         // all at once
  kPriority,    // all at once, launches of online jobs first (MMK's kernel scheduler)
};

struct Tenant {
  const JobCurve* job;
  bool online;
  double share;  // of the slice's SMs
};

// What offline launches get at least, of the slice, beside online ones that fill it: they go once
// they have waited long enough (MMK, III-C). Ours; the paper prints no such figure.
inline constexpr double kOfflineLeast = 0.05;

// The pace of tenants[which], all in one slice.
double true_pace(std::span<const Tenant> tenants, size_t which, uint32_t compute, Sharing sharing);

}  // namespace heddle::plan
