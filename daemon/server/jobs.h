// Jobs that wait for disks, name services or compilers. They run off the loop, on a thread of
// libuv's pool, one after the other in the order in which they were added. Loop thread only.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>

namespace heddle::server {

class Jobs {
 public:
  explicit Jobs(uv_loop_t* loop) : loop_(loop) {}
  // Waits for the running job; the others are dropped.
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // `work` runs on the pool once earlier jobs are done with their `then`. Its own `then` follows on
  // the loop. No other job runs between the two, so `work` may read state that only jobs change.
  void add(std::function<void()> work, std::function<void()> then);
  // Runs the loop until the running job is done, and drops the others.
  void finish();

 private:
  struct Job {
    std::function<void()> work, then;
  };
  void begin();

  uv_loop_t* const loop_;
  uv_work_t request_{};
  bool running_ = false;
  Job current_;  // the pool's while it runs
  std::deque<Job> waiting_;
};

}  // namespace heddle::server
