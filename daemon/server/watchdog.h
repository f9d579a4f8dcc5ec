// Watches the loop from another thread, and tells the service manager while it turns. If the loop
// hangs, systemd (WatchdogSec) aborts heddled, which logs the policy that ran, and starts it again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace heddle::server {

// sd_notify(3) in a few lines, so that the daemon needs no libsystemd.
// Sends `state` ("READY=1", "STOPPING=1") to the service manager; does nothing without one.
void notify_service_manager(const char* state);

class Watchdog {
 public:
  // Looks four times within the manager's time-out. Without a time-out there is no thread.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Called by the loop at each turn.
  void turned() {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // The interval in which the loop must turn; 0: there is no watchdog.
  uint64_t turn_ms() const { return turn_ms_; }

 private:
  uint64_t turn_ms_ = 0;
  std::atomic<uint64_t> turns_{1};
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace heddle::server
