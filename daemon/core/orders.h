// What the live policy sees, and its orders, which are done at once.
#pragma once

#include <utility>

#include "daemon/core/queues.h"
#include "daemon/core/sight.h"

namespace heddle::core {

class Orders final : public Sight {
 public:
  using Sight::Sight;

  Queues& queues() { return queues_; }
  const Queues& queues() const { return queues_; }
  // What its hooks saw of the device since the last call.
  Saw take_saw() { return std::exchange(saw_, {}); }

  QueueId queue_create(std::string_view name) override { return queues_.create(name); }
  bool queue_insert(QueueId, LaunchId, double key) override;
  LaunchId queue_peek(QueueId queue, size_t place) const override {
    return queues_.peek(queue, place);
  }
  LaunchId queue_best_fit(QueueId, double us) const override;
  size_t queue_len(QueueId queue) const override { return queues_.size(queue); }
  bool set_window(ClientId, uint32_t window_us, double for_us) override;
  bool set_launch_priority(ClientId, int launch_priority) override;
  bool resize(ClientId) override;

 private:
  Queues queues_;
};

}  // namespace heddle::core
