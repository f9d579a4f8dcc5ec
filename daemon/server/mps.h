// NVIDIA's MPS control daemon, through the front end that NVIDIA ships. Everything here blocks
// until a process ends or a time limit passes, so it belongs on a thread of libuv's pool
// (mps_watch.h). One call at a time.
//
// Its documentation (docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html, and man 1
// nvidia-cuda-mps-control of driver 525): the front end finds the daemon by
// CUDA_MPS_PIPE_DIRECTORY, reads commands from standard input, one a line, until its end, and
// answers on standard output. It exits with 0 if it reached the daemon; else it says "Cannot find
// MPS control daemon process".
//   get_server_list      the PIDs of the servers, one a line
//   get_client_list PID  the PIDs of that server's clients, one a line
//   get_default_active_thread_percentage  the part of the SMs that each client gets, 100 unless set
//   quit                 takes no new client, waits for the present ones, then ends
//                        (with -t SECONDS it ends clients: heddle never uses that)
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

// The uid of a process that cannot be seen from here: hidden, or of another PID namespace.
inline constexpr uid_t kUnseenUid = static_cast<uid_t>(-1);

struct MpsProcess {
  pid_t pid = 0;
  uid_t uid = 0;
};

struct MpsServer : MpsProcess {
  std::vector<MpsProcess> clients;
};

// The state of MPS at one look.
struct MpsState {
  bool answers = false;
  pid_t control = 0;           // by its pid file; 0: unknown
  bool shares_cgroup = false;  // with heddled: a service manager that ends heddled ends MPS, too
  std::vector<MpsServer> servers;
  std::vector<MpsProcess> waiting;  // inside cuInit, until another user's clients are gone
  std::string error;                // why it does not answer although it should, with the remedy

  bool has_client(pid_t pid) const;
  size_t clients() const;
};

class MpsControl {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};  // with each process that it starts

  explicit MpsControl(MpsSettings settings, std::chrono::milliseconds patience = kPatience)
      : settings_(std::move(settings)), patience_(patience) {}

  // Starts no process if there is no control daemon's socket.
  MpsState look();

  // Starts a control daemon and waits until it answers. If systemd runs and this process is root,
  // it is the unit heddle-mps.service. Otherwise it has a session of its own, and leaves this
  // process's cgroup if it may (MpsState::shares_cgroup). Its environment is PATH, LD_LIBRARY_PATH
  // (a server must load the libcuda of its clients) and its two directories, which are made. Fails
  // if a directory belongs to another user or cannot be made, or if the program is missing, ends
  // with an error or does not answer.
  Result<void> start();

  // Ends it. If it has clients, or some wait for it, it goes on, and the error names them.
  Result<void> stop();

  // The percentage of the SMs that a client gets by default; none: the daemon does not tell. Starts
  // no process if there is no control daemon's socket.
  std::optional<double> default_percentage();

  // Any thread: ends the present call, and all later ones at once.
  void cancel() { cancelled_ = true; }

 private:
  struct Ended {
    int status = 0;   // exit status, or 128 + signal number; -1: it did not end
    std::string out;  // standard output and error, cut
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

// Fills in directories that the configuration leaves open. For a managed MPS: /run/heddle-mps and
// /var/log/heddle-mps for root, heddle-mps in XDG_RUNTIME_DIR for others ("": there is none).
// Otherwise MPS's own: CUDA_MPS_PIPE_DIRECTORY or /tmp/nvidia-mps, and CUDA_MPS_LOG_DIRECTORY or
// /var/log/nvidia-mps.
void fill_directories(MpsSettings& settings);

// The command that starts the control daemon, under systemd or not.
std::vector<std::string> start_command(const MpsSettings& settings, bool systemd);

// Clients that were put on the pending list according to a control.log, in order:
// "[2026-05-31 23:48:25.153 Control 11107] NEW CLIENT 11811 from user 0: Server is not ready, push
// client to pending list". The log does not say when they leave the list.
std::vector<MpsProcess> pushed_to_wait(std::string_view log);

}  // namespace heddle::server
