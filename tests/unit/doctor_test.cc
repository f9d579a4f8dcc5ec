// What `heddle doctor` makes of facts, each made up for its test.
#include "daemon/cli/doctor/doctor.h"

#include <gtest/gtest.h>

#include "daemon/cli/daemon.h"

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
  std::vector<std::string> texts(const std::string& topic) {
    std::vector<std::string> all;
    for (const Finding& f : examine(facts_)) {
      if (f.topic == topic) all.push_back(f.text);
    }
    return all;
  }
  bool says(const std::string& topic, Level level, const std::string& part) {
    const Finding f = finding(topic);
    return f.level == level && f.text.find(part) != std::string::npos;
  }
  // A process that NVML lists, or that only /proc shows.
  json process(int pid, const std::string& exe, const json& uid, bool listed = true) {
    return {{"pid", pid},       {"exe", exe},       {"uid", uid},
            {"service", false}, {"holds", !listed}, {"listed", listed}};
  }
  json client(int id, int pid, int uid) {
    return {
        {"id", id},     {"memory", ""},
        {"pid", pid},   {"uid", uid},
        {"label", "a"}, {"managed", true},
        {"reason", ""}, {"counters", {{"self", {{"pool", 0}, {"starved", 0}}}, {"dropped", 0}}}};
  }

  // A host on which all is well: one GPU, one client, time-sliced.
  json facts_ = json::parse(R"({
    "version": "1+a", "protocol": 1, "uid": 1000,
    "shim": {"path": "/opt/heddle/lib/heddle/libcuda.so.1", "protocol": 1, "commit": "a"},
    "libc": {"version": "2.36", "obstacle": ""},
    "entry_points": {"table": 13000, "known": 674, "unknown": [], "past": []},
    "driver": {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "version": 13000},
    "nvml": {"driver_version": "580.1",
             "gpus": [{"index": 0, "name": "H200", "compute_mode": 0, "pids": [42],
                       "listed": true}]},
    "mps": null,
    "gpu_processes": [{"pid": 42, "exe": "/usr/bin/python3", "uid": 1000, "service": false,
                       "holds": true, "listed": true}],
    "view": {"host": true, "hidden": false, "unreadable": {"count": 0, "uids": []}},
    "socket": {"path": "/run/heddle/heddle.sock", "exists": true, "is_socket": true, "mode": 438,
               "uid": 0, "writable": true, "directory_mode": 493, "directory_uid": 0},
    "environment": {"ld_preload": [], "system_preload": [], "disabled": false, "real_libcuda": ""},
    "daemon": {"code": 0, "error": "", "pid_here": 7,
      "status": {"version": "1+a", "protocol": 1, "pid": 7, "mode": "timeslice", "bypass": false,
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
  EXPECT_TRUE(says("entry points", Level::kWarn, "the shim lacks: cuDeviceGetColour"));
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
  facts_["gpu_processes"].push_back(process(10, "nvidia-cuda-mps-server", 0));
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
  facts_["gpu_processes"].push_back(process(50, "/opt/app\n", 8));
  facts_["gpu_processes"].push_back(process(51, "other", 9, false));
  EXPECT_NE(finding("bypassed").remedy.find("heddle run"), std::string::npos);
  facts_["gpu_processes"][1]["pod"] = {{"namespace", "ml"}, {"pod", "api"}, {"container", "main"}};
  EXPECT_EQ(texts("bypassed"),
            (std::vector<std::string>{"pid 50 /opt/app? of uid 8 (pod ml/api, container main) uses "
                                      "a GPU and is not attached",
                                      "pid 51 other of uid 9 has a GPU open and is not attached"}));
  EXPECT_NE(finding("bypassed").remedy.find("heddle.io/batch"), std::string::npos);
}

TEST_F(Doctor, NamesWhomOnlyProcShows) {
  facts_["nvml"]["gpus"][0]["pids"] = json::array();
  facts_["gpu_processes"] = {process(50, "/opt/app", 8, false)};
  EXPECT_TRUE(says("bypassed", Level::kWarn, "pid 50 /opt/app of uid 8 has a GPU open"));
}

TEST_F(Doctor, NoServiceBypasses) {
  json service = process(50, "/usr/lib/xorg/Xorg", 0);
  service["service"] = true;
  facts_["gpu_processes"].push_back(service);
  EXPECT_TRUE(says("bypassed", Level::kOk, "all 1 programs"));
}

TEST_F(Doctor, AnEmptyListIsWellWhereEverythingIsSeen) {
  facts_["gpu_processes"] = json::array();
  EXPECT_TRUE(says("bypassed", Level::kOk, "no program uses a GPU past heddle"));
}

TEST_F(Doctor, AccusesAndClearsNobodyByNumbersOfAnotherNamespace) {
  facts_["gpu_processes"].push_back(process(50, "", nullptr));
  EXPECT_TRUE(says("bypassed", Level::kWarn, "not known: NVML lists pid 50, not to be found here"));
  EXPECT_NE(finding("bypassed").remedy.find("--pid=host"), std::string::npos);
  // In a container the number may be somebody else's; who has a GPU open is meant all the same.
  facts_["gpu_processes"][1] = process(50, "/bin/sh", 8);
  EXPECT_TRUE(says("bypassed", Level::kWarn, "pid 50 /bin/sh"));
  facts_["view"]["host"] = false;
  EXPECT_TRUE(says("bypassed", Level::kWarn, "not known: NVML lists pid 50, not to be found here"));
  facts_["gpu_processes"][1]["holds"] = nullptr;
  EXPECT_TRUE(says("bypassed", Level::kWarn, "not known: NVML lists pid 50, not to be found here"));
  facts_["gpu_processes"][1]["holds"] = true;
  EXPECT_TRUE(says("bypassed", Level::kWarn, "pid 50 /bin/sh of uid 8 uses a GPU"));
  // Who is attached is known, whatever /proc hides.
  facts_["view"]["host"] = true;
  facts_["gpu_processes"] = {process(42, "", nullptr)};
  EXPECT_TRUE(says("bypassed", Level::kOk, "all 1 programs"));
}

TEST_F(Doctor, VouchesForNoProcessThatItDoesNotSee) {
  const json view = facts_["view"];
  for (const json& processes : {facts_["gpu_processes"], json::array()}) {
    facts_["gpu_processes"] = processes;
    facts_["view"]["host"] = false;
    EXPECT_TRUE(says("bypassed", Level::kWarn, "not known: processes outside of this PID"));
    facts_["view"] = view;
    facts_["view"]["hidden"] = true;
    EXPECT_TRUE(says("bypassed", Level::kWarn, "not known: /proc leaves processes out"));
    facts_["view"] = view;
    facts_["view"]["unreadable"] = {{"count", 12}, {"uids", {0, 33}}};
    EXPECT_TRUE(says("bypassed", Level::kWarn, "open files of 12 processes of uid 0, 33"));
    EXPECT_NE(finding("bypassed").remedy.find("sudo"), std::string::npos);
    facts_["view"] = view;
  }
  // Whom it does see it names, and says that there may be more.
  facts_["view"]["hidden"] = true;
  facts_["gpu_processes"] = {process(50, "/opt/app", 8)};
  EXPECT_EQ(texts("bypassed"),
            (std::vector<std::string>{"pid 50 /opt/app of uid 8 uses a GPU and is not attached",
                                      "others not known: /proc leaves processes out (hidepid)"}));
}

TEST_F(Doctor, WithoutNvmlOnlyProcIsAsked) {
  facts_["nvml"] = {{"error", "not there"}};
  facts_["gpu_processes"] = json::array();
  EXPECT_EQ(finding("bypassed").level, Level::kOk);
  // MPS' server may have the GPU open in its clients' place.
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  EXPECT_TRUE(says("bypassed", Level::kWarn, "no NVML lists the clients of MPS"));
  facts_["mps"] = nullptr;
  facts_["gpu_processes"] = {process(10, "/usr/bin/nvidia-cuda-mps-server", 0, false)};
  EXPECT_TRUE(says("bypassed", Level::kWarn, "no NVML lists the clients of MPS"));
  // Nor is it to be complained of where there is no GPU to begin with.
  facts_["driver"] = {{"path", ""}, {"version", 0}};
  EXPECT_TRUE(says("bypassed", Level::kNone, "not known"));
}

TEST_F(Doctor, ComparesNoNumbersWithADaemonOfAnotherNamespace) {
  facts_["gpu_processes"].push_back(process(50, "/opt/app", 8));
  facts_["daemon"]["pid_here"] = 1007;
  EXPECT_EQ(texts("bypassed"),
            std::vector<std::string>{"not known: heddled runs in another PID namespace"});
  EXPECT_EQ(finding("bypassed").level, Level::kWarn);
  facts_["daemon"] = {{"code", kNoDaemon}, {"error", "/s: no daemon; start heddled"}};
  EXPECT_EQ(texts("bypassed").size(), 2U);  // without one nobody is attached
}

TEST_F(Doctor, VouchesForNoGpuThatNvmlSaysNothingOf) {
  json& gpu = facts_["nvml"]["gpus"][0];
  gpu["listed"] = false;  // /proc shows everybody
  EXPECT_EQ(finding("bypassed").level, Level::kOk);
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  EXPECT_TRUE(says("bypassed", Level::kWarn, "no NVML lists the clients of MPS"));
  gpu["compute_mode"] = nullptr;
  EXPECT_TRUE(says("gpu", Level::kWarn, "GPU 0: NVML does not say"));
  gpu = {{"index", 1}, {"error", 15}, {"pids", json::array()}, {"listed", false}};
  EXPECT_TRUE(says("gpu", Level::kWarn, "GPU 1: NVML does not say"));
}

TEST_F(Doctor, SaysThatTheShimWasNotTried) {
  facts_["shim"].erase("protocol");
  EXPECT_TRUE(says("shim", Level::kWarn, "not known"));
}

TEST_F(Doctor, SeesAnMpsWhosePipesAreElsewhere) {
  facts_["gpu_processes"].push_back(process(10, "nvidia-cuda-mps-server", 0));
  EXPECT_TRUE(says("mode", Level::kWarn, "its pipes are not where this looks"));
}

TEST_F(Doctor, PraisesNoClientsThatItDoesNotKnow) {
  EXPECT_EQ(texts("client").size(), 1U);
  facts_["daemon"]["status"]["bypass"] = true;
  EXPECT_TRUE(texts("client").empty());
  facts_["daemon"]["status"]["bypass"] = false;
  facts_["daemon"]["ps"]["truncated"] = true;
  EXPECT_TRUE(texts("client").empty());
  facts_["daemon"]["ps"]["truncated"] = false;
  facts_["daemon"]["ps"]["clients"][0]["managed"] = false;
  EXPECT_EQ(texts("client").size(), 1U);
  EXPECT_TRUE(says("client", Level::kWarn, "is not managed"));
}

TEST_F(Doctor, OnlyWhoComputesIsAUserOfMps) {
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  facts_["daemon"]["status"]["mode"] = "mps";
  facts_["gpu_processes"] = {process(50, "/usr/bin/python3", 8)};
  EXPECT_TRUE(says("mps", Level::kError, "8, 1000"));
  facts_["gpu_processes"][0]["listed"] = false;  // and so /proc says who only has the device open
  EXPECT_TRUE(says("mps", Level::kWarn, "of several (uid 8, 1000) have a GPU open"));
  facts_["gpu_processes"][0]["uid"] = 1000;
  EXPECT_EQ(finding("mps").level, Level::kOk);
}

TEST_F(Doctor, DoesNotRuleOutASecondUserOfMpsUnseen) {
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  facts_["daemon"]["status"]["mode"] = "mps";
  facts_["view"]["unreadable"] = {{"count", 12}, {"uids", {0, 33}}};
  EXPECT_TRUE(says("mps", Level::kWarn, "whether there is a second one is not known"));
  EXPECT_NE(finding("mps").remedy, "");
  // A heddled that manages MPS asks it who waits.
  json& known = facts_["daemon"]["status"]["mps"];
  known = {{"managed", true},
           {"wanted", true},
           {"answers", true},
           {"error", ""},
           {"waiting", json::array()}};
  EXPECT_EQ(finding("mps").level, Level::kOk);
  known["answers"] = false;
  EXPECT_EQ(finding("mps").level, Level::kWarn);
  known["answers"] = true;
  known["managed"] = false;
  EXPECT_EQ(finding("mps").level, Level::kWarn);
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
  facts_["gpu_processes"].push_back(process(50, "/opt/app", 8));
  facts_["daemon"]["ps"]["truncated"] = true;
  EXPECT_TRUE(says("bypassed", Level::kNone, "not known"));
}

TEST_F(Doctor, NamesWhoIsNotAttachedHoweverManyAre) {
  facts_["gpu_processes"].push_back(process(50, "/opt/app", 8));
  facts_["gpu_processes"].push_back(process(51, "/opt/app", 8));
  facts_["daemon"]["ps"]["truncated"] = true;
  facts_["daemon"]["ps"]["pids"] = {50};
  EXPECT_TRUE(says("bypassed", Level::kWarn, "pid 51"));
  facts_["daemon"]["ps"]["pids"] = {50, 51};
  EXPECT_NE(finding("bypassed").level, Level::kWarn);
}

TEST_F(Doctor, ComparesVersions) {
  facts_["daemon"]["status"]["version"] = "0.2.0";
  EXPECT_EQ(finding("daemon").level, Level::kWarn);
  facts_["shim"]["commit"] = "b";
  EXPECT_TRUE(says("shim", Level::kWarn, "libcuda.so.1 is of b, this heddle is 1+a"));
  facts_["daemon"]["status"]["protocol"] = facts_["shim"]["protocol"] = 2;
  EXPECT_EQ(finding("daemon").level, Level::kError);
  EXPECT_EQ(finding("shim").level, Level::kError);
}

TEST_F(Doctor, WithoutADaemonSaysHowToStartIt) {
  facts_["daemon"] = {{"code", kNoDaemon}, {"error", "/s: no daemon; start heddled"}};
  EXPECT_TRUE(says("daemon", Level::kError, "/s: no daemon"));
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
  facts_["daemon"]["status"]["devices"][0]["stats"]["policy_faults"] = 9;
  EXPECT_EQ(finding("policy").level, Level::kOk) << "its predecessors' faults";
  json& policy = facts_["daemon"]["status"]["policy"];
  policy["faults"] = 2;
  EXPECT_TRUE(says("policy", Level::kWarn, "2 times"));
  policy["error"] = "p.lua: quarantined after 8 faults";
  policy["faulted"] = {{"name", "p"}, {"hash", "h"}};
  EXPECT_TRUE(says("policy", Level::kWarn, "gapfill runs; p.lua: quarantined"));
}

TEST_F(Doctor, AFactThatAnOlderDaemonLacksEndsOneCheckOnly) {
  facts_["daemon"]["ps"]["clients"][0].erase("counters");
  EXPECT_TRUE(says("daemon", Level::kWarn, "key 'counters' not found"));
  EXPECT_EQ(finding("bypassed").level, Level::kOk);
}

TEST_F(Doctor, SeesWhatElseIsPreloaded) {
  json& preload = facts_["environment"]["ld_preload"];
  preload = {{{"path", "/opt/heddle/lib/heddle/libcuda.so.1"}, {"exists", true}},
             {{"path", "/usr/lib/heddle/libcuda.so.1"}, {"exists", true}},
             {{"path", "/usr/lib/heddle/libcuda.so"}, {"exists", true}},
             {{"path", "libjemalloc.so"}, {"exists", true}}};
  EXPECT_EQ(finding("preload").level, Level::kOk);
  preload.push_back({{"path", "/usr/local/vgpu/libvgpu.so"}, {"exists", true}});
  EXPECT_TRUE(says("preload", Level::kWarn, "libvgpu"));
  preload = json::array();
  facts_["environment"]["system_preload"] = {{{"path", "/gone.so"}, {"exists", false}}};
  EXPECT_TRUE(says("preload", Level::kWarn, "/etc/ld.so.preload names /gone.so"));
}

// ---- limits on device memory that hold nobody ----

TEST_F(Doctor, SaysWhatElseTheHostHoldsMemoryWith) {
  facts_["nvml"]["memory_limits"] = false;
  facts_["cgroup"] = {{"root", "/sys/fs/cgroup"}, {"dmem", false}};
  EXPECT_TRUE(texts("memory").empty());
  facts_["nvml"]["memory_limits"] = true;
  EXPECT_EQ(texts("memory"),
            std::vector<std::string>{
                "NVML's limits by cgroup are present, heddle's own limit is in force"});
  facts_["nvml"]["memory_limits"] = false;
  facts_["cgroup"]["dmem"] = true;
  EXPECT_EQ(texts("memory"),
            std::vector<std::string>{"the cgroup controller dmem of /sys/fs/cgroup is present, "
                                     "heddle's own limit is in force"});
  EXPECT_EQ(finding("memory").level, Level::kOk);
}

TEST_F(Doctor, SaysNothingOfMemoryWhereNoLimitIsSet) { EXPECT_TRUE(texts("memory").empty()); }

TEST_F(Doctor, NamesMpsLimitsThatVanish) {
  json& environment = facts_["environment"];
  environment["mps_memory_limit"] = "0=20G";
  EXPECT_TRUE(says("memory", Level::kWarn, "no MPS answers here"));
  facts_["mps"] = {
      {"directory", "/tmp/nvidia-mps"}, {"uid", 0}, {"pid", 9}, {"shares_cgroup_with", 0}};
  EXPECT_TRUE(says("memory", Level::kWarn, "tools show the whole GPU"));
  environment["mps_memory_limit"] = "0=20G,1=10G";
  EXPECT_TRUE(says("memory", Level::kWarn, "names device 1 of 1: MPS drops the whole of it"));
  environment["mps_memory_limit"] = "0=20G";
  environment["visible_devices"] = "0,3";
  EXPECT_TRUE(says("memory", Level::kWarn, "names GPU 3 of 1"));
  environment["visible_devices"] = "";
  facts_["nvml"]["driver_version"] = "615.20";
  EXPECT_TRUE(says("memory", Level::kWarn, "a named one does not inherit it"));
}

TEST_F(Doctor, NamesClientsWhoseShimKeepsToNoLimit) {
  json limited = client(1, 42, 1000);
  limited["memory"] = "20GiB";
  limited["memory_by"] = "shim";
  facts_["daemon"]["ps"]["clients"] = {limited};
  EXPECT_EQ(finding("memory").level, Level::kOk);
  facts_["daemon"]["ps"]["clients"][0]["memory_by"] = "none";
  EXPECT_TRUE(says("memory", Level::kWarn, "its shim is older than limits"));
}

}  // namespace
}  // namespace heddle::cli
