// Limits how many log lines a user's programs may cause. Otherwise a user who starts programs, or
// sends nonsense, could fill a disk and bury other lines. The caller passes the time.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::server {

// The user that caused a line. Root of a container has uid 0, too, so the unprivileged have counts
// of their own.
struct Causer {
  uid_t uid;
  bool privileged;

  auto operator<=>(const Causer&) const = default;
};
// A client of an unknown user.
inline constexpr Causer kSomeClient{static_cast<uid_t>(-1), false};

class LogLimit {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr uint64_t kLines = 100;  // of a user in a window
  // Beyond so many users, further ones count as kSomeClient, except the privileged.
  static constexpr size_t kUsers = 64;

  struct LeftOut {
    uint64_t lines = 0, more = 0;
    std::string event;  // of the last line that was left out
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
  // Ends the window. Returns the users whose lines were left out, and how many.
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
