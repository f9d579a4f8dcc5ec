#include "daemon/core/tail.h"

namespace heddle::core {
namespace {

// The log-likelihood ratio of a slow run, and of any other: 2 % slow runs against 1 %.
constexpr double kSlowSays = 0.6931;     // ln (2 % / 1 %)
constexpr double kOtherSays = -0.01015;  // ln (98 % / 99 %)
constexpr double kBroken = 4.605;        // ln 100: so many times more likely
constexpr double kKept = -2.996;         // - ln 20

}  // namespace

void Tail::promise(double slowdown_max) {
  if (slowdown_max == status_.slowdown_max) return;
  *this = {};
  status_.slowdown_max = slowdown_max > 1 ? slowdown_max : 0;
}

bool Tail::end_run(double took_us, double alone_us) {
  const bool slow = took_us > status_.slowdown_max * alone_us;
  block_.by_times.add(took_us, alone_us);
  block_.took_us += took_us;
  block_.slow += slow ? 1 : 0;
  ++block_.runs;
  const double says = kSlowSays * static_cast<double>(block_.slow) +
                      kOtherSays * static_cast<double>(block_.runs - block_.slow);
  if (block_.runs < kBlockRuns || block_.took_us < Account::kBlockUs) return slow;
  if (says > kKept && says < kBroken) return slow;
  ++status_.blocks;
  status_.broken_now = says > 0;
  status_.broken += status_.broken_now ? 1 : 0;
  status_.slowdown = block_.by_times.p99(block_.runs);
  block_ = {};
  return slow;
}

}  // namespace heddle::core
