// What the CUDA microbenchmarks share: error checks, timed bursts, and the two kinds of thread that
// look on while a third one launches.
#pragma once

#include <cuda.h>
#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "samples.h"

#define CHECK(call)                                                                       \
  do {                                                                                    \
    const int check_ = static_cast<int>(call);                                            \
    if (check_ != 0) {                                                                    \
      std::fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, check_); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (0)

namespace heddle::bench {

inline double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

inline CUevent make_event(unsigned flags) {
  CUevent e;
  CHECK(cuEventCreate(&e, flags));
  return e;
}

inline CUstream make_stream() {
  CUstream s;
  CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  return s;
}

// A burst of launches on one stream, timed on both sides. `step(i)` makes the calls of launch i.
class Burst {
 public:
  Burst(CUstream stream, int length)
      : stream_(stream), length_(length), first_(make_event(0)), last_(make_event(0)) {}

  template <typename Step>
  void run(Recorder& r, const Step& step) {
    CHECK(cuStreamSynchronize(stream_));
    CHECK(cuEventRecord(first_, stream_));
    const double start = now_us();
    for (int i = 0; i < length_; ++i) step(i);
    const double host = now_us() - start;
    CHECK(cuEventRecord(last_, stream_));
    CHECK(cuEventSynchronize(last_));
    float gpu_ms = 0;
    CHECK(cuEventElapsedTime(&gpu_ms, first_, last_));
    r.add(0, host / length_);
    r.add(1, gpu_ms * 1e3 / length_);
  }

 private:
  CUstream stream_;
  int length_;
  CUevent first_, last_;
};

// A thread that queries the newest marker, as a shim's helper would. Parked while `kRest`.
class Watcher {
 public:
  enum Mode { kRest, kSpin, kEvery20us };

  explicit Watcher(CUcontext context) : thread_([this, context] { loop(context); }) {}
  ~Watcher() {
    set(kRest);
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void set(Mode mode) {
    {
      std::lock_guard lock(mutex_);
      mode_.store(mode);
    }
    wake_.notify_one();
    while (running_.load() != mode) {
    }
  }
  void publish(CUevent event, unsigned ticket) {
    event_.store(event);
    ticket_.store(ticket);
  }
  // Spins until the published event was seen complete; returns when that was.
  double wait_seen(unsigned ticket) const {
    while (seen_.load() != ticket) {
    }
    return seen_at_us_;
  }

 private:
  void loop(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    prctl(PR_SET_TIMERSLACK, 1UL);  // with the default slack 20 µs become 105-160 (H200)
    for (;;) {
      const Mode mode = mode_.load();
      running_.store(mode);
      if (mode == kRest) {
        std::unique_lock lock(mutex_);
        if (stop_) return;
        if (mode_.load() == kRest) wake_.wait(lock);
        continue;
      }
      const unsigned ticket = ticket_.load();
      if (ticket != 0 && cuEventQuery(event_.load()) == CUDA_SUCCESS && seen_.load() != ticket) {
        seen_at_us_ = now_us();
        seen_.store(ticket);
      }
      if (mode == kEvery20us) {
        const timespec nap = {0, 20'000};
        nanosleep(&nap, nullptr);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::atomic<Mode> mode_{kRest}, running_{kRest};
  std::atomic<CUevent> event_{nullptr};
  std::atomic<unsigned> ticket_{0}, seen_{0};
  double seen_at_us_ = 0;
  std::thread thread_;
};

// Polls two words of mapped memory: the kernel's own flag and a stream-ordered write behind it.
class Poller {
 public:
  Poller() {
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(const_cast<unsigned**>(&words_)), 4096,
                         CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&device_, const_cast<unsigned*>(words_), 0));
    words_[0] = words_[16] = 0;
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        const unsigned want = ticket_.load();
        if (want == done_.load()) continue;
        while (words_[0] != want) {
        }
        flag_at_us = now_us();
        if (with_write_.load())
          while (words_[16] != want) {
          }
        write_at_us = now_us();
        done_.store(want);
      }
    });
  }
  ~Poller() {
    stop_.store(true);
    thread_.join();
  }
  void arm(unsigned ticket, bool with_write) {
    with_write_.store(with_write);
    ticket_.store(ticket);
  }
  void wait(unsigned ticket) const {
    while (done_.load() != ticket) {
    }
  }
  CUdeviceptr flag() const { return device_; }
  CUdeviceptr written() const { return device_ + 16 * sizeof(unsigned); }

  double flag_at_us = 0, write_at_us = 0;

 private:
  volatile unsigned* words_ = nullptr;
  CUdeviceptr device_ = 0;
  std::atomic<unsigned> ticket_{0}, done_{0};
  std::atomic<bool> with_write_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace heddle::bench
