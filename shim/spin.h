// A lock for slow paths inside an application: one word, no destructor, nothing to leak at exit.
// Never taken on the launch path except by a try.
#pragma once

#include <pthread.h>
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

// A cancelled thread would leave it taken for ever, so that cancellation waits for the end.
class Held {
 public:
  explicit Held(Spin& spin) : spin_(spin) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
    spin_.lock();
  }
  ~Held() {
    spin_.unlock();
    pthread_setcancelstate(cancel_, nullptr);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Spin& spin_;
  int cancel_ = 0;
};

}  // namespace heddle::shim
