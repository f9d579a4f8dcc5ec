// The way into a core and out of it: an event goes in, and each decision that comes out is carried
// out in the memory of its client. A recorder sees both. Loop thread only; it makes no system call
// but futex wake-ups.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "daemon/core/check.h"
#include "daemon/core/scheduler.h"
#include "daemon/server/log.h"
#include "daemon/server/roster.h"
#include "daemon/trace/ring.h"

namespace heddle::server {

// What heddled does about a mistake of its own (core/check.h): it counts each, and tells of each
// place once. If it concerns one client, that one is let go. Else the bypass is opened, so that
// nobody waits for who no longer knows what it does.
// What broke.
struct BrokenNews {
  std::vector<uint64_t> clients;  // that are to be let go
  bool of_all = false;            // the bypass is to be opened
};

class Mistakes {
 public:
  explicit Mistakes(Log& log) : log_(log) {}

  // An invariant does not hold: HEDDLE_CHECK_IN(mistakes, ...), and what schedulers call. May be
  // called from within a scheduler.
  void on_broken(const core::Broken& broken);
  // Since the last call. Not from within a scheduler.
  std::optional<BrokenNews> take_news() {
    if (!news_) [[likely]]
      return std::nullopt;
    tell();
    return std::exchange(news_, std::nullopt);
  }
  uint64_t count() const { return count_; }

 private:
  void tell();

  Log& log_;
  uint64_t count_ = 0;
  std::vector<core::Broken> places_;  // one of each ...
  size_t told_ = 0;                   // ... and how many of them are in the log
  std::optional<BrokenNews> news_;
};

class Stepper {
 public:
  Stepper(const Roster& roster, Mistakes& mistakes) : roster_(roster), mistakes_(mistakes) {}

  // `of`: whose event it is in a batch, and so whose most of the decisions are; the batch's end
  // wakes whom it granted.
  void step(core::Scheduler& scheduler, const core::Event& event, Client* of = nullptr) {
    if (recorder_ != nullptr) recorder_->event(event);
    const std::span<const core::Decision> decisions = scheduler.step(event);
    if (!decisions.empty()) apply(decisions, of);
  }
  void apply(std::span<const core::Decision> decisions, Client* likely = nullptr);
  // A launch on a device that nobody schedules.
  void let_through(Client& client, const Claim& claim) {
    if (client.let_through(claim)) granted_.push_back(&client);
  }
  void note_granted(Client& client) {
    if (client.any_to_wake()) granted_.push_back(&client);
  }
  void wake_granted();

  // nullptr: nothing is recorded.
  trace::Recorder* recorder() const { return recorder_; }
  void record_to(trace::Recorder* recorder) { recorder_ = recorder; }

 private:
  const Roster& roster_;
  Mistakes& mistakes_;
  std::vector<Client*> granted_;  // since whoever sleeps was woken last
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace heddle::server
