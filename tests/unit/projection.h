// What a scheduler did to its clients, told so that two mechanisms can be compared: asks and
// grants, gates, or whatever comes after them. projections.txt keeps a line for each client of each
// run.
//
// What counts:
// - Let go: work became free to run on the GPU, in whatever way (sim::Witness::let_go). It counts
//   with the time that it takes alone, which its program's script says; predictions differ with
//   what a mechanism hears. It counts in the 10 ms in which it was let go.
// - Held: the client has work that waits to be let go, and none of it runs on the GPU. What waits
//   behind the client's own work is not held: some mechanisms let a program post far ahead. The
//   longest stretch is told as well.
// - Where: the SM set and the launch priority of what was let go, by time.
// Which event or decision let it go, in which order, and of which size a unit was, do not count.
//
// Tolerances: programs wait for their own work, so a microsecond here moves what comes later.
// Counted from the beginning of the run to the end of each 10 ms, what was let go or held may
// differ by kSlackPct of 10 ms and kSlackOfSum of the larger sum, and may come 10 ms sooner or
// later. The longest stretch may differ by kLongestUs and by half. The share of a set and priority
// may differ by kPlacePct. By these, 6 of 390 lines differ if heddle takes a third longer to carry
// out what was decided, and 247 if each policy runs the next one's runs. So a change of mechanism
// that differs in more than a few lines, or in most of a policy's, is a change of behaviour.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/event.h"

namespace heddle::core {

// One client of one run.
class Projection {
 public:
  static constexpr TimeNs kBucketNs = 10'000'000, kSampleNs = 50'000;
  static constexpr double kSlackPct = 30, kSlackOfSum = 0.15, kLongestUs = 1'500, kPlacePct = 15;

  // `us` of its work are free to run from `at` on.
  void let_go(TimeNs at, double us, SmSet set, int priority);
  // Whether it is held, in the kSampleNs that end at `at`.
  void sample(TimeNs at, bool held);

  // "NAME let go, in % of each 10 ms; held, too; longest in us; SET/PRIORITY=% ..."
  std::string line(const std::string& name) const;
  // In what two lines differ by more than the tolerances; "" if in nothing.
  static std::string difference(const std::string& was, const std::string& is);

 private:
  static double& at_bucket(std::vector<double>& buckets, TimeNs at);

  std::vector<double> let_go_us_, held_us_;
  double holding_us_ = 0, longest_us_ = 0;
  std::map<std::string, double> places_us_;
};

}  // namespace heddle::core
