// A lock for slow paths inside an application: one word, no destructor, nothing to leak at exit.
// On the launch path it is only ever tried, but for StreamSlot::turn: a stream whose launches make
// detours has that, and others wait there for the calls of one launch. A thread that is cancelled
// while it holds one would leave it taken for ever, so that cancellation waits until it is free.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>

namespace heddle::shim {

class Spin {
 public:
  bool try_lock() {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (taken_.exchange(true, std::memory_order_acquire)) {
      pthread_setcancelstate(before, &before);
      return false;
    }
    cancel_before_ = before;
    return true;
  }
  void lock() {
    while (!try_lock()) sched_yield();
  }
  void unlock() {
    int before = cancel_before_;
    taken_.store(false, std::memory_order_release);
    pthread_setcancelstate(before, &before);
  }
  // In a forked child: whoever held it is not there.
  void forget() { taken_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> taken_{false};
  int cancel_before_ = 0;  // the holder's
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
