// The most that a client may use of a channel beside others, as a mean over kMeanUs: issue slots,
// L2 and DRAM bandwidth. A rule says so (issue_max, l2_max, dram_max), as parts of the channel's
// peak.
//
// The currency is µs of a channel that is all its own. A launch spends its use times its time alone
// as it goes: sharing stretches a kernel, and moves no more bytes. The account is refilled at the
// limit, by all of the time while nobody else is there. Whoever owes waits. So a mean is over the
// limit by kAhead and one launch at most. A launch longer than that is paid for afterwards, by
// kOwedUsMax of waiting at most: else the starvation bound would let launches go, and add to a debt
// without end.
//
// What nobody measured spends nothing: its use is told to be unknown. Used by the Scheduler alone,
// inside its calls; nothing here allocates.
#pragma once

#include <array>
#include <optional>

#include "daemon/core/event.h"
#include "daemon/model/interference.h"

namespace heddle::core {

struct CeilingStatus {
  Channel channel = Channel::kIssue;
  double max = 0;
  // A mean over the last Ceiling::kToldUs beside others; none: of nothing that was launched there
  // anybody knows it.
  std::optional<double> use;
  double unknown = 0;  // part of those launches, by their time, of which nobody knows it
};

class Ceiling {
 public:
  static constexpr double kMeanUs = 10'000;
  // Of what kMeanUs allow, so much may be saved up: the rest of the tenth that a mean may be off is
  // one launch's.
  static constexpr double kAhead = 0.05;
  static constexpr double kToldUs = 100'000;
  static constexpr double kOwedUsMax = 500'000;  // half of the usual starvation bound
  static constexpr std::array kChannels = {Channel::kIssue, Channel::kL2, Channel::kDram};
  using Statuses = std::array<CeilingStatus, kChannels.size()>;  // max 0: no limit

  void limit(const ChannelMax& max);
  bool any() const { return any_; }
  void pass(double us, bool beside);
  // A launch goes that takes so long alone, beside others; nullptr: nobody measured its use. Less
  // than 0: so much of one that went is still to come.
  void spend(const Use* use, double us);
  // The channel that it owes most of, in time.
  std::optional<Channel> spent() const;
  // Until it owes nothing beside others; 0: it does not.
  double owes_us() const;
  const Statuses& told() const { return told_; }

 private:
  struct Account {
    double max = 0, balance_us = 0;
    double used_us = 0, known_us = 0;  // since it was last told: spent, and time of what is known
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
