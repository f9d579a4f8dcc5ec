#include "daemon/server/watchdog.h"

#include <stdlib.h>

#include <chrono>

#include "daemon/server/notify.h"

namespace heddle::server {

Watchdog::Watchdog() {
  const char* given = getenv("WATCHDOG_USEC");
  const long long timeout_us = given != nullptr ? strtoll(given, nullptr, 10) : 0;
  if (timeout_us <= 0) return;
  turn_ms_ = static_cast<uint64_t>(timeout_us / 8'000) + 1;
  thread_ = std::thread([this, period = std::chrono::microseconds(timeout_us / 4)] {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, period, [this] { return stopping_; })) {
      const uint64_t turns = turns_.load(std::memory_order_relaxed);
      if (turns != seen) notify_service_manager("WATCHDOG=1");
      seen = turns;
    }
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace heddle::server
