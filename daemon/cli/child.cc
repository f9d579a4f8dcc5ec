#include "daemon/cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"

extern char** environ;

namespace heddle::cli {

namespace fs = std::filesystem;
using profiles::Profile;

double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void nap() {
  const timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
}

Child::Child(const std::vector<std::string>& words, const fs::path& log, Output output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // A socket: writing to one whose other end is gone raises no signal.
  int ends[2] = {-1, -1};
  if (output == Output::kTalks && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return;
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const int logged = output == Output::kTalks ? 2 : 1;
  if (!log.empty()) {
    posix_spawn_file_actions_addopen(&files, logged, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
  }
  if (output == Output::kTalks) {
    posix_spawn_file_actions_adddup2(&files, ends[1], 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
  } else if (!log.empty()) {
    posix_spawn_file_actions_adddup2(&files, 1, 2);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  if (posix_spawnp(&pid_, arguments[0], &files, &attributes, arguments.data(), environ) != 0) {
    pid_ = -1;
  }
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  talk_ = ends[0];
  if (ends[1] >= 0) close(ends[1]);
}

Child::~Child() {
  if (!ended()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (talk_ >= 0) close(talk_);
}

bool Child::ended() {
  if (pid_ > 0 && !status_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  }
  return pid_ <= 0 || status_.has_value();
}

bool Child::wait(double patience_s) {
  const double until = seconds_now() + patience_s;
  while (!ended() && seconds_now() < until) nap();
  return ended();
}

void Child::terminate() {
  if (!ended()) kill(pid_, SIGTERM);
}

bool Child::succeeded() const {
  return status_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) == 0;
}

void Child::say(const std::string& line) {
  const std::string text = line + '\n';
  // Of a few bytes, which a socket takes whole or not at all.
  if (talk_ >= 0) send(talk_, text.data(), text.size(), MSG_NOSIGNAL);
}

std::optional<std::string> Child::hear(double patience_s) {
  const double until = seconds_now() + patience_s;
  while (talk_ >= 0) {
    if (const size_t end = heard_.find('\n'); end != heard_.npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    const double left_s = until - seconds_now();
    pollfd in{talk_, POLLIN, 0};
    if (left_s <= 0 || poll(&in, 1, static_cast<int>(left_s * 1e3) + 1) < 1) break;
    char part[4096];
    const ssize_t length = read(talk_, part, sizeof part);
    if (length <= 0) break;
    heard_.append(part, static_cast<size_t>(length));
  }
  return std::nullopt;
}

std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return printable(last.substr(0, 300));
}

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

OwnDaemon::OwnDaemon(const fs::path& folder, uint32_t runs, const std::string& lines)
    : folder_(folder), socket_((folder / "socket").string()) {
  constexpr double kStartS = 10;
  const fs::path kept = folder / "profiles";
  fs::create_directories(kept);
  fs::permissions(kept, fs::perms::owner_all);
  std::ofstream(folder / "heddled.toml")
      << "[daemon]\nsocket = \"" << socket_ << "\"\n"
      << lines << "[policy]\nname = \"builtin\"\nwatch = false\n"
      << "[profiles]\nruns = " << runs << "\ndirectory = \"" << kept.string() << "\"\n";
  daemon_.emplace(std::vector<std::string>{(own_folder() / "heddled").string(), "--config",
                                           (folder / "heddled.toml").string()},
                  folder / "heddled.log");
  server::Request status;
  status.kind = server::Request::Kind::kStatus;
  const double until = seconds_now() + kStartS;
  while (!daemon_->ended() && seconds_now() < until && ask(socket_, status, 200).code != kOk) nap();
  if (daemon_->ended() || seconds_now() >= until) {
    error_ = "heddled did not start: " + last_line(folder / "heddled.log");
  }
}

std::vector<std::string> OwnDaemon::run_words(bool sim) const {
  std::vector<std::string> words = {(own_folder() / "heddle").string(), "--socket", socket_, "run",
                                    "--quiet"};
  if (sim) words.emplace_back("--sim");
  return words;
}

std::vector<Profile> OwnDaemon::profiles() const {
  std::vector<Profile> all;
  for (const std::string& file :
       files_of({(folder_ / "profiles").string()}, ".toml", Depth::kDirectory)) {
    if (Result<Profile> profile = profiles::load(file)) all.push_back(std::move(*profile));
  }
  return all;
}

void OwnDaemon::stop() {
  constexpr double kStopS = 20;
  daemon_->terminate();
  daemon_->wait(kStopS);
}

}  // namespace heddle::cli
