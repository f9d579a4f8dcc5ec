// What heddled does about a mistake of its own (core/check.h): it counts each, tells of each place
// once, and has the bypass opened, so that nobody waits for who no longer knows what it does.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/check.h"
#include "daemon/server/log.h"

namespace heddle::server {

class Mistakes {
 public:
  explicit Mistakes(Log& log) : log_(log) {}

  // An invariant does not hold: HEDDLE_CHECK_IN(mistakes, ...), and what schedulers call. May be
  // called from within a scheduler.
  void on_broken(const core::Broken& broken);
  // True if one broke since the last call: the bypass is to be opened. Not from within a scheduler.
  bool take_news() {
    if (!broke_) [[likely]]
      return false;
    tell();
    return true;
  }
  uint64_t count() const { return count_; }

 private:
  void tell();

  Log& log_;
  uint64_t count_ = 0;
  std::vector<core::Broken> places_;  // one of each ...
  size_t told_ = 0;                   // ... and how many of them are in the log
  bool broke_ = false;
};

}  // namespace heddle::server
