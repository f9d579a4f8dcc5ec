// The thread that writes the log: standard error may be a pipe that nobody reads, or a disk that
// does not answer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace heddle::server {

class LogWriter {
 public:
  // Of lines that wait; what comes beyond is lost.
  static constexpr size_t kBytes = 256 << 10;

  // The thread has a share in the writer: what it cannot end it outlives, until the process ends.
  static std::shared_ptr<LogWriter> start();

  // Never waits for anything but another put(). The line ends with a newline.
  void put(std::string line);
  // Waits a second at most until all is written.
  void stop();
  uint64_t lost() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;  // of lines_, and of the one that is being written
  uint64_t lost_ = 0;
  bool stopping_ = false, stopped_ = false;
};

}  // namespace heddle::server
