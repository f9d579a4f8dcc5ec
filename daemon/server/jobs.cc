#include "daemon/server/jobs.h"

#include <utility>

namespace heddle::server {

Jobs::~Jobs() { finish(); }

void Jobs::add(std::function<void()> work, std::function<void()> then) {
  waiting_.push_back({std::move(work), std::move(then)});
  if (!running_) begin();
}

void Jobs::finish() {
  while (running_) {
    waiting_.clear();
    uv_run(loop_, UV_RUN_ONCE);
  }
}

void Jobs::begin() {
  running_ = true;
  current_ = std::move(waiting_.front());
  waiting_.pop_front();
  request_.data = this;
  const auto work = [](uv_work_t* request) { static_cast<Jobs*>(request->data)->current_.work(); };
  const auto done = [](uv_work_t* request, int) {
    auto& jobs = *static_cast<Jobs*>(request->data);
    const Job job = std::exchange(jobs.current_, {});
    job.then();  // jobs that it adds wait until it returns
    jobs.running_ = false;
    if (!jobs.waiting_.empty()) jobs.begin();
  };
  uv_queue_work(loop_, &request_, work, done);
}

}  // namespace heddle::server
