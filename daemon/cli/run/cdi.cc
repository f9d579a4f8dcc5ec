#include "daemon/cli/run/cdi.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/printable_output.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/run/elf.h"
#include "daemon/cli/run/preload.h"
#include "ipc/socket.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Where distributions keep the C library of x86-64 programs.
constexpr const char* kLibcPlaces[] = {
    "lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "lib64/libc.so.6",
    "usr/lib64/libc.so.6",
    "usr/lib/libc.so.6",
    "lib/libc.so.6",
};

constexpr const char* kPreload = "etc/ld.so.preload";
constexpr size_t kPreloadBytesMax = 64 * 1024;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Opens a path of the image as the container will: its absolute links end inside of `root`. Never
// waits: a FIFO may lie there.
int open_in(int root, const char* path, uint64_t flags, uint64_t mode = 0, uint64_t resolve = 0) {
  open_how how{};
  how.flags = flags | O_CLOEXEC | O_NONBLOCK;
  how.mode = mode;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve;
  return static_cast<int>(syscall(__NR_openat2, root, path, &how, sizeof how));
}

json mount(const fs::path& host, const char* container, const char* access) {
  return {{"hostPath", host.string()},
          {"containerPath", container},
          {"options", {access, "nosuid", "nodev", "rbind", "rprivate"}}};
}

json device(const char* name, const std::string& priority) {
  return {{"name", name}, {"containerEdits", {{"env", {"HEDDLE_PRIORITY=" + priority}}}}};
}

// Everything else in the directory would be the container's as well. One that is not there yet will
// be made for the daemon; one that cannot be looked into may hold anything.
bool is_shared(const fs::path& directory, const fs::path& socket) {
  struct stat file;
  if (stat(directory.c_str(), &file) != 0) return errno != ENOENT;
  if ((file.st_mode & S_IWOTH) != 0) return true;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (name != socket && name != socket.string() + ".lock") return true;  // ipc/socket.cc
  }
  return static_cast<bool>(error);
}

int complain(const std::string& what) {
  std::cerr << "heddle: " << what << '\n';
  return kFailed;
}

int write(const std::string& path, const std::string& text) {
  std::error_code made;
  if (fs::path(path).has_parent_path()) fs::create_directories(fs::path(path).parent_path(), made);
  const Result<void> written = replace_file(path, text, 0644);
  if (written) return kOk;
  return complain(written.error().message + "; CDI directories are /etc/cdi and /run/cdi");
}

// The pipe directory of the MPS that the daemon manages, "" if there is none, or no daemon.
std::string mps_pipes(const std::string& socket) {
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  const Answer answer = ask(socket, request);
  if (answer.code == kNoDaemon) {
    std::cerr << "heddle: no heddled answers: if it manages MPS, run this again once it does\n";
  }
  const json mps = answer.code == kOk ? answer.json.value("mps", json::object()) : json::object();
  return mps.value("managed", false) ? mps.value("pipe_directory", "") : "";
}

std::string libc_obstacle(int root, const fs::path& shim) {
  const MappedFile own(shim.string());
  if (own.bytes().empty()) return shim.string() + ": cannot be read";
  for (const char* place : kLibcPlaces) {
    const Descriptor libc(open_in(root, place, O_RDONLY));
    if (libc.get() < 0) continue;
    const MappedFile file(libc.get());
    const auto elf = parse_elf(file.bytes());
    if (!elf || !elf->is_x86_64) continue;
    const auto missing = missing_versions(own.bytes(), file.bytes());
    if (!missing.empty()) return std::string("its ") + place + " lacks " + missing.back();
    for (const std::string& name : companions(own.bytes())) {
      const std::string path = fs::path(place).replace_filename(name).string();
      if (Descriptor(open_in(root, path.c_str(), O_RDONLY)).get() < 0) {
        return "it has no " + path;
      }
    }
    return "";
  }
  return "it has no glibc for x86-64";
}

std::string read_some(int fd) {
  std::string text(kPreloadBytesMax, '\0');
  const ssize_t length = pread(fd, text.data(), text.size(), 0);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

// Runtimes keep what a hook prints only if it fails.
void report(const std::string& container, const std::string& obstacle) {
  const std::string text = "container " + container + " runs without heddle: " + obstacle;
  std::cerr << "heddle: " << text << '\n';
  openlog("heddle", 0, LOG_DAEMON);
  syslog(LOG_WARNING, "%s", without_controls(text).c_str());
}

// "" where there is no text of that name.
std::string text_of(const json& object, const char* key) {
  const bool there = object.is_object() && object.contains(key) && object[key].is_string();
  return there ? object[key].get<std::string>() : "";
}

}  // namespace

json cdi_specification(const fs::path& heddle, const fs::path& libraries, const fs::path& socket,
                       const fs::path& mps_pipes) {
  json env = {"HEDDLE_SOCKET=" + std::string(kContainerRun) + "/" + socket.filename().string()};
  json mounts = {mount(libraries, kContainerLibraries, "ro"),
                 mount(socket.parent_path(), kContainerRun, "ro")};
  if (!mps_pipes.empty()) {
    env.push_back("CUDA_MPS_PIPE_DIRECTORY=" + std::string(kContainerMps));
    mounts.push_back(mount(mps_pipes, kContainerMps, "rw"));
  }
  json edits = {{"env", std::move(env)},
                {"mounts", std::move(mounts)},
                {"hooks",
                 {{{"hookName", "createContainer"},
                   {"path", heddle.string()},
                   {"args", {"heddle", "cdi-hook"}}}}}};
  return {{"cdiVersion", "0.3.0"},  // the oldest that has all of this
          {"kind", "heddle/client"},
          {"containerEdits", std::move(edits)},
          {"devices", {device("default", ""), device("latency", "0"), device("batch", "9")}}};
}

int run_cdi(const std::string& named, const std::string& output) {
  std::error_code error;
  char buffer[256];
  fs::path socket = named;
  if (named.empty() && ipc::default_socket_path(buffer, sizeof buffer) >= 0) socket = buffer;
  socket = fs::absolute(socket).lexically_normal();
  if (socket.filename().empty()) {
    return complain(socket.string() + ": a directory; name the socket in it with --socket");
  }
  if (is_shared(socket.parent_path(), socket.filename())) {
    return complain(socket.parent_path().string() +
                    " is not heddle's alone, and would be mounted; start heddled with "
                    "--socket in a directory of its own, and name that with --socket here");
  }
  if (access(shim_path().c_str(), R_OK) != 0) {
    return complain(shim_path().string() + ": " + strerror(errno) +
                    "; heddle belongs into the bin/ of an install tree");
  }
  const json specification = cdi_specification(fs::read_symlink("/proc/self/exe", error),
                                               library_directory(), socket, mps_pipes(socket));
  const std::string text = specification.dump(2) + "\n";
  if (!output.empty()) return write(output, text);
  std::cout << text;
  return kOk;
}

std::string preload_in(const fs::path& root_path, const fs::path& shim) {
  const Descriptor root(open(root_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() < 0) return root_path.string() + ": " + strerror(errno);
  if (Descriptor(open_in(root.get(), ".", O_PATH)).get() < 0 && errno == ENOSYS) {
    return "this host's kernel has no openat2: the hook needs Linux 5.6 or newer";
  }
  if (std::string obstacle = libc_obstacle(root.get(), shim); !obstacle.empty()) return obstacle;
  // The image's own file alone: what is mounted over it (-v /etc:/etc) is the host's.
  const Descriptor file(
      open_in(root.get(), kPreload, O_RDWR | O_CREAT | O_NOFOLLOW, 0644, RESOLVE_NO_XDEV));
  if (file.get() < 0 && errno == EXDEV) {
    return std::string("its /") + kPreload + " is on a volume, not in the image";
  }
  if (file.get() < 0) return std::string("its /") + kPreload + ": " + strerror(errno);
  struct stat kind;
  if (fstat(file.get(), &kind) != 0 || !S_ISREG(kind.st_mode)) {
    return std::string("its /") + kPreload + " is no file";
  }
  const std::string before = read_some(file.get());
  const std::vector<std::string> listed = preload_file(before);
  std::string added;
  // The second is what dlopen("libcuda.so") finds.
  for (const char* name : {"/libcuda.so.1", "/libcuda.so"}) {
    const std::string library = kContainerLibraries + std::string(name);
    if (std::find(listed.begin(), listed.end(), library) == listed.end()) added += library + '\n';
  }
  if (added.empty()) return "";
  if (!before.empty() && before.back() != '\n') added.insert(0, 1, '\n');
  const auto at = static_cast<off_t>(before.size());
  if (pwrite(file.get(), added.data(), added.size(), at) != static_cast<ssize_t>(added.size())) {
    const int error = errno;
    // Half a path would make every loader of the container complain.
    if (ftruncate(file.get(), at) != 0) return std::string("its /") + kPreload + " is spoilt";
    return std::string("its /") + kPreload + ": " + strerror(error);
  }
  return "";
}

int run_cdi_hook(std::istream& in) {
  std::string obstacle = "its bundle has no config.json that names a root";
  std::string container;
  try {
    const json state = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
    container = text_of(state, "id");
    const fs::path bundle = text_of(state, "bundle");
    const auto text = read_file(bundle / "config.json", "");
    const json config = text ? parse_json(*text) : json();
    const json root_of = config.is_object() ? config.value("root", json()) : json();
    const std::string root = text_of(root_of, "path");
    if (!root.empty()) obstacle = preload_in(bundle / root, shim_path());
  } catch (const std::exception& error) {  // memory, above all
    obstacle = error.what();
  }
  if (!obstacle.empty()) report(container, obstacle);
  return kOk;
}

}  // namespace heddle::cli
