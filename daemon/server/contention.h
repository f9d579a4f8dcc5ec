// Who waits for a GPU below whom: a client is contended, and reports finely, while somebody less
// important waits for a GPU that it works on. Loop thread only.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/server/devices.h"
#include "daemon/server/roster.h"

namespace heddle::server {

class Contention {
 public:
  Contention(const Roster& roster, const Devices& devices) : roster_(roster), devices_(devices) {}

  // Looks who waits, and tells the clients whom that concerns.
  void update(core::TimeNs now);
  bool concerns(const Client& client) const;
  // A thread waits for a grant, or did a moment ago, and its program with it; what waits on the GPU
  // holds no thread.
  bool any() const { return any_; }

 private:
  struct Below {
    int8_t priority = -1;  // the least important one that waits, -1: none
    core::TimeNs until = 0;
  };

  const Roster& roster_;
  const Devices& devices_;
  std::array<Below, ipc::kDevices> below_;  // by the GPU's number
  bool any_ = false;
  core::TimeNs any_until_ = 0;
};

}  // namespace heddle::server
