// How many lines of the log a user's programs may cause. Who starts programs, or sends nonsense, at
// will would fill a disk else, and bury what others must read. Told the time; no clock of its own.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::server {

// Whose doing a line is. Root of a container is uid 0 as well: what is not privileged has a count
// of its own.
struct Causer {
  uid_t uid;
  bool privileged;

  auto operator<=>(const Causer&) const = default;
};
// Some client's: whose is not known.
inline constexpr Causer kSomeClient{static_cast<uid_t>(-1), false};

class LogLimit {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr uint64_t kLines = 100;  // of a user in a window
  // All others count as kSomeClient, but who is privileged: nobody takes his place.
  static constexpr size_t kUsers = 64;

  struct LeftOut {
    uint64_t lines = 0, more = 0;
    std::string event;  // the last that was left out
  };

  bool due(int64_t now) const { return now >= end_; }
  // False: the line is to be left out.
  bool admits(Causer causer, std::string_view event, int64_t now) {
    if (counts_.empty()) end_ = now + kWindowNs;
    const bool full = counts_.size() >= kUsers && counts_.count(causer) == 0;
    if (full && !causer.privileged) causer = kSomeClient;
    LeftOut& count = counts_[causer];
    if (++count.lines <= kLines) return true;
    ++count.more;
    count.event = event;
    return false;
  }
  // Ends the window: whose lines were left out, and how many.
  std::map<Causer, LeftOut> take() {
    std::map<Causer, LeftOut> all = std::exchange(counts_, {});
    std::erase_if(all, [](const auto& entry) { return entry.second.more == 0; });
    return all;
  }
  bool left_out() const {
    return std::any_of(counts_.begin(), counts_.end(),
                       [](const auto& entry) { return entry.second.more > 0; });
  }

 private:
  std::map<Causer, LeftOut> counts_;
  int64_t end_ = 0;
};

}  // namespace heddle::server
