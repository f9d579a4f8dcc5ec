#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <iostream>

#include "daemon/base/files.h"
#include "daemon/base/utc_text.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/trace/trace.h"
#include "daemon/trace/ring.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// The ring holds seconds of the busiest GPU; this often it is emptied.
constexpr int kTakeMs = 20;

volatile sig_atomic_t stopped = 0;

struct Closed {  // a descriptor
  int fd = -1;
  ~Closed() {
    if (fd >= 0) close(fd);
  }
};

double monotonic_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

bool write_all(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

trace::Header header_of(const json& answer, const json& ps, const json& nvml) {
  trace::Header header;
  header.heddle = answer.value("version", "unknown");
  header.mode = answer.value("mode", "unknown");
  header.started = utc_text(time(nullptr));
  header.gpu = header.driver = "unknown";
  header.driver = nvml.value("driver_version", header.driver);
  const json gpus = nvml.value("gpus", json::array());
  if (!gpus.empty()) header.gpu = gpus[0].value("name", header.gpu);
  // What profiles are keyed by; the daemon knows it from its first client on.
  const json known = answer.value("profiles", json::object());
  if (const std::string gpu = known.value("gpu", ""); !gpu.empty()) {
    header.gpu = gpu;
    header.driver = known.value("driver", header.driver);
  }
  for (const json& client : ps.value("clients", json::array())) {
    header.clients.push_back({{"id", client["id"]},
                              {"label", client["label"]},
                              {"exe", client["exe"]},
                              {"priority", client["priority"]}});
  }
  return header;
}

// Empties the ring into the file until told to stop or the daemon hangs up. False: cannot write.
bool copy(trace::Ring& ring, int connection, int file, double seconds) {
  const double end = monotonic_s() + seconds;
  std::string bytes;
  for (bool open = true, asked = false; open;) {
    pollfd hung_up{connection, POLLIN, 0};
    open = poll(&hung_up, 1, kTakeMs) <= 0;
    // The daemon ends the recording when it sees the end of the connection, and then closes it.
    if (!asked && (stopped != 0 || (seconds > 0 && monotonic_s() >= end))) {
      asked = true;
      shutdown(connection, SHUT_WR);
    }
    bytes.clear();
    trace::take(ring, bytes);
    if (!write_all(file, bytes)) return false;
  }
  return write_all(file, trace::end_of(ring));
}

int failed(const RecordOptions& options, ExitCode code, const std::string& what) {
  return show_error(options.as_json, {code, what, {}});
}

}  // namespace

int record(const RecordOptions& options) {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited {};
    sigaction(number, nullptr, &inherited);
    // nohup asks to go on without a terminal.
    if (number == SIGHUP && inherited.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
  // Before the recording begins: the ring would fill meanwhile.
  const json nvml = probe_gpu().value("nvml", json::object());
  server::Request request;
  request.kind = server::Request::Kind::kRecord;
  Closed connection, memory;
  const Answer answer = ask(options.socket, request, connection.fd, memory.fd);
  if (answer.code != kOk) return show_error(options.as_json, answer);
  const Answer ps = ask_ps(options.socket);
  if (ps.code != kOk) return show_error(options.as_json, ps);
  // It names programs and kernels of all users: no file, link or pipe of somebody else's gets them.
  const std::string fresh = options.file + ".new";
  const Result<int> opened = open_beside(options.file, fresh, 0600);
  if (!opened) return failed(options, kFailed, opened.error().message + "; name another FILE");
  const Closed file{*opened};
  if (rename(fresh.c_str(), options.file.c_str()) != 0) {
    const int error = errno;
    unlink(fresh.c_str());
    return failed(options, kFailed,
                  options.file + ": cannot be written: " + strerror(error) + "; name another FILE");
  }
  void* mapped =
      mmap(nullptr, sizeof(trace::Ring), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
  if (mapped == MAP_FAILED) {
    return failed(options, kFailed,
                  "record: the daemon sent no memory; use the heddle of its release");
  }
  auto& ring = *static_cast<trace::Ring*>(mapped);
  if (!write_all(file.fd, trace::Encoder::header(header_of(answer.json, ps.json, nvml))) ||
      !copy(ring, connection.fd, file.fd, options.seconds)) {
    return failed(options, kFailed,
                  options.file + ": cannot be written: " + strerror(errno) + "; make room");
  }
  const uint64_t records = ring.records.load(), lost = ring.dropped.load();
  if (options.as_json) {
    write_json({{"file", options.file}, {"records", records}, {"lost", lost}});
  } else {
    std::cout << options.file << ": " << records << " records";
    if (lost > 0) std::cout << ", " << lost << " lost: the disk was too slow";
    std::cout << '\n';
  }
  return kOk;
}

}  // namespace heddle::cli
