// What `heddle doctor` makes of facts, each made up for its test.
#include "daemon/cli/doctor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/probe.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;

class Doctor : public ::testing::Test {
 protected:
  // The finding of `topic` that is worst.
  Finding finding(const std::string& topic) {
    Finding worst{Level::kNone, "", "not there", ""};
    bool found = false;
    for (const Finding& f : examine(facts_)) {
      if (f.topic != topic || (found && f.level <= worst.level)) continue;
      worst = f;
      found = true;
    }
    return worst;
  }
  bool says(const std::string& topic, Level level, const std::string& part) {
    const Finding f = finding(topic);
    return f.level == level && f.text.find(part) != std::string::npos;
  }
  json client(int id, int pid, int uid) {
    return {{"id", id},
            {"pid", pid},
            {"uid", uid},
            {"label", "a"},
            {"managed", true},
            {"reason", ""},
            {"counters", {{"self", {{"pool", 0}, {"starved", 0}}}, {"dropped", 0}}}};
  }

  // A host on which all is well: one GPU, one client, time-sliced.
  json facts_ = json::parse(R"({
    "version": "0.1.0", "protocol": 1, "uid": 1000,
    "shim": {"path": "/opt/heddle/lib/heddle/libcuda.so.1", "protocol": 1},
    "libc": {"version": "2.36", "obstacle": ""},
    "entry_points": {"table": 13000, "known": 637, "unknown": [], "past": []},
    "driver": {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "version": 13000},
    "nvml": {"driver_version": "580.1",
             "gpus": [{"index": 0, "name": "H200", "compute_mode": 0, "pids": [42]}]},
    "mps": null,
    "gpu_processes": [{"pid": 42, "exe": "/usr/bin/python3", "uid": 1000}],
    "socket": {"path": "/run/heddle/heddle.sock", "exists": true, "is_socket": true, "mode": 438,
               "uid": 0, "writable": true, "directory_mode": 493, "directory_uid": 0},
    "environment": {"ld_preload": [], "system_preload": [], "disabled": false, "real_libcuda": ""},
    "daemon": {"code": 0, "error": "",
      "status": {"version": "0.1.0", "protocol": 1, "pid": 7, "mode": "timeslice", "bypass": false,
                 "policy": {"name": "gapfill", "error": ""},
                 "devices": [{"stats": {"policy_faults": 0}}]},
      "ps": {"clients": [], "total": 1}}
  })");

  void SetUp() override { facts_["daemon"]["ps"]["clients"].push_back(client(1, 42, 1000)); }
};

TEST_F(Doctor, FindsNothingWhereAllIsWell) {
  for (const Finding& f : examine(facts_)) {
    EXPECT_EQ(f.level, Level::kOk) << f.topic << ": " << f.text;
    EXPECT_EQ(f.remedy, "");
  }
}

TEST_F(Doctor, EveryComplaintHasARemedy) {
  facts_["driver"] = {{"path", ""}, {"version", 0}};
  facts_["nvml"]["gpus"][0]["compute_mode"] = 2;
  facts_["daemon"]["status"]["bypass"] = true;
  facts_["socket"]["writable"] = false;
  facts_["environment"]["disabled"] = true;
  int complaints = 0;
  for (const Finding& f : examine(facts_)) {
    if (f.level < Level::kWarn) continue;
    ++complaints;
    EXPECT_NE(f.remedy, "") << f.topic;
  }
  EXPECT_EQ(complaints, 5);
}

TEST_F(Doctor, WantsADriverOfTheFloor) {
  facts_["driver"]["version"] = 12020;
  EXPECT_TRUE(says("driver", Level::kError, "CUDA 12.2"));
  facts_["driver"]["version"] = 12030;
  EXPECT_TRUE(says("driver", Level::kOk, "CUDA 12.3"));
  facts_["driver"] = {{"error", "the driver does not answer"}};
  EXPECT_TRUE(says("driver", Level::kError, "does not answer"));
  facts_["environment"]["real_libcuda"] = "/nowhere";
  EXPECT_TRUE(says("driver", Level::kError, "HEDDLE_REAL_LIBCUDA=/nowhere"));
}

TEST_F(Doctor, NamesTheEntryPointsThatGoPastTheShim) {
  EXPECT_TRUE(says("entry points", Level::kOk, "the shim's table is of CUDA 13.0"));
  facts_["entry_points"]["unknown"] = {"cuDeviceGetColour", "cuLaunchKernelEx_v2"};
  EXPECT_TRUE(says("entry points", Level::kOk, "passed by: cuDeviceGetColour"));
  facts_["entry_points"]["past"] = {"cuLaunchKernelEx_v2"};
  EXPECT_TRUE(says("entry points", Level::kWarn, "CUDA 13.0: cuLaunchKernelEx_v2"));
  EXPECT_NE(finding("entry points").remedy, "");
  for (int i = 0; i < 9; ++i)
    facts_["entry_points"]["past"].push_back("cuLaunch" + std::to_string(i));
  EXPECT_TRUE(says("entry points", Level::kWarn, "cuLaunch6 and 2 more"));
  facts_["entry_points"] = {{"error", "/x: its symbols cannot be read"}};
  EXPECT_TRUE(says("entry points", Level::kNone, "/x"));
}

TEST_F(Doctor, IsOfUseWithoutAGpu) {
  facts_["driver"] = {{"path", ""}, {"version", 0}, {"error", "cuDriverGetVersion: error 100"}};
  facts_["nvml"] = {{"error", "libnvidia-ml.so.1: not found"}};
  facts_["gpu_processes"] = json::array();
  EXPECT_TRUE(says("driver", Level::kWarn, "no CUDA driver"));
  EXPECT_EQ(finding("gpu").level, Level::kNone);
  EXPECT_EQ(finding("daemon").level, Level::kOk);
}

TEST_F(Doctor, AnExclusiveGpuNeedsMps) {
  facts_["nvml"]["gpus"][0]["compute_mode"] = 3;
  EXPECT_TRUE(says("gpu", Level::kError, "Exclusive"));
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  EXPECT_EQ(finding("gpu").level, Level::kOk);
}

TEST_F(Doctor, SeesTheUidTrapOfMps) {
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  facts_["daemon"]["status"]["mode"] = "mps";
  EXPECT_EQ(finding("mps").level, Level::kOk);
  facts_["daemon"]["ps"]["clients"].push_back(client(2, 43, 1001));
  EXPECT_TRUE(says("mps", Level::kError, "1000, 1001"));
  facts_["daemon"]["ps"]["clients"].erase(1);
  facts_["mps"]["uid"] = 1001;
  EXPECT_TRUE(says("mps", Level::kWarn, "uid 1001"));
  // Its own server is no program of another user.
  facts_["mps"]["uid"] = 0;
  facts_["gpu_processes"].push_back({{"pid", 10}, {"exe", "nvidia-cuda-mps-server"}, {"uid", 0}});
  EXPECT_EQ(finding("mps").level, Level::kOk);
  EXPECT_EQ(finding("bypassed").level, Level::kOk);
  facts_["mps"]["shares_cgroup_with"] = 7;
  EXPECT_TRUE(says("mps", Level::kWarn, "cgroup"));
}

TEST_F(Doctor, ComparesTheModeWithTheDaemons) {
  facts_["daemon"]["status"]["mode"] = "mps";
  EXPECT_EQ(finding("mode").level, Level::kWarn);
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 0}, {"shares_cgroup_with", 0}};
  EXPECT_TRUE(says("mode", Level::kWarn, "not there"));
  facts_["mps"]["pid"] = 9;
  EXPECT_EQ(finding("mode").level, Level::kOk);
  facts_["daemon"]["status"]["mode"] = "timeslice";
  EXPECT_EQ(finding("mode").level, Level::kWarn);
}

TEST_F(Doctor, NamesEachProcessThatBypasses) {
  facts_["gpu_processes"].push_back({{"pid", 50}, {"exe", "/opt/app\n"}, {"uid", 8}});
  facts_["gpu_processes"].push_back({{"pid", 51}, {"exe", "other"}, {"uid", nullptr}});
  std::vector<std::string> named;
  for (const Finding& f : examine(facts_)) {
    if (f.topic == "bypassed") named.push_back(f.text);
  }
  EXPECT_EQ(named,
            (std::vector<std::string>{"pid 50 /opt/app? of uid 8 uses a GPU and is not attached",
                                      "pid 51 other uses a GPU and is not attached"}));
}

TEST_F(Doctor, OnlyWhoComputesIsAUserOfMps) {
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  facts_["daemon"]["status"]["mode"] = "mps";
  facts_["gpu_processes"] = {{{"pid", 50}, {"exe", "/usr/bin/python3"}, {"uid", 8}}};
  EXPECT_TRUE(says("mps", Level::kError, "8, 1000"));
  facts_["nvml"] = {{"error", "not there"}};  // and so /proc says who only has the device open
  EXPECT_EQ(finding("mps").level, Level::kOk);
}

TEST_F(Doctor, SaysWhatHeddledKnowsOfTheMpsThatItManages) {
  json& known = facts_["daemon"]["status"]["mps"];
  known = {{"managed", true}, {"wanted", true}, {"error", ""}, {"waiting", json::array()}};
  EXPECT_EQ(finding("mps").text, "not there") << "all is well";
  known["waiting"].push_back({{"pid", 77}, {"uid", 1001}});
  EXPECT_TRUE(says("mps", Level::kError, "pid 77 of uid 1001 waits inside cuInit"));
  known["waiting"].clear();
  known["error"] = "/run/x: belongs to uid 5; name another";
  EXPECT_TRUE(says("mps", Level::kError, "/run/x: belongs to uid 5"));
  EXPECT_EQ(finding("mps").remedy, "name another");
  known["wanted"] = false;
  EXPECT_EQ(finding("mps").remedy, "heddle mps start");
}

TEST_F(Doctor, AccusesNobodyByAListThatWasCut) {
  facts_["gpu_processes"].push_back({{"pid", 50}, {"exe", "/opt/app"}, {"uid", 8}});
  facts_["daemon"]["ps"]["truncated"] = true;
  EXPECT_TRUE(says("bypassed", Level::kNone, "not known"));
}

TEST_F(Doctor, VouchesForNoProcessThatItMayNotLookAt) {
  facts_["nvml"] = {{"error", "not there"}};
  facts_["gpu_processes"] = json::array();
  facts_["gpu_processes_complete"] = false;
  EXPECT_TRUE(says("bypassed", Level::kNone, "only root"));
  facts_["gpu_processes_complete"] = true;
  EXPECT_EQ(finding("bypassed").level, Level::kOk);
}

TEST_F(Doctor, ComparesVersions) {
  facts_["daemon"]["status"]["version"] = "0.2.0";
  EXPECT_EQ(finding("daemon").level, Level::kWarn);
  facts_["daemon"]["status"]["protocol"] = 2;
  EXPECT_EQ(finding("daemon").level, Level::kError);
  facts_["shim"]["protocol"] = 2;
  EXPECT_EQ(finding("shim").level, Level::kError);
}

TEST_F(Doctor, WithoutADaemonSaysHowToStartIt) {
  facts_["daemon"] = {{"code", kNoDaemon}, {"error", "/s: no daemon; start heddled"}};
  EXPECT_EQ(finding("daemon").level, Level::kError);
  EXPECT_EQ(finding("daemon").text, "/s: no daemon");
  EXPECT_EQ(finding("daemon").remedy, "start heddled");
  EXPECT_TRUE(says("bypassed", Level::kWarn, "pid 42"));
}

TEST_F(Doctor, LooksAtTheSocketsOwnersAndModes) {
  facts_["socket"]["directory_mode"] = 0777;
  EXPECT_TRUE(says("socket", Level::kWarn, "anybody may replace it"));
  facts_["socket"]["directory_mode"] = 01777;
  EXPECT_EQ(finding("socket").level, Level::kOk);
  facts_["socket"]["uid"] = 1001;
  EXPECT_TRUE(says("socket", Level::kWarn, "uid 1001"));
  facts_["socket"]["uid"] = 1000;
  facts_["socket"]["directory_uid"] = 1000;
  EXPECT_EQ(finding("socket").level, Level::kOk);
  facts_["socket"]["directory_uid"] = 1001;
  EXPECT_TRUE(says("socket", Level::kWarn, "uid 1001 owns its directory"));
  facts_["socket"]["directory_uid"] = 1000;
  facts_["socket"]["writable"] = false;
  EXPECT_TRUE(says("socket", Level::kError, "0666"));
  facts_["socket"]["is_socket"] = false;
  EXPECT_TRUE(says("socket", Level::kError, "is no socket"));
}

TEST_F(Doctor, CountsWhatWentPastItsGate) {
  facts_["daemon"]["ps"]["clients"][0]["counters"]["self"]["pool"] = 3;
  EXPECT_TRUE(says("client", Level::kWarn, "3 launches did not wait (pool)"));
  json& counters = facts_["daemon"]["ps"]["clients"][0]["counters"];
  counters["self"] = {{"starved", 4}};
  EXPECT_TRUE(says("client", Level::kWarn, "4 launches did not wait (starved)"));
  counters["self"] = {{"stale", 5}};
  EXPECT_TRUE(says("client", Level::kWarn, "5 launches did not wait (stale)"));
  counters["self"] = json::object();
  EXPECT_EQ(finding("client").level, Level::kOk);
  counters["dropped"] = 6;
  EXPECT_TRUE(says("client", Level::kWarn, "6 records found their ring full"));
  counters["dropped"] = 0;
  facts_["daemon"]["ps"]["clients"][0]["managed"] = false;
  EXPECT_TRUE(says("client", Level::kWarn, "is not managed"));
  facts_["daemon"]["status"]["devices"][0]["stats"]["policy_faults"] = 2;
  EXPECT_TRUE(says("policy", Level::kWarn, "2 times"));
}

TEST_F(Doctor, SeesWhatElseIsPreloaded) {
  json& preload = facts_["environment"]["ld_preload"];
  preload = {{{"path", "/opt/heddle/lib/heddle/libcuda.so.1"}, {"exists", true}},
             {{"path", "libjemalloc.so"}, {"exists", true}}};
  EXPECT_EQ(finding("preload").level, Level::kOk);
  preload.push_back({{"path", "/usr/local/vgpu/libvgpu.so"}, {"exists", true}});
  EXPECT_TRUE(says("preload", Level::kWarn, "libvgpu"));
  preload = json::array();
  facts_["environment"]["system_preload"] = {{{"path", "/gone.so"}, {"exists", false}}};
  EXPECT_TRUE(says("preload", Level::kWarn, "/etc/ld.so.preload names /gone.so"));
}

std::set<int> holders(const std::set<int>& attached) {
  std::set<int> pids;
  const json found = probe_holders(attached);
  for (const json& process : found["processes"]) pids.insert(process["pid"].get<int>());
  return pids;
}

// In namespaces of its own, with a /dev of its own: this process has a GPU open, so has a child
// that inherited it, and so has a service. Returns the line that was wrong, 0 if none, 77 if none
// can be.
int look_for_holders() {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " + uid + " 1";
  std::ofstream("/proc/self/gid_map") << "0 " + gid + " 1";
  if (mount("none", "/dev", "tmpfs", 0, nullptr) != 0) return 77;
  if (open("/dev/nvidia0", O_RDWR | O_CREAT, 0600) < 0) return 77;
  std::filesystem::copy_file("/bin/sleep", "/dev/nvidia-persistenced");
  int started[2];
  if (pipe2(started, O_CLOEXEC) != 0) return 77;
  const int self = getpid(), worker = fork();
  if (worker == 0) {
    close(started[1]);
    pause();
  }
  const int service = fork();
  if (service == 0) execl("/dev/nvidia-persistenced", "x", "60", nullptr);
  close(started[1]);
  char none;
  (void)!read(started[0], &none, 1);  // ends when the service has become what it is
  const std::set<int> all = holders({}), others = holders({self});
  kill(worker, SIGKILL);
  kill(service, SIGKILL);
  while (wait(nullptr) > 0) {
  }
  if (all.count(self) == 0 || all.count(worker) == 0) return __LINE__;
  if (all.count(service) != 0) return __LINE__;
  if (others.count(self) != 0 || others.count(worker) != 0) return __LINE__;
  // It is root of its own namespace alone, and may not look at pid 1.
  return probe_holders({})["complete"] == false ? 0 : __LINE__;
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
