// Promises: a client is slowed by others by no more than its rule's slowdown_max. The currency is
// µs that are added to its runs.
//
// An account refills at kAim x (slowdown_max - 1) of the time that its client is at work: aiming at
// 1.07 keeps 1.10. Each launch beside it is charged its price when it goes, the part of its time
// that the client is predicted to lose (interference.h). A run that ended says what was really
// added (runs.h): the account is put right by the difference, and the price of that neighbour is
// corrected. Time-sliced, or where nothing is known of a kernel, prices are guesses until then.
//
// Used by the Scheduler alone, inside its calls; nothing here allocates.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/core/event.h"
#include "daemon/core/interference.h"

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

// What is known of promises by `status`.
struct PromiseStatus {
  double slowdown_max = 0;  // 0: nothing was promised
  double balance_us = 0;
  double slowdown = 0;  // measured, of the last block of runs; 0: there was none
  uint64_t blocks = 0, broken = 0;
  Channel channel = Channel::kSlots;  // that was charged most in the last one that was broken
};

// What is added to a client for a neighbour's launch.
struct Price {
  double us = 0;
  Channel channel = Channel::kSlots;
};

class Account {
 public:
  static constexpr double kAim = 0.7;
  // A pause, or a neighbour that pauses, must not save up more than that much time at work earns.
  static constexpr double kSavedUs = 100'000;
  // Promises are judged by blocks of so much time and so many runs.
  static constexpr double kBlockUs = 1e6;
  static constexpr uint32_t kBlockRuns = 30;
  // Of a run's charges, for the neighbour that its correction is for.
  static constexpr double kMostly = 0.7;

  void promise(double slowdown_max);  // 0: nothing; what was saved or owed is forgotten
  bool promised() const { return slowdown_max_ > 0; }
  void at_work(double us);
  // The price, corrected for that neighbour.
  Price corrected(ClientId neighbour, Price price) const;
  // A price beyond all that can be saved is paid once that is: else it would never be let go.
  bool affords(double us) const;
  void charge(ClientId neighbour, const Price& predicted);
  // A run ended that took `took_us`, and takes `alone_us` alone; 0: that is not known.
  void end_run(double took_us, double alone_us);
  PromiseStatus status() const;

 private:
  struct Neighbour {
    ClientId id = 0;
    Correction correction;
    double predicted_us = 0;  // of this run, as predicted
    uint64_t used = 0;        // the least recently used one makes room
  };
  double most_us() const { return kSavedUs * kAim * (slowdown_max_ - 1); }
  void correct(double took_us, double alone_us);
  void end_block();

  double slowdown_max_ = 0, balance_us_ = 0;
  double charged_us_ = 0, predicted_us_ = 0;  // of this run
  std::array<Neighbour, 8> neighbours_{};
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
    uint32_t kernel = 0, fence = 0, version = 0;
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
