#include "daemon/server/origin.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace heddle::server {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::string link_target(const std::string& path) {
  char target[4096];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

// The path by which the process was started, also if the file was replaced since.
std::string executable(const std::string& process) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::string exe = link_target(process + "/exe");
  if (exe.ends_with(kDeleted)) exe.resize(exe.size() - kDeleted.size());
  return exe;
}

// A process's effective user; root if the process cannot be inspected (prctl's PR_SET_DUMPABLE).
std::optional<uid_t> owner_of(const std::string& process) {
  struct stat directory;
  if (stat(process.c_str(), &directory) != 0) return std::nullopt;
  return directory.st_uid;
}

// The overflow id, which stands for all unmapped users in a user namespace. None in the host's own
// namespace, where it is a user like any other ("nobody").
std::optional<unsigned> unmapped_id(const char* map, const char* overflow) {
  std::istringstream line(contents(map)), id(contents(overflow));
  uint64_t inside = 1, outside = 1, count = 0;
  unsigned number = 0;
  line >> inside >> outside >> count;
  const bool all = inside == 0 && outside == 0 && count == 0xffffffff;
  return !all && id >> number ? std::optional<unsigned>(number) : std::nullopt;
}

const std::optional<uid_t>& unmapped_uid() {
  static const auto id = unmapped_id("/proc/self/uid_map", "/proc/sys/kernel/overflowuid");
  return id;
}

const std::optional<gid_t>& unmapped_gid() {
  static const auto id = unmapped_id("/proc/self/gid_map", "/proc/sys/kernel/overflowgid");
  return id;
}

std::vector<gid_t> groups_of(int socket, gid_t effective) {
  constexpr int kPeerGroups = 59;    // SO_PEERGROUPS (4.13)
  constexpr size_t kGroups = 65536;  // NGROUPS_MAX
  std::vector<gid_t> all(64);
  auto length = static_cast<socklen_t>(all.size() * sizeof(gid_t));
  int result = getsockopt(socket, SOL_SOCKET, kPeerGroups, all.data(), &length);
  if (result != 0 && errno == ERANGE) {
    all.resize(std::min(kGroups, length / sizeof(gid_t)));
    result = getsockopt(socket, SOL_SOCKET, kPeerGroups, all.data(), &length);
  }
  all.resize(result == 0 ? length / sizeof(gid_t) : 0);
  all.insert(all.begin(), effective);
  std::erase_if(all, [](gid_t gid) { return gid == unmapped_gid(); });
  return all;
}

// Whether the number belongs to another process by now, because the peer ended.
bool is_another(const ipc::Peer& peer, const std::string& process) {
  return peer.by_number && owner_of(process) != peer.uid;
}

std::string directory_of(const ipc::Peer& peer) { return "/proc/" + std::to_string(peer.pid); }

}  // namespace

// A process has a number in its own PID namespace and in each one around it; NSpid lists those from
// the daemon's namespace inwards. Before Linux 5.5 only /proc by the process's number has that
// list, and before 5.3 there is no pidfd to check the number.
bool is_local(const ipc::Peer& peer) {
  if (peer.pid == 0) return false;
  const auto numbers = [](const std::string& path) {
    const std::string text = contents(path);
    const size_t line = text.find("NSpid:");
    return line == std::string::npos ? "" : text.substr(line + 6, text.find('\n', line) - line - 6);
  };
  std::string found;
  if (peer.pidfd >= 0) found = numbers("/proc/self/fdinfo/" + std::to_string(peer.pidfd));
  if (found.empty()) found = numbers(directory_of(peer) + "/status");
  std::istringstream words(found);
  pid_t outermost = 0, inner = 0;
  return words >> outermost && outermost == peer.pid && !(words >> inner);
}

bool has_ended(int pidfd) {
  pollfd end{pidfd, POLLIN, 0};
  return pidfd >= 0 && poll(&end, 1, 0) != 0;
}

bool is_privileged(const ipc::Peer& peer) {
  return (peer.uid == 0 || peer.uid == geteuid()) && peer.uid != unmapped_uid() && is_local(peer);
}

std::vector<std::string> cgroup_paths(const std::string& text) {
  std::vector<std::string> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // "hierarchy:controllers:path"; v2 is "0::path". Only the path may hold further colons.
    const size_t controllers = line.find(':');
    const size_t path =
        controllers == std::string::npos ? controllers : line.find(':', controllers + 1);
    if (path == std::string::npos || path + 1 >= line.size()) continue;
    std::string found = line.substr(path + 1);
    if (std::find(paths.begin(), paths.end(), found) == paths.end()) {
      paths.push_back(std::move(found));
    }
  }
  return paths;
}

Container container_of(const ipc::Peer& peer) {
  Container unseen{peer.uid, "", ""};
  if (peer.pid == 0) return unseen;
  const std::string process = directory_of(peer);
  Container container{peer.uid, link_target(process + "/ns/pid"), contents(process + "/cgroup")};
  return has_ended(peer.pidfd) || is_another(peer, process) ? unseen : container;
}

Origin origin_of(int socket, const ipc::Peer& peer) {
  Origin origin;
  origin.pid = peer.pid;
  origin.local = is_local(peer);
  if (peer.uid != unmapped_uid()) origin.uid = peer.uid;
  origin.gids = groups_of(socket, peer.gid);
  if (!origin.uid) origin.unseen = "user: not mapped in the daemon's user namespace";
  const auto note = [&origin](const char* what) {
    origin.unseen += (origin.unseen.empty() ? "" : "; ") + std::string(what);
  };
  if (peer.pid == 0) {
    note("executable and cgroup: the process is outside the daemon's PID namespace");
    return origin;
  }
  const std::string process = directory_of(peer);
  origin.exe = executable(process);
  origin.cgroups = cgroup_paths(contents(process + "/cgroup"));
  if (has_ended(peer.pidfd)) {
    origin.exe.clear();
    origin.cgroups.clear();
    note("executable and cgroup: the process has ended");
  } else if (is_another(peer, process)) {
    origin.exe.clear();
    origin.cgroups.clear();
    note("executable and cgroup: its number is another user's process");
  } else if (origin.exe.empty()) {
    note("executable: the daemon may not look at it (it lacks CAP_SYS_PTRACE)");
  }
  return origin;
}

}  // namespace heddle::server
