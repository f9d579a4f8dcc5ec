// NVIDIA's MPS control daemon, through the front end that NVIDIA ships. Everything here blocks
// until a process ends or patience does, and belongs on a thread of libuv's pool (mps_watch.h); one
// call at a time.
//
// Its documentation (docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html, and man 1
// nvidia-cuda-mps-control of driver 525): the front end finds the daemon by
// CUDA_MPS_PIPE_DIRECTORY, reads commands from standard input, one a line, until its end, and
// answers on standard output. It exits with 0 if it reached the daemon; else it says "Cannot find
// MPS control daemon process".
//   get_server_list      the PIDs of the servers, one a line
//   get_client_list PID  the PIDs of that server's clients, one a line
//   get_default_active_thread_percentage  the part of the SMs that each client gets, 100 unless set
//   quit                 no new client is taken, those that are there are waited for, then all ends
//                        (with -t SECONDS clients are ended: heddle never says that)
// `-d` starts the daemon in the background. Servers are started by the daemon, for one user at a
// time: clients of another wait inside cuInit until the present user's are gone.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/server/config.h"

namespace heddle::server {

// Of a process that is not to be seen from here: hidden, or of a PID namespace beside this one.
inline constexpr uid_t kUnseenUid = static_cast<uid_t>(-1);

struct MpsProcess {
  pid_t pid = 0;
  uid_t uid = 0;
};

struct MpsServer : MpsProcess {
  std::vector<MpsProcess> clients;
};

// What a look found.
struct MpsState {
  bool answers = false;
  pid_t control = 0;           // by its pid file; 0 if unknown
  bool shares_cgroup = false;  // with heddled: a service manager that ends heddled ends MPS as well
  std::vector<MpsServer> servers;
  std::vector<MpsProcess> waiting;  // inside cuInit, for another user's clients to go
  std::string error;                // why it does not answer although it should: place and remedy

  bool has_client(pid_t pid) const;
  size_t clients() const;
};

class MpsControl {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};  // with each process that it starts

  explicit MpsControl(MpsSettings settings, std::chrono::milliseconds patience = kPatience)
      : settings_(std::move(settings)), patience_(patience) {}

  // Starts no process where no control daemon's socket is.
  MpsState look();

  // Starts a control daemon and waits until it answers: as the unit heddle-mps.service where
  // systemd runs and this process is root; else in a session of its own, and out of this process'
  // cgroup where that may be (MpsState::shares_cgroup says). Its environment is PATH,
  // LD_LIBRARY_PATH (a server must load the libcuda of its clients) and its two directories, which
  // are made. Fails where a directory belongs to another user or cannot be made, or the program is
  // not there, ends with an error or does not answer.
  Result<void> start();

  // Ends it, unless it has clients or some wait for it: then they are named and it goes on.
  Result<void> stop();

  // The part of the SMs that a client gets which asks for none, in per cent; none where the daemon
  // does not say. Starts no process where no control daemon's socket is.
  std::optional<double> default_percentage();

  // From any thread: what runs now gives up, and so does everything later.
  void cancel() { cancelled_ = true; }

 private:
  struct Ended {
    int status = 0;   // exit status, 128 and the signal's number, or -1: it did not end
    std::string out;  // both outputs, cut
  };
  Result<Ended> run(const std::vector<std::string>& arguments, std::string_view input);
  Result<std::string> ask(const std::string& command);
  Result<std::vector<pid_t>> list(const std::string& command);
  Result<void> make_directories() const;
  bool wait_until(std::chrono::steady_clock::time_point deadline) const;
  pid_t control_pid() const;

  const MpsSettings settings_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> cancelled_{false};
};

// Fills in what the configuration leaves open. A managed MPS: /run/heddle-mps and
// /var/log/heddle-mps for root, heddle-mps of XDG_RUNTIME_DIR for others ("" if there is none).
// Else where MPS itself looks: CUDA_MPS_PIPE_DIRECTORY or /tmp/nvidia-mps, and
// CUDA_MPS_LOG_DIRECTORY or /var/log/nvidia-mps.
void fill_directories(MpsSettings& settings);

// The command that starts the control daemon, under systemd or not.
std::vector<std::string> start_command(const MpsSettings& settings, bool systemd);

// Clients that a control.log says were put on the list of those that wait, in order:
// "[2026-05-31 23:48:25.153 Control 11107] NEW CLIENT 11811 from user 0: Server is not ready, push
// client to pending list". Where they went from there it does not say.
std::vector<MpsProcess> pushed_to_wait(std::string_view log);

}  // namespace heddle::server
