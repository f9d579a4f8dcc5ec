#include "daemon/server/watchdog.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>

namespace heddle::server {

void notify_service_manager(const char* state) {
  const char* path = getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || strlen(path) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path, strlen(path));
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + strlen(path));
  // A failure is not reported here: the manager reports a start that timed out.
  (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               length);
  close(fd);
}

Watchdog::Watchdog() {
  const char* given = getenv("WATCHDOG_USEC");
  const long long timeout_us = given != nullptr ? strtoll(given, nullptr, 10) : 0;
  if (timeout_us <= 0) return;
  turn_ms_ = static_cast<uint64_t>(timeout_us / 8'000) + 1;
  thread_ = std::thread([this, period = std::chrono::microseconds(timeout_us / 4)] {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, period, [this] { return stopping_; })) {
      const uint64_t turns = turns_.load(std::memory_order_relaxed);
      if (turns != seen) notify_service_manager("WATCHDOG=1");
      seen = turns;
    }
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace heddle::server
