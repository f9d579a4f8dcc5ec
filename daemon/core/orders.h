// What the live policy sees, and its orders, which are done at once.
#pragma once

#include <utility>

#include "daemon/core/sight.h"

namespace heddle::core {

class Orders final : public Sight {
 public:
  using Sight::Sight;

  Queues& queues() { return queues_; }
  const Queues& queues() const { return queues_; }
  // What its hooks saw of the device since the last call.
  Saw take_saw() { return std::exchange(saw_, {}); }

  bool queue_insert(QueueId, LaunchId, double key) override;
  bool set_allowance(ClientId, Allowance allowed, double for_us) override;
  bool set_launch_priority(ClientId, int launch_priority) override;
  bool keep_to(ClientId, SmCount sm, double for_us) override;
  bool set_stop(ClientId, StopWhen) override;
  bool set_slice(ClientId, uint32_t slice_us) override;
  bool resize(ClientId) override;
};

}  // namespace heddle::core
