#include "shim/link/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace heddle::shim {
namespace {

constexpr uint32_t kLinesPerSecond = 20;

constinit std::atomic<int64_t> second{0};
constinit std::atomic<uint32_t> lines{0};

// HEDDLE_LOG as the first log line found it. Later the application may be changing the environment,
// which the helper thread must not read then.
constinit pthread_once_t asked = PTHREAD_ONCE_INIT;
constinit char target[PATH_MAX] = {};

void ask_target() {
  const char* named = secure_getenv("HEDDLE_LOG");
  if (named == nullptr) return;
  const size_t bytes = strlen(named) + 1;
  if (bytes <= sizeof target) memcpy(target, named, bytes);
}

// The file is opened for each line. Some applications close all descriptors that they do not know,
// and the number of one kept open could then name another file.
void write_line(const char* line, size_t length) {
  const bool to_stderr = strcmp(target, "stderr") == 0;
  const int fd =
      to_stderr ? STDERR_FILENO : open(target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(fd, line, length);
  if (!to_stderr) close(fd);
}

}  // namespace

void log_line(const char* format, ...) {
  pthread_once(&asked, ask_target);
  if (*target == '\0') return;
  const int saved_errno = errno;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (second.exchange(now.tv_sec, std::memory_order_relaxed) != now.tv_sec) lines = 0;
  if (lines.fetch_add(1, std::memory_order_relaxed) < kLinesPerSecond) {
    char line[512];
    int length = snprintf(line, sizeof line, "heddle shim [%d]: ", static_cast<int>(getpid()));
    va_list arguments;
    va_start(arguments, format);
    length +=
        vsnprintf(line + length, sizeof line - static_cast<size_t>(length), format, arguments);
    va_end(arguments);
    if (length > static_cast<int>(sizeof line) - 2) length = static_cast<int>(sizeof line) - 2;
    line[length++] = '\n';
    write_line(line, static_cast<size_t>(length));
  }
  errno = saved_errno;
}

}  // namespace heddle::shim
