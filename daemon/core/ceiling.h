// The most that a client may use of a channel beside others, as a mean over kMeanUs: issue slots,
// L2 and DRAM bandwidth. A rule says so (issue_max, l2_max, dram_max), as parts of the channel's
// peak.
//
// The currency is µs of the whole channel. A launch spends its use times its time alone when it
// goes: sharing stretches a kernel, but moves no more bytes. The account refills at the limit, or
// at the full rate while no other client is there. A client that owes waits. So a mean exceeds the
// limit by kAhead and one launch at most. A launch longer than that is paid for afterwards, by
// kOwedUsMax of waiting at most: otherwise the starvation bound would let launches go, and the debt
// would grow without end.
//
// A kernel that was never measured spends nothing, and the status tells how much use is unknown.
// Used by the Scheduler alone, inside its calls; nothing here allocates.
#pragma once

#include <array>
#include <optional>

#include "daemon/core/event.h"
#include "daemon/model/interference.h"

namespace heddle::core {

struct CeilingStatus {
  Channel channel = Channel::kIssue;
  double max = 0;
  // The mean use over the last Ceiling::kToldUs beside others; none: no launch's use was known.
  std::optional<double> use;
  double unknown = 0;  // the part of those launches, by time, whose use is unknown
};

class Ceiling {
 public:
  static constexpr double kMeanUs = 10'000;
  // The part of kMeanUs' allowance that may be saved up. A mean may be off by a tenth; the other
  // half of that is for one launch.
  static constexpr double kAhead = 0.05;
  static constexpr double kToldUs = 100'000;
  static constexpr double kOwedUsMax = 500'000;  // half of the usual starvation bound
  static constexpr std::array kChannels = {Channel::kIssue, Channel::kL2, Channel::kDram};
  using Statuses = std::array<CeilingStatus, kChannels.size()>;  // max 0: no limit

  void limit(const ChannelMax& max);
  bool any() const { return any_; }
  void pass(double us, bool beside);
  // A launch goes beside others that takes `us` alone. nullptr: its use is unknown. A negative time
  // gives back what a launch did not do.
  void spend(const Use* use, double us);
  // The channel with the largest debt, in time; none: the client owes nothing.
  std::optional<Channel> spent() const;
  // The time until the client owes nothing, beside others; 0: it owes nothing.
  double owes_us() const;
  const Statuses& told() const { return told_; }

 private:
  struct Account {
    double max = 0, balance_us = 0;
    double used_us = 0, known_us = 0;  // since the last status: spent, and time of known launches
    double owes_us() const { return balance_us < 0 ? -balance_us / max : 0; }
    double most_us() const { return kAhead * max * kMeanUs; }
  };
  void tell();

  std::array<Account, kChannels.size()> accounts_{};
  Statuses told_{};
  double beside_us_ = 0, launched_us_ = 0;
  bool any_ = false;
};

}  // namespace heddle::core
