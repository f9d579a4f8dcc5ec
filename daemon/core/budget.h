// Promises: other clients slow a client by no more than its rule's slowdown_max. The currency is
// µs added to the client's runs.
//
// An account refills at kAim x (slowdown_max - 1) of the time that its client is at work: aiming at
// 1.07 keeps 1.10. Each launch beside it is charged its price when it goes: the time that the
// client is predicted to lose by it (interference.h). When a run ends, its duration says what was
// really added (runs.h): the account is corrected by the difference, and so are the prices of the
// neighbours. Time-sliced, or for an unknown kernel, prices are guesses until then. A price may be
// wrong; the account is not. While it is in debt, only launches go that fit a gap, and only if
// those of their client have cost next to nothing in gaps so far.
//
// Used by the Scheduler alone, inside its calls; nothing here allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "daemon/core/event.h"
#include "daemon/model/interference.h"

namespace heddle::core {

// The mean use of each channel by a client's recent launches, weighted by time.
class RecentMix {
 public:
  // Adds a launch that is predicted to take `us`; `use` nullptr: unknown.
  void add(const Use* use, const LaunchShape& shape, double us);
  const Mix& mix() const { return mix_; }
  // Changes once per kMemoryUs of launches, so that predictions can be cached by it.
  uint32_t version() const { return version_; }

 private:
  static constexpr double kMemoryUs = 5'000;
  Mix mix_;
  double shape_us_ = 0;  // duration, decaying, of the launch whose shape mix_ has
  double since_us_ = 0;
  uint32_t version_ = 0;
};

// The state of a promise for `heddle status`: of the mean, or of the tail (tail.h).
struct PromiseStatus {
  double slowdown_max = 0;  // 0: nothing was promised
  double balance_us = 0;    // the account's; the tail has none
  double slowdown = 0;      // measured in the last block of runs; 0: there was none
  uint64_t blocks = 0, broken = 0;
  bool broken_now = false;  // the last block broke the promise
  // The channel that was charged most in the last broken block; none: nothing was charged.
  std::optional<Channel> channel;
};

// The time that a neighbour's launch is predicted to cost a client.
struct Price {
  double us = 0;
  Channel channel = Channel::kSlots;
  double time_us = 0;     // the launch's own time beyond the gap; all of it if it fits the gap
  bool fits_gap = false;  // predicted to end before the client comes back: it costs nothing
  bool known = true;      // false: the estimator cannot tell the cost, at most all of its time
};

// The ratio of a neighbour's real cost to the predicted one. It is a ratio of sums, so that delays
// of later runs count, too. (A line fitted to single runs can put all of the cost into its offset:
// then every launch would be free.) A launch that is predicted to cost nothing counts with a small
// part of its time, or its price could never rise.
class LearnedCost {
 public:
  static double base_us(const Price& predicted);
  // `base`: base_us of all launches that went in a run; `cost`: the time added to that run. Both as
  // parts of the time that the run takes alone.
  void add(double base, double cost);
  double corrected_us(const Price& predicted) const;

 private:
  static constexpr double kPrior = 0.25;  // runs: the prediction's weight at first
  static constexpr double kMemory = 8;    // runs
  static constexpr double kLeast = 1 / 64.0;
  double base_ = 0, cost_ = 0, prior_ = kPrior;
};

class Account {
 public:
  static constexpr double kAim = 0.7;
  // An account saves up no more than this much time at work earns, however long a pause is.
  static constexpr double kSavedUs = 100'000;
  // Promises are judged by blocks of at least this much time and this many runs.
  static constexpr double kBlockUs = 1e6;
  static constexpr uint32_t kBlockRuns = 30;

  void promise(double slowdown_max);  // 0: none. A change forgets the balance
  bool promised() const { return slowdown_max_ > 0; }
  double slowdown_max() const { return slowdown_max_; }
  void at_work(double us, bool beside);  // `beside`: others were at work, too
  // The price, corrected for that neighbour.
  Price corrected(ClientId neighbour, Price price) const;
  // Whether the account can pay a corrected price. In debt it affords only a launch that fits a
  // gap, if the neighbour's launches in gaps hardly ever cost anything: any other price may be
  // wrong, however low. A price above the most that can be saved is affordable at a full account:
  // otherwise the launch would never go.
  bool affords(const Price& price) const;
  void charge(ClientId neighbour, const Price& predicted);
  // A run ended that took `took_us`, and would take `alone_us` alone; 0: unknown. `beside`: others
  // had work on the GPU in it, perhaps from launches that were charged to the run before.
  void end_run(double took_us, double alone_us, bool beside);
  PromiseStatus status() const;

 private:
  struct Neighbour {
    ClientId id = 0;
    bool in_gaps = false;  // for its launches that fit gaps; the others have another entry
    LearnedCost cost;
    double base_us = 0, charged_us = 0;  // in this run
    double share = 0;   // of the added time, by the charges of the last run that had any
    uint64_t used = 0;  // the least recently used entry makes room
  };
  // A launch that fits a gap may still cost this part of its time.
  static constexpr double kNil = 1 / 64.0;
  double most_us() const { return kSavedUs * kAim * (slowdown_max_ - 1); }
  // The lowest balance: what a whole block may lose, for a block that owes more is broken already,
  // and paying more would not save a later one. Below that, the dearest launch: it was let go at
  // whatever price, and must be paid for.
  double least_us() const {
    const double block_us = std::max(kBlockUs, kBlockRuns * run_us_);
    return -((slowdown_max_ - 1) * block_us + std::max(dearest_us_, dearest_before_us_));
  }
  void keep_within() { balance_us_ = std::clamp(balance_us_, least_us(), most_us()); }
  void correct(double took_us, double alone_us, bool beside);
  void share_out(bool beside);
  void end_block();

  double slowdown_max_ = 0, balance_us_ = 0;
  double run_us_ = 0;                              // what the last run takes alone
  double dearest_us_ = 0, dearest_before_us_ = 0;  // launch of this block, and of the one before
  double charged_us_ = 0, beside_us_ = 0;          // in this run: charges, and time beside others
  std::array<Neighbour, 16> neighbours_{};         // two entries a client at most
  uint64_t uses_ = 0;
  // In this block:
  double took_us_ = 0, alone_us_ = 0;
  uint32_t runs_ = 0;
  std::array<double, kAllChannels> charged_by_{};
  PromiseStatus last_;
};

// Cache of the predicted slowdowns of a victim beside one kernel, direct-mapped.
class PriceCache {
 public:
  struct Key {
    ClientId victim = 0, neighbour = 0;
    uint32_t kernel = 0, version = 0;
    SmSet set{}, victims{};  // SM sets of the neighbour's launch and of the victim
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    double slowdown = 1;
    Channel channel = Channel::kSlots;
  };
  Entry& at(const Key& key);

 private:
  std::array<Entry, 512> entries_{};
};

}  // namespace heddle::core
