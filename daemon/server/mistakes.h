// What heddled does about a mistake of its own (core/check.h): it counts each, and tells of each
// place once. If it concerns one client, that one is let go. Else the bypass is opened, so that
// nobody waits for who no longer knows what it does.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/check.h"
#include "daemon/server/log.h"

namespace heddle::server {

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

}  // namespace heddle::server
