// Which broken promises the log has still to tell. Told the time; no clock of its own.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "daemon/core/scheduler.h"

namespace heddle::server {

class BrokenPromises {
 public:
  // A line for a client this often at most: a promise that cannot be kept breaks each second.
  static constexpr core::TimeNs kTellNs = 10'000'000'000;

  // From when on untold() is worth its while.
  core::TimeNs next() const { return next_; }
  // Those of a device's `clients` with a block that broke since untold() returned them last.
  std::vector<const core::ClientStatus*> untold(std::span<const core::ClientStatus> clients,
                                                core::TimeNs now) {
    std::vector<const core::ClientStatus*> fresh;
    std::map<core::ClientId, uint64_t> broken;  // without those who have gone
    for (const core::ClientStatus& client : clients) {
      const core::ClientId id = client.view.id;
      if (client.promise.broken > told_[id]) fresh.push_back(&client);
      if (client.promise.broken > 0) broken[id] = client.promise.broken;
    }
    told_ = std::move(broken);
    next_ = now + kTellNs;
    return fresh;
  }

 private:
  std::map<core::ClientId, uint64_t> told_;
  core::TimeNs next_ = 0;
};

}  // namespace heddle::server
