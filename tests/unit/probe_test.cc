// Whom /proc shows to `heddle doctor` and `heddle ps`, in namespaces of the test's own.
#include "daemon/cli/doctor/probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace heddle::cli {
namespace {

using nlohmann::json;

std::set<int> holders(const std::set<int>& attached) {
  std::set<int> pids;
  const json found = probe_holders(attached);
  for (const json& process : found["processes"]) pids.insert(process["pid"].get<int>());
  return pids;
}

// Threads of the kernel have no command line.
bool counts_no_kernel_threads(int unreadable) {
  int all = 0, bare = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    if (!std::isdigit(entry.path().filename().string()[0])) continue;
    ++all;
    bare += file.get() == EOF ? 1 : 0;
  }
  return unreadable <= all - bare / 2;  // whatever starts and ends meanwhile
}

// A child that is `exe`, or if that is null, which has `file` open. `end` of a pipe is closed when
// it is what it should be.
pid_t start(const char* exe, const char* file, int end) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (exe != nullptr) execl(exe, "x", "60", nullptr);
  if (file != nullptr && open(file, O_RDWR) < 0) _exit(1);
  close(end);
  pause();
  _exit(0);
}

// In namespaces of its own, with a /dev of its own: this process has a GPU open, so have a child
// that inherited it, a service (whose executable was replaced) and MPS, but not who only has the
// device of NVML's clients. Returns the line that was wrong, 0 if none, 77 if none can be.
int look_for_holders() {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " + uid + " 1";
  std::ofstream("/proc/self/gid_map") << "0 " + gid + " 1";
  if (mount("none", "/dev", "tmpfs", 0, nullptr) != 0) return 77;
  for (const char* file : {"/dev/nvidia0", "/dev/nvidiactl"}) std::ofstream(file).put(' ');
  for (const char* exe : {"/dev/nvidia-persistenced", "/dev/nvidia-cuda-mps-server"})
    std::filesystem::copy_file("/bin/sleep", exe);
  int started[2];
  if (pipe2(started, O_CLOEXEC) != 0) return 77;
  const pid_t self = getpid(), watcher = start(nullptr, "/dev/nvidia0", started[1]);
  if (open("/dev/nvidia-uvm", O_RDWR | O_CREAT, 0600) < 0) return 77;
  const pid_t worker = start(nullptr, nullptr, started[1]);
  const pid_t service = start("/dev/nvidia-persistenced", nullptr, -1);
  const pid_t mps = start("/dev/nvidia-cuda-mps-server", nullptr, -1);
  close(started[1]);
  char none;
  (void)!read(started[0], &none, 1);  // ends when all have become what they are
  std::filesystem::remove("/dev/nvidia-persistenced");
  const json found = probe_holders({}), seen = probe_process(watcher), held = probe_process(worker);
  const std::set<int> all = holders({}), others = holders({self});
  const json served = probe_process(service);
  for (const pid_t child : {watcher, worker, service, mps}) kill(child, SIGKILL);
  while (wait(nullptr) > 0) {
  }
  if (all.count(self) == 0 || all.count(worker) == 0) return __LINE__;
  if (all.count(service) != 0 || all.count(mps) != 0) return __LINE__;
  if (all.count(watcher) != 0 || seen["holds"] != false) return __LINE__;
  if (others.count(self) != 0 || others.count(worker) != 0) return __LINE__;
  if (held["holds"] != true || held["service"] != false) return __LINE__;
  if (held["cgroup"].get<std::string>().find(":/") == std::string::npos) return __LINE__;
  if (served["holds"] != true || served["service"] != true) return __LINE__;
  if (found["mps"] != json({mps}) || found["view"]["hidden"] != false) return __LINE__;
  // It is root of its own namespace alone, and may not look at pid 1.
  const json& unreadable = found["view"]["unreadable"];
  if (unreadable["count"] == 0 || unreadable["uids"].empty()) return __LINE__;
  if (!probe_process(1)["holds"].is_null()) return __LINE__;
  if (!counts_no_kernel_threads(unreadable["count"])) return __LINE__;
  if (!probe_process(worker)["uid"].is_null()) return __LINE__;  // it is gone

  if (unshare(CLONE_NEWPID) != 0) return 77;
  const pid_t inside = fork();
  if (inside == 0) {
    // Where it may have a /proc of its own, it sees all there is.
    const bool own = mount("none", "/proc", "proc", 0, nullptr) == 0;
    const json view = probe_holders({})["view"];
    const bool whole = view["hidden"] == false && view["unreadable"]["count"] == 0;
    _exit(view["host"] == false && (whole || !own) ? 0 : 1);
  }
  int status = 0;
  if (waitpid(inside, &status, 0) != inside || status != 0) return __LINE__;
  if (mount("none", "/proc", "tmpfs", 0, nullptr) != 0) return 77;
  std::filesystem::create_directory("/proc/7");
  return probe_holders({})["view"]["hidden"] == true ? 0 : __LINE__;
}

TEST(Probe, LooksAtTheDirectoryOfARelativeSocket) {
  std::ofstream("probe_test.socket").put(' ');
  const json found = probe_socket("probe_test.socket");
  std::filesystem::remove("probe_test.socket");
  EXPECT_EQ(found["exists"], true);
  EXPECT_TRUE(found.contains("directory_mode"));
}

TEST(Probe, FindsWhoHoldsAGpuButNoServiceAndNoWorkerOfAnAttachedProgram) {
  const pid_t child = fork();
  if (child == 0) _exit(look_for_holders() & 0xff);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no user and mount namespaces here";
  EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status);
}

}  // namespace
}  // namespace heddle::cli
