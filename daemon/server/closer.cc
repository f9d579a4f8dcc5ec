#include "daemon/server/connections.h"

#include <signal.h>

#include <thread>
#include <utility>

namespace heddle::server {

void Closer::close(Descriptor fd) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(fd));
  state_->added.notify_one();
  if (state_->waiting.size() <= state_->idle || state_->threads == kThreads) return;
  ++state_->threads;
  sigset_t all, before;  // signals are the loop's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { run(*state); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Closer::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    ++state.idle;
    state.added.wait(lock, [&state] { return !state.waiting.empty(); });
    --state.idle;
    Descriptor fd = std::move(state.waiting.front());
    state.waiting.pop_front();
    lock.unlock();
    { const Descriptor closed = std::move(fd); }
    lock.lock();
  }
}

}  // namespace heddle::server
