#include "daemon/cli/doctor/probe.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "daemon/base/json.h"
#include "daemon/cli/run/preload.h"
#include "daemon/server/mps.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kProbeMs = 20'000;

template <class F>
F* symbol(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// ---- in the child -------------------------------------------------------------------------------

// The driver that is mapped by now: a libcuda.so whatever its version, which is not the shim.
std::string mapped_driver(const fs::path& shim) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const fs::path path = line.substr(slash);
    std::error_code error;
    if (path.filename().string().rfind("libcuda.so", 0) == 0 &&
        !fs::equivalent(path, shim, error)) {
      return path.string();
    }
  }
  return "";
}

void probe_driver(json& out) {
  const fs::path shim = shim_path();
  out["shim"] = {{"path", shim.string()}};
  void* library = dlopen(shim.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out["shim"]["error"] = dlerror();
    out["driver"] = {{"error", "the shim does not load"}};
    return;
  }
  const auto* protocol = symbol<const uint32_t>(library, "heddle_shim_protocol");
  out["shim"]["protocol"] = protocol != nullptr ? *protocol : 0;
  if (const auto* commit = symbol<const char>(library, "heddle_shim_commit")) {
    out["shim"]["commit"] = commit;
  }
  int version = 0;
  const auto get_version = symbol<int(int*)>(library, "cuDriverGetVersion");
  const int result = get_version != nullptr ? get_version(&version) : -1;
  out["driver"] = {{"path", mapped_driver(shim)}, {"version", version}};
  if (result != 0) out["driver"]["error"] = "cuDriverGetVersion: error " + std::to_string(result);
}

// NVML's own structure, as its _v2 and _v3 calls fill it.
struct NvmlProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

// 0 or NVML's error; -1 if it lacks the call.
int nvml_processes(void* nvml, void* device, const char* call, std::set<unsigned>& pids) {
  using Get = int(void*, unsigned*, NvmlProcess*);
  std::vector<NvmlProcess> all(1024);
  int error = -1;
  for (const char* version : {"_v3", "_v2"}) {
    const auto get = symbol<Get>(nvml, (std::string(call) + version).c_str());
    auto count = static_cast<unsigned>(all.size());
    if (get == nullptr) continue;
    error = get(device, &count, all.data());
    if (error != 0) continue;
    for (unsigned i = 0; i < std::min<size_t>(count, all.size()); ++i) pids.insert(all[i].pid);
    break;
  }
  return error;
}

void probe_nvml(json& out) {
  const char* named = getenv("HEDDLE_NVML");
  void* nvml = dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) {
    out = {{"error", dlerror()}};
    return;
  }
  const auto init = symbol<int()>(nvml, "nvmlInit_v2");
  const auto count_of = symbol<int(unsigned*)>(nvml, "nvmlDeviceGetCount_v2");
  const auto handle = symbol<int(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  const auto name_of = symbol<int(void*, char*, unsigned)>(nvml, "nvmlDeviceGetName");
  const auto uuid_of = symbol<int(void*, char*, unsigned)>(nvml, "nvmlDeviceGetUUID");
  const auto mig_of = symbol<int(void*, unsigned*, unsigned*)>(nvml, "nvmlDeviceGetMigMode");
  const auto mode_of = symbol<int(void*, int*)>(nvml, "nvmlDeviceGetComputeMode");
  // Of its first version, {total, free, used}.
  const auto memory_of = symbol<int(void*, unsigned long long*)>(nvml, "nvmlDeviceGetMemoryInfo");
  const auto version_of = symbol<int(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  unsigned count = 0;
  if (!init || !count_of || !handle || !name_of || !mode_of || !version_of) {
    out = {{"error", "NVML lacks functions; it is too old"}};
    return;
  }
  if (const int error = init(); error != 0 || count_of(&count) != 0) {
    out = {{"error", "NVML does not start: error " + std::to_string(error)}};
    return;
  }
  char text[128] = {};
  if (version_of(text, sizeof text) == 0) out["driver_version"] = text;
  // Of drivers from 615 on.
  out["memory_limits"] = dlsym(nvml, "nvmlDeviceSetMemoryLimits_v1") != nullptr;
  out["gpus"] = json::array();
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    int mode = 0;
    std::set<unsigned> pids;
    if (const int error = handle(i, &device); error != 0) {
      out["gpus"].push_back({{"index", i}, {"error", error}, {"pids", pids}, {"listed", false}});
      continue;
    }
    if (name_of(device, text, sizeof text) != 0) text[0] = '\0';
    const bool known = mode_of(device, &mode) == 0;
    char uuid[96] = {};
    if (uuid_of == nullptr || uuid_of(device, uuid, sizeof uuid) != 0) uuid[0] = '\0';
    unsigned mig = 0, mig_next = 0;
    if (mig_of == nullptr || mig_of(device, &mig, &mig_next) != 0) mig = 0;
    unsigned long long memory[3] = {};
    if (memory_of == nullptr || memory_of(device, memory) != 0) memory[0] = 0;
    const int error = nvml_processes(nvml, device, "nvmlDeviceGetComputeRunningProcesses", pids);
    nvml_processes(nvml, device, "nvmlDeviceGetMPSComputeRunningProcesses", pids);
    out["gpus"].push_back({{"index", i},
                           {"name", text},
                           {"uuid", uuid},
                           {"mig", mig != 0},
                           {"memory", memory[0]},
                           {"compute_mode", known ? json(mode) : json()},
                           {"pids", pids},
                           {"listed", error == 0}});
  }
}

[[noreturn]] void probe_in_child(int answer) {
  json out;
  probe_driver(out);
  probe_nvml(out["nvml"]);
  const std::string text = out.dump(-1, ' ', false, json::error_handler_t::replace);
  const bool written = write(answer, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(written ? 0 : 1);  // the driver's destructors are none of our business
}

// ---- files --------------------------------------------------------------------------------------

json entries(const std::vector<std::string>& paths) {
  json all = json::array();
  for (const std::string& path : paths) {
    // Nothing is known against what the loader looks up or fills in: names without a slash, $LIB,
    // $ORIGIN, $PLATFORM.
    const bool known = path.find('/') != std::string::npos && path.find('$') == std::string::npos;
    all.push_back({{"path", path}, {"exists", !known || access(path.c_str(), R_OK) == 0}});
  }
  return all;
}

// ---- processes ----------------------------------------------------------------------------------

// Services that hold GPUs open and run nothing on them, or only a desktop.
constexpr const char* kServices[] = {"nvidia-persistenced",
                                     "nv-hostengine",
                                     "nvidia-smi",
                                     "nvidia-device-plugin",
                                     "dcgm-exporter",
                                     "Xorg",
                                     "Xwayland",
                                     "gnome-shell",
                                     "kwin_x11",
                                     "kwin_wayland"};

// MPS itself, not its clients. /proc/PID/comm has the first 15 characters, which are these.
bool is_mps(const std::string& name) { return name.rfind("nvidia-cuda-mps", 0) == 0; }

bool is_service(const std::string& name) {
  return is_mps(name) ||
         std::find(std::begin(kServices), std::end(kServices), name) != std::end(kServices);
}

// The executable's name, also if it was replaced since; comm where the caller may not see it.
std::string exe_of(const fs::path& process) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::error_code error;
  std::string exe = fs::read_symlink(process / "exe", error).string();
  if (exe.ends_with(kDeleted)) exe.resize(exe.size() - kDeleted.size());
  if (!exe.empty()) return exe;
  const std::string name = contents(process / "comm");
  return name.substr(0, name.find('\n'));
}

// Whether a process may use a GPU: CUDA cannot start without nvidia-uvm and keeps it open, and who
// only asks NVML has the GPU's own device open and not this one. None if the caller may not look.
std::optional<bool> has_gpu_open(const fs::path& process) {
  bool denied = false;
  const auto gone = [](const std::error_code& e) {
    return e == std::errc::no_such_file_or_directory || e == std::errc::no_such_process;
  };
  std::error_code error;
  for (auto entry = fs::directory_iterator(process / "fd", error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(entry->path(), closed);
    if (target == "/dev/nvidia-uvm") return true;
    if (closed && !gone(closed)) denied = true;
  }
  if (denied || (error && !gone(error))) return std::nullopt;
  return false;
}

// What follows the name in parentheses, which may hold any; zeros where the process is gone.
struct Stat {
  char state = 0;
  int parent = 0, group = 0, session = 0, terminal = 0, foreground = 0;
  unsigned flags = 0;
};

Stat stat_of(int pid) {
  const std::string text = contents("/proc/" + std::to_string(pid) + "/stat");
  const size_t name = text.rfind(')');
  Stat s;
  if (name != std::string::npos) {
    std::istringstream(text.substr(name + 1)) >> s.state >> s.parent >> s.group >> s.session >>
        s.terminal >> s.foreground >> s.flags;
  }
  return s;
}

// Threads of the kernel have no files, and nobody but root may see that.
bool is_kernel_thread(int pid) {
  constexpr unsigned kKernelThread = 0x00200000;  // PF_KTHREAD
  return (stat_of(pid).flags & kKernelThread) != 0;
}

bool descends_from(int pid, const std::set<int>& ancestors) {
  constexpr int kGenerationsMax = 64;
  for (int i = 0; i < kGenerationsMax && pid > 1; ++i, pid = stat_of(pid).parent) {
    if (ancestors.count(pid) != 0) return true;
  }
  return false;
}

std::string cgroups_of(int pid) { return contents("/proc/" + std::to_string(pid) + "/cgroup"); }

std::string last_cgroup(int pid) {
  const std::string text = cgroups_of(pid);
  return text.substr(text.rfind('\n', text.size() < 2 ? 0 : text.size() - 2) + 1);
}

}  // namespace

json probe_gpu() {
  json out;
  int channel[2];
  if (pipe(channel) != 0) return {{"error", strerror(errno)}};
  const pid_t child = fork();
  if (child == 0) {
    close(channel[0]);
    probe_in_child(channel[1]);
  }
  close(channel[1]);
  std::string text;
  char part[4096];
  ssize_t length = 1;
  for (pollfd readable{channel[0], POLLIN, 0}; child > 0 && length > 0;) {
    if (poll(&readable, 1, kProbeMs) != 1) break;
    length = read(channel[0], part, sizeof part);
    if (length > 0) text.append(part, static_cast<size_t>(length));
  }
  close(channel[0]);
  if (child > 0) {
    if (length != 0) kill(child, SIGKILL);
    // Not waited for: inside of a driver that hangs it does not even die. Init will have it.
    waitpid(child, nullptr, WNOHANG);
  }
  out = parse_json(text);
  if (!out.is_object()) {
    const char* why =
        length == 0 ? "the driver ended the process that asked it" : "the driver does not answer";
    out = {{"shim", {{"path", shim_path().string()}}},
           {"driver", {{"error", why}}},
           {"nvml", {{"error", why}}}};
  }
  return out;
}

namespace {

// What stands in a file of /proc/PID with a zero behind each: arguments, variables.
std::vector<std::string> words_of(int pid, const char* file) {
  std::istringstream text(contents("/proc/" + std::to_string(pid) + "/" + file));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

// Of another PID namespace the number may be another program's here.
bool is_static(int control) {
  const std::vector<std::string> words = words_of(control, "cmdline");
  const auto any = [&](auto what) { return std::ranges::any_of(words, what); };
  return any([](const std::string& w) { return w.find("nvidia-cuda-mps") != w.npos; }) &&
         any([](const std::string& w) { return w == "-S" || w == "--static-partitioning"; });
}

// In root's directory or one's own: another user's daemon could say anything.
json default_percentage(const std::string& directory) {
  constexpr std::chrono::seconds kPatience{2};
  struct stat owner;
  const bool known = stat(directory.c_str(), &owner) == 0;
  if (!known || (owner.st_uid != 0 && owner.st_uid != geteuid())) return nullptr;
  server::MpsSettings settings;
  settings.pipe_directory = directory;
  const auto percent = server::MpsControl(settings, kPatience).default_percentage();
  return percent ? json(*percent) : json();
}

}  // namespace

json probe_variables(int pid) {
  json found = json::object();
  for (const std::string& word : words_of(pid, "environ")) {
    for (const char* name : {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_SM_PARTITION",
                             "CUDA_DEVICE_MAX_CONNECTIONS"}) {
      const std::string begin = std::string(name) + "=";
      if (word.starts_with(begin) && word != begin) found[name] = word.substr(begin.size());
    }
  }
  return found;
}

json probe_mps(const std::string& given, int daemon_pid) {
  const char* named = getenv("CUDA_MPS_PIPE_DIRECTORY");
  fs::path directory = named != nullptr && *named != '\0' ? named : "/tmp/nvidia-mps";
  if (!given.empty()) directory = given;
  struct stat control;
  if (stat((directory / "control").c_str(), &control) != 0) return nullptr;
  int pid = 0;
  std::istringstream(contents(directory / "nvidia-cuda-mps-control.pid")) >> pid;
  if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) pid = 0;
  const std::string cgroup = pid > 0 ? last_cgroup(pid) : "";
  const bool shared = daemon_pid > 0 && !cgroup.empty() && cgroup == last_cgroup(daemon_pid) &&
                      cgroup.find(":/\n") == std::string::npos;
  return {{"directory", directory.string()},
          {"uid", control.st_uid},
          {"pid", pid},
          {"shares_cgroup_with", shared ? daemon_pid : 0},
          {"static", pid > 0 && is_static(pid)},
          {"default_percentage", pid > 0 ? default_percentage(directory) : json()}};
}

json probe_socket(const std::string& path) {
  struct stat socket, directory;
  const bool exists = lstat(path.c_str(), &socket) == 0;
  json out = {{"path", path}, {"exists", exists}};
  if (!exists) return out;
  out["is_socket"] = S_ISSOCK(socket.st_mode);
  out["mode"] = socket.st_mode & 07777;
  out["uid"] = socket.st_uid;
  out["writable"] = access(path.c_str(), W_OK) == 0;
  const fs::path parent = fs::absolute(path).parent_path();
  if (stat(parent.c_str(), &directory) == 0) {
    out["directory_mode"] = directory.st_mode & 07777;
    out["directory_uid"] = directory.st_uid;
  }
  return out;
}

json probe_environment() {
  const auto variable = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const std::string disabled = variable("HEDDLE_DISABLE");
  return {{"ld_preload", entries(preload_variable(variable("LD_PRELOAD")))},
          {"system_preload", entries(preload_file(contents("/etc/ld.so.preload")))},
          {"disabled", !disabled.empty() && disabled != "0"},
          {"real_libcuda", variable("HEDDLE_REAL_LIBCUDA")},
          {"mps_memory_limit", variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")},
          {"visible_devices", variable("CUDA_VISIBLE_DEVICES")}};
}

json probe_cgroup() {
  const char* named = getenv("HEDDLE_CGROUP");
  const fs::path root = named != nullptr && *named != '\0' ? named : "/sys/fs/cgroup";
  std::istringstream controllers(contents(root / "cgroup.controllers"));
  const std::set<std::string> all{std::istream_iterator<std::string>(controllers), {}};
  return {{"root", root.string()}, {"dmem", all.count("dmem") != 0}};
}

json probe_holders(const std::set<int>& attached) {
  json all = json::array(), mps = json::array();
  bool hidden = true;
  int unreadable = 0;
  std::set<uid_t> owners;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string text = entry.path().filename().string();
    if (isdigit(static_cast<unsigned char>(text[0])) == 0) continue;
    const int pid = std::stoi(text);
    if (pid == 1) hidden = false;
    const std::optional<bool> open = has_gpu_open(entry.path());
    struct stat owner;
    if (!open && !is_kernel_thread(pid) && stat(entry.path().c_str(), &owner) == 0) {
      ++unreadable;
      owners.insert(owner.st_uid);
    }
    if (!open.value_or(false) || descends_from(pid, attached)) continue;
    const std::string exe = exe_of(entry.path()), name = fs::path(exe).filename().string();
    if (is_mps(name)) mps.push_back(pid);
    if (!is_service(name)) all.push_back({{"pid", pid}, {"exe", exe}});
  }
  // PROC_PID_INIT_INO: the first PID namespace has the same number on every Linux since 3.8.
  const bool first = fs::read_symlink("/proc/self/ns/pid", error) == "pid:[4026531836]";
  return {{"processes", std::move(all)},
          {"mps", std::move(mps)},
          {"view",
           {{"host", first},
            {"hidden", hidden},
            {"unreadable", {{"count", unreadable}, {"uids", owners}}}}}};
}

json probe_process(int pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  struct stat owner;
  json out = {{"pid", pid}, {"exe", exe_of(process)}, {"cgroup", cgroups_of(pid)}};
  out["service"] = is_service(fs::path(out["exe"].get<std::string>()).filename().string());
  out["uid"] = stat(process.c_str(), &owner) == 0 ? json(owner.st_uid) : json();
  const std::optional<bool> open = has_gpu_open(process);
  out["holds"] = open ? json(*open) : json();
  return out;
}

}  // namespace heddle::cli
