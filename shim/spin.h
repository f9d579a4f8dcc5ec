// A lock for slow paths inside an application: one word, no destructor, nothing to leak at exit.
// Never taken on the launch path except by a try.
#pragma once

#include <sched.h>

#include <atomic>

namespace heddle::shim {

class Spin {
 public:
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void lock() {
    while (!try_lock()) sched_yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class Held {
 public:
  explicit Held(Spin& spin) : spin_(spin) { spin_.lock(); }
  ~Held() { spin_.unlock(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Spin& spin_;
};

}  // namespace heddle::shim
