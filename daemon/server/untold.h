// Counts of clients, such as of broken promises, of which the log has still to tell. Told the time;
// no clock of its own.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "daemon/core/event.h"

namespace heddle::server {

class Untold {
 public:
  using Counts = std::map<core::ClientId, uint64_t>;
  // A line for a client this often at most: a promise that cannot be kept breaks each second.
  static constexpr core::TimeNs kTellNs = 10'000'000'000;

  // From when on grown() is worth its while.
  core::TimeNs next() const { return next_; }
  // Whose count is higher than it was at the last call. Who has gone is in no `counts`.
  std::vector<core::ClientId> grown(Counts counts, core::TimeNs now) {
    std::vector<core::ClientId> clients;
    for (const auto& [id, count] : counts) {
      if (count > told_[id]) clients.push_back(id);
    }
    told_ = std::move(counts);
    next_ = now + kTellNs;
    return clients;
  }

 private:
  Counts told_;
  core::TimeNs next_ = 0;
};

}  // namespace heddle::server
