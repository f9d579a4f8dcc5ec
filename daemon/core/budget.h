// Promises: a client is slowed by others by no more than its rule's slowdown_max. The currency is
// µs that are added to its runs.
//
// An account refills at kAim x (slowdown_max - 1) of the time that its client is at work: aiming at
// 1.07 keeps 1.10. Each launch beside it is charged its price when it goes, the part of its time
// that the client is predicted to lose (interference.h). A run that ended says what was really
// added (runs.h): the account is put right by the difference, and the prices of its neighbours are
// corrected. Time-sliced, or where nothing is known of a kernel, prices are guesses until then.
// A price may be wrong, the account is not: while it is in debt, nothing goes but what fits a gap,
// as far as gaps were what they were taken for.
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

// What a client launched lately: its use of each channel while it runs, weighted by time.
class RecentMix {
 public:
  // A launch of predicted `us`; `use` may be nullptr: not known.
  void add(const Use* use, const LaunchShape& shape, double us);
  const Mix& mix() const { return mix_; }
  // Changes with the mix, now and then.
  uint32_t version() const { return version_; }

 private:
  static constexpr double kMemoryUs = 5'000;
  Mix mix_;
  double shape_us_ = 0;  // of the launch that mix_ has the shape of, decaying
  double since_us_ = 0;
  uint32_t version_ = 0;
};

// What is known of a promise by `status`: of the mean, or of the tail (tail.h).
struct PromiseStatus {
  double slowdown_max = 0;  // 0: nothing was promised
  double balance_us = 0;    // none of the tail
  double slowdown = 0;      // measured, of the last block of runs; 0: there was none
  uint64_t blocks = 0, broken = 0;
  bool broken_now = false;  // the last block was
  // That was charged most in the last one that was broken; none: nothing was.
  std::optional<Channel> channel;
};

// What is added to a client for a neighbour's launch.
struct Price {
  double us = 0;
  Channel channel = Channel::kSlots;
  double time_us = 0;     // of the launch's own: what no gap holds; all of it if one does
  bool fits_gap = false;  // predicted to end before its client comes back: it costs nothing
  bool known = true;      // false: nobody can say what it costs, at most all of its time
};

// What a neighbour's launches really cost, over what was predicted: of sums, so that what a launch
// adds to later runs counts as well. (A line fitted to single runs can take all of the cost for its
// offset: then every launch is free.) What is predicted to cost nothing counts with a small part of
// its time, or its price could never rise.
class LearnedCost {
 public:
  static double base_us(const Price& predicted);
  // `base`: of the launches that went in a run, `cost`: what was added to it; in parts of what the
  // run takes alone.
  void add(double base, double cost);
  double corrected_us(const Price& predicted) const;

 private:
  static constexpr double kPrior = 0.25;  // runs; what is predicted counts so much at first
  static constexpr double kMemory = 8;    // runs
  static constexpr double kLeast = 1 / 64.0;
  double base_ = 0, cost_ = 0, prior_ = kPrior;
};

class Account {
 public:
  static constexpr double kAim = 0.7;
  // A pause, or a neighbour that pauses, must not save up more than that much time at work earns.
  static constexpr double kSavedUs = 100'000;
  // Promises are judged by blocks of so much time and so many runs.
  static constexpr double kBlockUs = 1e6;
  static constexpr uint32_t kBlockRuns = 30;

  void promise(double slowdown_max);  // 0: nothing; what was saved or owed is forgotten
  bool promised() const { return slowdown_max_ > 0; }
  double slowdown_max() const { return slowdown_max_; }
  void at_work(double us, bool beside);  // `beside`: others were, too
  // The price, corrected for that neighbour.
  Price corrected(ClientId neighbour, Price price) const;
  // A corrected price. In debt nothing is afforded but what fits a gap and was hardly ever caught
  // there: any other price may be wrong, however low. One beyond all that can be saved is paid once
  // that is: else it would never be let go.
  bool affords(const Price& price) const;
  void charge(ClientId neighbour, const Price& predicted);
  // A run ended that took `took_us`, and takes `alone_us` alone; 0: that is not known. `beside`:
  // others had work in it, be it of launches that were charged to the run before.
  void end_run(double took_us, double alone_us, bool beside);
  PromiseStatus status() const;

 private:
  struct Neighbour {
    ClientId id = 0;
    bool in_gaps = false;  // its launches that fit gaps have a place of their own
    LearnedCost cost;
    double base_us = 0, charged_us = 0;  // of this run
    double share = 0;   // of what is added, by the charges of the last run that had any
    uint64_t used = 0;  // the least recently used one makes room
  };
  // Part of its time that what fits a gap may add all the same.
  static constexpr double kNil = 1 / 64.0;
  double most_us() const { return kSavedUs * kAim * (slowdown_max_ - 1); }
  // What a block may lose in all: if more is owed it is broken already, and paying more saves none
  // that comes. And one launch, which is let go at whatever price, and is paid for.
  double least_us() const {
    const double block_us = std::max(kBlockUs, kBlockRuns * run_us_);
    return -((slowdown_max_ - 1) * block_us + std::max(dearest_us_, dearest_before_us_));
  }
  void keep_within() { balance_us_ = std::clamp(balance_us_, least_us(), most_us()); }
  void correct(double took_us, double alone_us, bool beside);
  void share_out(bool beside);
  void end_block();

  double slowdown_max_ = 0, balance_us_ = 0;
  double run_us_ = 0;                              // alone
  double dearest_us_ = 0, dearest_before_us_ = 0;  // launch of this block, and of the one before
  double charged_us_ = 0, beside_us_ = 0;   // of this run: charges, and while others were at work
  std::array<Neighbour, 16> neighbours_{};  // two of a client at most
  uint64_t uses_ = 0;
  // Of this block.
  double took_us_ = 0, alone_us_ = 0;
  uint32_t runs_ = 0;
  std::array<double, kAllChannels> charged_by_{};
  PromiseStatus last_;
};

// Slowdowns that were predicted of a victim beside one kernel; each in one place.
class PriceCache {
 public:
  struct Key {
    ClientId victim = 0, neighbour = 0;
    uint32_t kernel = 0, version = 0;
    SmSet set{}, victims{};  // of the neighbour's launch, and the victim's
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
