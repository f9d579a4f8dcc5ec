// A spin lock for slow paths inside an application: trivially destructible, nothing to leak at
// exit.
//
// Most launches only try such a lock. Two kinds wait for one: the first launch of a kernel or into
// a stream, for a short table update, and launches into a stream with detours (StreamSlot::turn),
// for the driver calls of another launch there. A thread that was cancelled while it held a lock
// would leave it taken for ever, so cancellation is disabled until the lock is free.
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
  // In a forked child: the thread that held it does not exist there.
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
