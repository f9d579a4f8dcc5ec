#include "daemon/server/mps.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "daemon/server/handles.h"
#include "ipc/socket.h"

namespace heddle::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnit = "heddle-mps.service";
using Clock = std::chrono::steady_clock;
constexpr int kStepMs = 10;
constexpr size_t kOutputMax = 64 * 1024;
constexpr off_t kLogTail = 256 * 1024;
constexpr size_t kServersMax = 64;  // a longer list is not believed

// The end of a regular file; "" for any other kind, because reading that could block.
std::string tail_of(const std::string& path, off_t most) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about;
  if (file.get() < 0 || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return "";
  std::string text(static_cast<size_t>(std::min(about.st_size, most)), '\0');
  const ssize_t got =
      pread(file.get(), text.data(), text.size(), about.st_size - static_cast<off_t>(text.size()));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string directory_variable(const char* name, const std::string& otherwise) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// Whether the process lives. A zombie does not: the first process of a container may never reap it.
bool lives(pid_t pid) {
  if (pid <= 0) return false;
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const size_t state = stat.rfind(") ");
  return state != std::string::npos && stat[state + 2] != 'Z';
}

std::optional<uid_t> owner_of(pid_t pid) {
  struct stat process;
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &process) != 0) return std::nullopt;
  return process.st_uid;
}

// The path in cgroup v2; "": there is none. Hosts with v1 alone are not supported.
std::string cgroup_of(pid_t pid) {
  const std::string text = contents("/proc/" + std::to_string(pid) + "/cgroup");
  const size_t at = text.find("0::");
  if (at == std::string::npos) return "";
  return text.substr(at + 3, text.find('\n', at) - at - 3);
}

// Moves the process into a cgroup beside this process's own. Not from the root group, which has
// none beside it, and which no service manager ends.
void leave_cgroup(pid_t pid) {
  const std::string own = cgroup_of(getpid());
  if (own.size() < 2 || cgroup_of(pid) != own) return;
  for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const fs::path beside = fs::path(root + own).parent_path() / "heddle-mps";
    std::error_code error;
    fs::create_directory(beside, error);
    if (std::ofstream(beside / "cgroup.procs") << pid << std::flush) return;
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string names_of(const std::vector<MpsProcess>& processes) {
  std::string names;
  for (const MpsProcess& p : processes) {
    names += (names.empty() ? "pid " : ", ") + std::to_string(p.pid);
  }
  return names;
}

// Reads a number off the front of `text`.
template <class T>
bool take_number(std::string_view& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc();
}

// The processes of the log that still wait: alive, of the user in the log, and no server's clients.
std::vector<MpsProcess> waiting_in(const std::string& file, const MpsState& state) {
  if (state.servers.empty()) return {};
  std::vector<MpsProcess> waiting;
  for (const MpsProcess& p : pushed_to_wait(tail_of(file, kLogTail))) {
    const auto same = [&](const MpsProcess& other) { return other.pid == p.pid; };
    if (owner_of(p.pid) != p.uid || state.has_client(p.pid) ||
        std::any_of(waiting.begin(), waiting.end(), same)) {
      continue;
    }
    // If its own user has a server, it only waits for that to start.
    const auto serves = [&](const MpsServer& server) { return server.uid == p.uid; };
    if (std::none_of(state.servers.begin(), state.servers.end(), serves)) waiting.push_back(p);
  }
  return waiting;
}

// A file in memory. Unlike a pipe it cannot block or break, whichever end lives longer.
Descriptor memory_of(std::string_view text) {
  Descriptor memory(memfd_create("heddle-mps", MFD_CLOEXEC));
  if (write(memory.get(), text.data(), text.size()) < 0) return Descriptor();
  lseek(memory.get(), 0, SEEK_SET);
  return memory;
}

pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
            int in, int out, int& error) {
  const auto pointers = [](const std::vector<std::string>& strings) {
    std::vector<char*> all;
    for (const std::string& s : strings) all.push_back(const_cast<char*>(s.c_str()));
    all.push_back(nullptr);
    return all;
  };
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, 0);
  posix_spawn_file_actions_adddup2(&files, out, 1);
  posix_spawn_file_actions_adddup2(&files, out, 2);
  posix_spawn_file_actions_addchdir_np(&files, "/");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;  // the pool's threads block signals; the child must not
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  error = posix_spawnp(&pid, arguments[0].c_str(), &files, &attributes, pointers(arguments).data(),
                       pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? pid : -1;
}

}  // namespace

bool MpsState::has_client(pid_t pid) const {
  return std::any_of(servers.begin(), servers.end(), [pid](const MpsServer& server) {
    return std::any_of(server.clients.begin(), server.clients.end(),
                       [pid](const MpsProcess& client) { return client.pid == pid; });
  });
}

size_t MpsState::clients() const {
  size_t sum = 0;
  for (const MpsServer& server : servers) sum += server.clients.size();
  return sum;
}

Result<MpsControl::Ended> MpsControl::run(const std::vector<std::string>& arguments,
                                          std::string_view input) {
  std::vector<std::string> environment{
      "CUDA_MPS_PIPE_DIRECTORY=" + settings_.pipe_directory,
      "CUDA_MPS_LOG_DIRECTORY=" + settings_.log_directory,
  };
  for (const char* name : {"PATH", "LD_LIBRARY_PATH"}) {
    if (const char* value = getenv(name)) environment.push_back(std::string(name) + "=" + value);
  }
  const Descriptor in = memory_of(input), out = memory_of("");
  int error = 0;
  const pid_t pid = spawn(arguments, environment, in.get(), out.get(), error);
  if (pid < 0) {
    return fail(arguments[0] + ": " + strerror(error) +
                "; it comes with NVIDIA's driver; PATH must name it");
  }
  Ended ended{-1, ""};
  const Clock::time_point deadline = Clock::now() + patience_;
  int status = 0;
  pid_t reaped = 0;
  while ((reaped = waitpid(pid, &status, WNOHANG)) == 0 && wait_until(deadline)) {
  }
  if (reaped == 0) {
    kill(-pid, SIGKILL);  // its session, which is its process group
    // Inside a driver that hangs, the process does not even die.
    for (int i = 0; waitpid(pid, nullptr, WNOHANG) == 0 && i < 50; ++i) poll(nullptr, 0, kStepMs);
  } else {
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ended.out.resize(kOutputMax);
  const ssize_t length = pread(out.get(), ended.out.data(), ended.out.size(), 0);
  ended.out.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return ended;
}

// Waits for a step. False: cancelled, or the deadline has passed.
bool MpsControl::wait_until(Clock::time_point deadline) const {
  if (cancelled_ || Clock::now() >= deadline) return false;
  poll(nullptr, 0, kStepMs);
  return true;
}

Result<std::string> MpsControl::ask(const std::string& command) {
  const Result<Ended> ended = run({settings_.control}, command + "\n");
  if (!ended) return tl::unexpected<Error>(ended.error());
  if (ended->status == 0) return ended->out;
  return fail(settings_.pipe_directory + ": " + command + ": " +
              (ended->status < 0    ? "no answer"
               : ended->out.empty() ? "exit status " + std::to_string(ended->status)
                                    : first_line(ended->out)) +
              "; see control.log in " + settings_.log_directory);
}

Result<std::vector<pid_t>> MpsControl::list(const std::string& command) {
  const Result<std::string> answer = ask(command);
  if (!answer) return tl::unexpected<Error>(answer.error());
  std::vector<pid_t> pids;
  std::string_view rest = *answer;
  for (pid_t pid = 0; !rest.empty(); rest.remove_prefix(std::min(rest.size(), size_t{1}))) {
    if (!take_number(rest, pid)) break;
    pids.push_back(pid);
  }
  if (rest.find_first_not_of(" \n") == std::string_view::npos) return pids;
  return fail(settings_.pipe_directory + ": " + command + ": '" + first_line(*answer) +
              "' is no list of processes; is the nvidia-cuda-mps-control of PATH NVIDIA's?");
}

pid_t MpsControl::control_pid() const {
  const std::string text = tail_of(settings_.pipe_directory + "/nvidia-cuda-mps-control.pid", 32);
  std::string_view rest = text;
  pid_t pid = 0;
  return take_number(rest, pid) && lives(pid) ? pid : 0;
}

MpsState MpsControl::look() {
  MpsState state;
  const std::string control = settings_.pipe_directory + "/control";
  struct stat directory;
  if (access(control.c_str(), F_OK) != 0 || ipc::is_stale_socket(control.c_str()) ||
      stat(settings_.pipe_directory.c_str(), &directory) != 0) {
    return state;
  }
  if (directory.st_uid != 0 && directory.st_uid != geteuid()) {
    state.error = settings_.pipe_directory + ": belongs to uid " +
                  std::to_string(directory.st_uid) + ", who could say anything: not asked; " +
                  "name another in [mps] pipe_directory";
    return state;
  }
  const auto as_processes = [](const std::vector<pid_t>& pids) {
    std::vector<MpsProcess> all;
    for (const pid_t pid : pids) all.push_back({pid, owner_of(pid).value_or(kUnseenUid)});
    return all;
  };
  const Result<std::vector<pid_t>> servers = list("get_server_list");
  if (!servers) {
    state.error = servers.error().message;
    return state;
  }
  state.answers = true;
  state.control = control_pid();
  if (state.control != 0) {
    const std::string own = cgroup_of(getpid());
    state.shares_cgroup = own.size() > 1 && cgroup_of(state.control) == own;
  }
  for (const MpsProcess& process : as_processes(*servers)) {
    if (state.servers.size() == kServersMax) break;
    const auto clients = list("get_client_list " + std::to_string(process.pid));
    if (clients) {
      state.servers.push_back({process, as_processes(*clients)});
    } else if (lives(process.pid)) {  // otherwise it ended between the two questions
      state.error = clients.error().message;
    }
  }
  state.waiting = waiting_in(settings_.log_directory + "/control.log", state);
  return state;
}

std::optional<double> MpsControl::default_percentage() {
  if (access((settings_.pipe_directory + "/control").c_str(), F_OK) != 0) return std::nullopt;
  const Result<std::string> answer = ask("get_default_active_thread_percentage");
  char* end = nullptr;
  const double percent = answer ? strtod(answer->c_str(), &end) : 0;
  if (!answer || end == answer->c_str() || !(percent > 0 && percent <= 100)) return std::nullopt;
  return percent;
}

Result<void> MpsControl::make_directories() const {
  if (settings_.pipe_directory.empty()) {
    return fail("mps: there is no XDG_RUNTIME_DIR; set [mps] pipe_directory and log_directory");
  }
  for (const std::string& path : {settings_.pipe_directory, settings_.log_directory}) {
    std::error_code error;
    if (fs::create_directories(path, error)) {
      fs::permissions(path, fs::perms(0755), error);  // for clients of any user, whatever the umask
    }
    struct stat directory;
    if (stat(path.c_str(), &directory) != 0 || !S_ISDIR(directory.st_mode)) {
      return fail(path + ": cannot be made: " + error.message() +
                  "; name another in [mps], or make it");
    }
    if (directory.st_uid != geteuid()) {
      return fail(path + ": belongs to uid " + std::to_string(directory.st_uid) +
                  ", whose MPS would serve nobody else; name another in [mps]");
    }
    if (access(path.c_str(), W_OK) != 0) {
      return fail(path + ": cannot be written: " + strerror(errno) + "; name another in [mps]");
    }
  }
  return {};
}

Result<void> MpsControl::start() {
  if (Result<void> made = make_directories(); !made) return made;
  const bool systemd = geteuid() == 0 && access("/run/systemd/system", F_OK) == 0;
  const std::vector<std::string> command = start_command(settings_, systemd);
  const Result<Ended> ended = run(command, "");
  if (!ended) return tl::unexpected<Error>(ended.error());
  if (ended->status != 0) {
    return fail(settings_.control + " -d: " +
                (ended->status < 0    ? "does not come back"
                 : ended->out.empty() ? "exit status " + std::to_string(ended->status)
                                      : first_line(ended->out)) +
                "; see control.log in " + settings_.log_directory);
  }
  const Clock::time_point deadline = Clock::now() + patience_;
  Result<std::string> answer = ask("get_server_list");
  while (!answer && wait_until(deadline)) answer = ask("get_server_list");
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (!systemd) leave_cgroup(control_pid());
  return {};
}

Result<void> MpsControl::stop() {
  const MpsState state = look();
  if (!state.error.empty()) return fail(state.error);  // it may have clients that were not listed
  if (!state.answers) return fail(settings_.pipe_directory + ": no MPS answers there");
  std::vector<MpsProcess> users = state.waiting;
  for (const MpsServer& server : state.servers) {
    users.insert(users.end(), server.clients.begin(), server.clients.end());
  }
  if (!users.empty()) return fail("MPS is not stopped under its clients: end " + names_of(users));
  const Result<std::string> answer = ask("quit");
  if (!answer) return tl::unexpected<Error>(answer.error());
  const Clock::time_point deadline = Clock::now() + patience_;
  while (lives(state.control)) {
    if (!wait_until(deadline)) return fail("MPS ends once a client that came just now is gone");
  }
  return {};
}

void fill_directories(MpsSettings& settings) {
  std::string pipe = directory_variable("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
  std::string log = directory_variable("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
  if (settings.manage && geteuid() == 0) {
    pipe = "/run/heddle-mps";
    log = "/var/log/heddle-mps";
  } else if (settings.manage) {
    const std::string runtime = directory_variable("XDG_RUNTIME_DIR", "");
    pipe = runtime.empty() ? "" : runtime + "/heddle-mps";
    log = runtime.empty() ? "" : pipe + "/log";
  }
  if (settings.pipe_directory.empty()) settings.pipe_directory = pipe;
  if (settings.log_directory.empty()) settings.log_directory = log;
}

std::vector<std::string> start_command(const MpsSettings& settings, bool systemd) {
  std::vector<std::string> command{settings.control, "-d"};
  if (!systemd) return command;
  std::vector<std::string> unit{
      "systemd-run",
      std::string("--unit=") + kUnit,
      "--description=NVIDIA MPS, started by heddled",
      "--collect",  // a failed unit must not keep the name
      "--quiet",
      "--property=Type=forking",
      "--property=PIDFile=" + settings.pipe_directory + "/nvidia-cuda-mps-control.pid",
      "--setenv=CUDA_MPS_PIPE_DIRECTORY=" + settings.pipe_directory,
      "--setenv=CUDA_MPS_LOG_DIRECTORY=" + settings.log_directory,
  };
  if (const char* path = getenv("LD_LIBRARY_PATH")) {
    unit.push_back(std::string("--setenv=LD_LIBRARY_PATH=") + path);
  }
  unit.insert(unit.end(), command.begin(), command.end());
  return unit;
}

std::vector<MpsProcess> pushed_to_wait(std::string_view log) {
  constexpr std::string_view kClient = "NEW CLIENT ", kUser = " from user ", kList = "pending list";
  std::vector<MpsProcess> all;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    const size_t at = line.find(kClient);
    if (at == std::string_view::npos || line.find(kList) == std::string_view::npos) continue;
    line.remove_prefix(at + kClient.size());
    MpsProcess process;
    if (!take_number(line, process.pid) || line.substr(0, kUser.size()) != kUser) continue;
    line.remove_prefix(kUser.size());
    if (take_number(line, process.uid) && process.pid > 0) all.push_back(process);
  }
  return all;
}

}  // namespace heddle::server
