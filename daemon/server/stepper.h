// Steps a core: passes an event in, and carries out each decision in the memory of its client. A
// recorder sees both. Loop thread only; it makes no system call but futex wake-ups.
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

// The consequences of failed checks.
struct BrokenNews {
  std::vector<uint64_t> clients;  // clients to let go
  bool of_all = false;            // the bypass is to be opened
};

// heddled's reaction to its own mistakes (core/check.h): it counts failed checks, and logs each
// place once. If a mistake concerns one client, that client is let go. Otherwise the bypass is
// opened, so that no client waits for a scheduler in a broken state.
class Mistakes {
 public:
  explicit Mistakes(Log& log) : log_(log) {}

  // A check failed, in HEDDLE_CHECK_IN(mistakes, ...) or in a scheduler. May be called from within
  // a scheduler.
  void on_broken(const core::Broken& broken);
  // The consequences since the last call. Not to be called from within a scheduler.
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
  std::vector<core::Broken> places_;  // one for each place
  size_t told_ = 0;                   // how many of those are in the log
  std::optional<BrokenNews> news_;
};

class Stepper {
 public:
  Stepper(const Roster& roster, Mistakes& mistakes) : roster_(roster), mistakes_(mistakes) {}

  // `of`: the client of the event; most decisions are for it. The end of the batch wakes the
  // threads that were granted.
  void step(core::Scheduler& scheduler, const core::Event& event, Client* of = nullptr) {
    if (recorder_ != nullptr) recorder_->event(event);
    const std::span<const core::Decision> decisions = scheduler.step(event);
    if (!decisions.empty()) apply(decisions, of);
  }
  void apply(std::span<const core::Decision> decisions, Client* likely = nullptr);
  // A launch on a device without a scheduler.
  void let_through(Client& client, const Claim& claim) {
    if (client.let_through(claim)) granted_.push_back(&client);
  }
  void note_granted(Client& client) {
    if (client.any_to_wake()) granted_.push_back(&client);
  }
  void wake_granted();

  // nullptr: there is no recording.
  trace::Recorder* recorder() const { return recorder_; }
  void record_to(trace::Recorder* recorder) { recorder_ = recorder; }

 private:
  const Roster& roster_;
  Mistakes& mistakes_;
  std::vector<Client*> granted_;  // clients with threads to wake
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace heddle::server
