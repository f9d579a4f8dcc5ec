// The CDI specification against the rules of CDI 0.3.0, and what the hook does to images.
#include "daemon/cli/run/cdi.h"

#include <ctype.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/folder.h"
#include "tests/unit/made_elf.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* const kShim = "/usr/lib/heddle/libcuda.so.1\n";
const char* const kBoth = "/usr/lib/heddle/libcuda.so.1\n/usr/lib/heddle/libcuda.so\n";

// A name as CDI allows it: letters, digits and some of `others` between, a letter (or digit) first.
bool is_name(const std::string& text, const std::string& others) {
  const auto plain = [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && plain(text.front()) && plain(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return plain(c) || others.find(c) != std::string::npos; });
}

// What CDI's schema and its validator ask of edits: known keys, and at least one edit.
void check_edits(const json& edits) {
  ASSERT_TRUE(edits.is_object());
  EXPECT_FALSE(edits.empty());
  for (const auto& [key, value] : edits.items()) {
    EXPECT_TRUE(key == "env" || key == "mounts" || key == "hooks") << key;
    EXPECT_TRUE(value.is_array() && !value.empty()) << key;
  }
  for (const json& entry : edits.value("env", json::array())) {
    EXPECT_GT(entry.get<std::string>().find('='), 0u);
    EXPECT_NE(entry.get<std::string>().find('='), std::string::npos);
  }
  for (const json& mount : edits.value("mounts", json::array())) {
    EXPECT_EQ(mount["hostPath"].get<std::string>()[0], '/');
    EXPECT_EQ(mount["containerPath"].get<std::string>()[0], '/');
    EXPECT_TRUE(mount["options"].is_array());
    EXPECT_EQ(mount.size(), 3u);
  }
  const std::set<std::string> hooks = {"prestart",       "createRuntime", "createContainer",
                                       "startContainer", "poststart",     "poststop"};
  for (const json& hook : edits.value("hooks", json::array())) {
    EXPECT_EQ(hooks.count(hook["hookName"]), 1u);
    EXPECT_EQ(hook["path"].get<std::string>()[0], '/');
    EXPECT_TRUE(hook["args"].is_array());
    EXPECT_EQ(hook.size(), 3u);
  }
}

TEST(Cdi, SpecificationIsValid) {
  const json s = cdi_specification("/opt/heddle/bin/heddle", "/opt/heddle/lib/heddle",
                                   "/run/heddle/heddle.sock", "/run/heddle-mps");
  EXPECT_EQ(s["cdiVersion"], "0.3.0") << "runtimes refuse what is newer than they are";
  const std::string kind = s["kind"];
  const size_t slash = kind.find('/');
  ASSERT_NE(slash, std::string::npos);
  EXPECT_TRUE(is_name(kind.substr(0, slash), "_-.") && isalpha(kind[0]) != 0) << kind;
  EXPECT_TRUE(is_name(kind.substr(slash + 1), "_-") && isalpha(kind[slash + 1]) != 0) << kind;
  EXPECT_EQ(s.size(), 4u) << "cdiVersion, kind, containerEdits and devices: no other key";
  check_edits(s["containerEdits"]);
  std::set<std::string> names;
  for (const json& device : s["devices"]) {
    EXPECT_TRUE(is_name(device["name"], "_-.:"));
    EXPECT_TRUE(names.insert(device["name"]).second) << "twice";
    EXPECT_EQ(device.size(), 2u);
    check_edits(device["containerEdits"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"default", "latency", "batch"}));
}

TEST(Cdi, MountsTheSocketsDirectoryAndReplacesNoVariableOfImages) {
  const json edits =
      cdi_specification("/o/bin/heddle", "/o/lib/heddle", "/var/x/s", "")["containerEdits"];
  EXPECT_EQ(edits["mounts"][0]["hostPath"], "/o/lib/heddle");
  EXPECT_EQ(edits["mounts"][1]["hostPath"], "/var/x") << "a new daemon makes a new socket";
  EXPECT_EQ(edits["env"], json::array({"HEDDLE_SOCKET=/run/heddle/s"}));
  EXPECT_EQ(edits["mounts"].size(), 2u);
}

TEST(Cdi, ClientsOfAManagedMpsFindItsPipes) {
  const json edits =
      cdi_specification("/o/bin/heddle", "/o/lib/heddle", "/var/x/s", "/p")["containerEdits"];
  EXPECT_EQ(edits["mounts"][2]["hostPath"], "/p");
  EXPECT_EQ(edits["mounts"][2]["containerPath"], "/run/heddle-mps");
  EXPECT_EQ(edits["env"][1], "CUDA_MPS_PIPE_DIRECTORY=/run/heddle-mps");
}

class CdiHook : public ::testing::Test {
 protected:
  void SetUp() override {
    shim_ = write("shim", make_elf({.loader = "", .needs = {"GLIBC_2.17"}}));
    root_ = folder_ / "root";
    fs::create_directories(root_ / "etc");
  }
  fs::path write(const fs::path& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  void libc(const std::string& place, const std::vector<std::string>& versions) {
    write("root/" + place, make_elf({.loader = "", .defines = versions}));
  }
  std::string preloaded() {
    std::ostringstream text;
    text << std::ifstream(root_ / "etc/ld.so.preload").rdbuf();
    return text.str();
  }
  std::string apply() { return preload_in(root_, shim_); }

  const TestFolder made_;
  const fs::path folder_ = made_.path();
  fs::path shim_, root_;
};

TEST_F(CdiHook, OnlyADirectoryOfTheSocketsOwnIsMounted) {
  // Where it lets go it looks for the shim beside this test, which is none.
  const auto says = [&](const fs::path& socket) {
    ::testing::internal::CaptureStderr();
    EXPECT_NE(run_cdi(socket.string(), ""), 0);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string shared = "is not heddle's alone";
  EXPECT_NE(says("/run/heddle.sock").find("/run " + shared), std::string::npos);
  EXPECT_NE(says("/tmp/heddle.sock").find("/tmp " + shared), std::string::npos);
  write("own/heddle.sock", "");
  write("own/heddle.sock.lock", "");
  EXPECT_EQ(says(folder_ / "own/heddle.sock").find(shared), std::string::npos);
  EXPECT_EQ(says(folder_ / "missing/heddle.sock").find(shared), std::string::npos);
  EXPECT_NE(says(folder_ / "own/").find("name the socket"), std::string::npos);
  write("own/other", "");
  EXPECT_NE(says(folder_ / "own//./heddle.sock").find(shared), std::string::npos);
}

TEST_F(CdiHook, PreloadsWhereTheShimLoadsAndOnlyOnce) {
  libc("lib/x86_64-linux-gnu/libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.17"});
  EXPECT_EQ(apply(), "");
  EXPECT_EQ(preloaded(), kBoth);
  EXPECT_EQ(apply(), "") << "a container that starts again";
  EXPECT_EQ(preloaded(), kBoth);
}

TEST_F(CdiHook, LeavesImagesAloneInWhichItWouldNotLoad) {
  EXPECT_NE(apply().find("no glibc"), std::string::npos);
  libc("usr/lib64/libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.12"});
  EXPECT_EQ(apply(), "its usr/lib64/libc.so.6 lacks GLIBC_2.17");
  // A musl that calls itself libc.so.6 defines no versions; a 32-bit library is passed over.
  libc("usr/lib64/libc.so.6", {});
  EXPECT_NE(apply(), "");
  write("root/usr/lib64/libc.so.6", make_elf({.loader = "", .elf_class = ELFCLASS32}));
  EXPECT_NE(apply().find("no glibc"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ / "etc/ld.so.preload"));
}

TEST_F(CdiHook, LeavesImagesAloneThatLackALibraryBesideTheirs) {
  write("shim", make_elf({.loader = "", .needs = {"GLIBC_2.2.5"}, .from = "libpthread.so.0"}));
  libc("usr/lib64/libc.so.6", {"GLIBC_2.2.5"});
  EXPECT_EQ(apply(), "it has no usr/lib64/libpthread.so.0");
  EXPECT_FALSE(fs::exists(root_ / "etc/ld.so.preload"));
  write("root/usr/lib64/libpthread.so.0", "");
  EXPECT_EQ(apply(), "");
}

TEST_F(CdiHook, KeepsWhatTheImagePreloads) {
  libc("lib64/libc.so.6", {"GLIBC_2.17"});
  write("root/etc/ld.so.preload", "/usr/lib/libjemalloc.so");
  EXPECT_EQ(apply(), "");
  EXPECT_EQ(preloaded(), std::string("/usr/lib/libjemalloc.so\n") + kBoth);
  write("root/etc/ld.so.preload", kShim);
  EXPECT_EQ(apply(), "");
  EXPECT_EQ(preloaded(), kBoth);
  const std::string one_line = "/usr/lib/heddle/libcuda.so.1:/usr/lib/heddle/libcuda.so\n";
  write("root/etc/ld.so.preload", one_line);
  EXPECT_EQ(apply(), "");
  EXPECT_EQ(preloaded(), one_line);
  write("root/etc/ld.so.preload", std::string("# ") + kShim);
  EXPECT_EQ(apply(), "");
  EXPECT_EQ(preloaded(), std::string("# ") + kShim + kBoth) << "a comment preloads nothing";
}

TEST_F(CdiHook, NoLinkOfAnImageLeadsOutOfIt) {
  libc("lib64/libc.so.6", {"GLIBC_2.17"});
  const fs::path outside = write("outside/ld.so.preload", "mine\n");
  fs::remove_all(root_ / "etc");
  fs::create_symlink(outside.parent_path(), root_ / "etc");
  EXPECT_NE(apply(), "") << "in the image there is no such directory";
  fs::remove(root_ / "etc");
  fs::create_directories(root_ / "etc");
  fs::create_symlink(outside, root_ / "etc/ld.so.preload");
  EXPECT_NE(apply(), "");
  std::ostringstream text;
  text << std::ifstream(outside).rdbuf();
  EXPECT_EQ(text.str(), "mine\n");
}

// As kernels before 5.6 answer.
bool take_openat2_away() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(CdiHook, BlamesAnOldKernelAndNotTheImage) {
  const pid_t child = fork();
  if (child == 0) {
    if (!take_openat2_away()) _exit(77);
    _exit(apply().find("Linux 5.6") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
}

TEST_F(CdiHook, WritesThroughNoVolume) {
  libc("lib64/libc.so.6", {"GLIBC_2.17"});
  fs::create_directories(folder_ / "outside");
  const pid_t child = fork();
  if (child == 0) {  // a mount namespace of its own
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount((folder_ / "outside").c_str(), (root_ / "etc").c_str(), nullptr, MS_BIND, nullptr)) {
      _exit(77);
    }
    const std::string said = apply();
    _exit(said.find("is on a volume") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::is_empty(folder_ / "outside"));
}

TEST_F(CdiHook, NeverKeepsAContainerFromStarting) {
  // Nothing opens the other ends: to wait for them would be for ever.
  fs::create_directories(root_ / "lib64");
  ASSERT_EQ(mkfifo((root_ / "lib64/libc.so.6").c_str(), 0600), 0);
  EXPECT_NE(apply().find("no glibc"), std::string::npos);
  libc("usr/lib64/libc.so.6", {"GLIBC_2.17"});
  ASSERT_EQ(mkfifo((root_ / "etc/ld.so.preload").c_str(), 0600), 0);
  EXPECT_EQ(apply(), "its /etc/ld.so.preload is no file");
  for (const std::string state : {"", "{}", "[1]", R"({"bundle":"/nowhere"})", R"({"bundle":3})"}) {
    std::istringstream in(state);
    EXPECT_EQ(run_cdi_hook(in), 0) << state;
  }
  write("config.json", R"({"root":{"path":7}})");
  std::istringstream in(R"({"bundle":")" + folder_.string() + "\"}");
  EXPECT_EQ(run_cdi_hook(in), 0);
}

}  // namespace
}  // namespace heddle::cli
