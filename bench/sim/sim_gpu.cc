// heddle-sim-gpu: owns the simulated GPU of one user. Started by the first client of the simulated
// driver; leaves a few seconds after the last.
//
// HEDDLE_SIM_MODE=mps|timeslice  how clients share (mps)
// HEDDLE_SIM_LOG=FILE            one JSON line per kernel, and per client that left, is appended
// HEDDLE_SIM_SOCKET=PATH         where to listen (bench/sim/socket_path.h)
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cstdio>

#include "bench/sim/owner.h"
#include "bench/sim/socket_path.h"

namespace {

constexpr int64_t kLingerNs = 3'000'000'000;

int listen_at(const std::string& path) {
  sockaddr_un address;
  if (!heddle::sim::socket_address(path, address)) {
    fprintf(stderr, "heddle-sim-gpu: %s: too long for a socket; set HEDDLE_SIM_SOCKET\n",
            path.c_str());
    return -1;
  }
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  unlink(path.c_str());  // the starting client holds the lock and found nobody answering
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 64) != 0) {
    fprintf(stderr, "heddle-sim-gpu: cannot listen at %s: %m\n", path.c_str());
    return -1;
  }
  return listener;
}

// A client that starts an owner made the lock and holds it until it is connected: while it does,
// stay. Whoever clears the folder up finds nothing made anew.
bool may_leave(const std::string& path, int listener) {
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return true;
  pollfd pending{listener, POLLIN, 0};
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 || poll(&pending, 1, 0) > 0) {
    close(lock);
    return false;
  }
  unlink(path.c_str());
  return true;  // the lock goes with the process
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1);  // the default slack alone is 50 µs
  heddle::sim::GpuConfig config;
  if (const char* mode = getenv("HEDDLE_SIM_MODE"); mode != nullptr && *mode != 0) {
    if (strcmp(mode, "timeslice") == 0) {
      config.mode = heddle::sim::Mode::kTimeSlice;
    } else if (strcmp(mode, "mps") != 0) {
      fprintf(stderr, "heddle-sim-gpu: HEDDLE_SIM_MODE=%s: want mps or timeslice\n", mode);
      return 2;
    }
  }
  FILE* log = nullptr;
  if (const char* path = getenv("HEDDLE_SIM_LOG"); path != nullptr && *path != 0) {
    log = fopen(path, "ae");
    if (log == nullptr) {
      fprintf(stderr, "heddle-sim-gpu: HEDDLE_SIM_LOG=%s: %m\n", path);
      return 2;
    }
    // Written when a client leaves: on a busy disk one write can stop the GPU for a second.
    constexpr size_t kLogBytes = 64 << 20;
    setvbuf(log, nullptr, _IOFBF, kLogBytes);
  }
  const std::string path = heddle::sim::socket_path();
  const int listener = listen_at(path);
  if (listener < 0) return 1;
  heddle::sim::Owner owner(config, listener, log);
  do {
    owner.run(kLingerNs);
  } while (!may_leave(path, listener));
  if (log != nullptr) fclose(log);
  return 0;
}
