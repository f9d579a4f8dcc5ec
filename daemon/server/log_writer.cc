#include "daemon/server/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

namespace heddle::server {
namespace {

constexpr std::chrono::seconds kLastWords(1);

// What standard error does not take, a full disk or a reader that has gone, is lost.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd writable{STDERR_FILENO, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

std::shared_ptr<LogWriter> LogWriter::start() {
  auto writer = std::make_shared<LogWriter>();
  sigset_t all, before;  // signals are the loop's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([writer] { writer->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return writer;
}

void LogWriter::put(std::string line) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + line.size() > kBytes) {
    ++lost_;
    return;
  }
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

void LogWriter::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLastWords, [this] { return stopped_; });
}

uint64_t LogWriter::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void LogWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !lines_.empty(); });
    if (lines_.empty()) break;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    write_all(line);
    lock.lock();
    bytes_ -= line.size();
  }
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace heddle::server
