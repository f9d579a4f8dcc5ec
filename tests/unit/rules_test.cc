// Who gets what: identity from the kernel, the administrator's rules, the defaults.
#include "daemon/server/rules.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace heddle::server {
namespace {

constexpr uid_t kDaemon = 7;

Applicant who(std::optional<uid_t> uid, const std::string& exe = "", const std::string& label = "",
              int claimed = -1) {
  Applicant applicant;
  applicant.origin.local = true;
  applicant.origin.uid = uid;
  applicant.origin.exe = exe;
  applicant.label = label;
  applicant.claimed = claimed;
  return applicant;
}

// The rules of a configuration's text, which every test here is about.
std::vector<Rule> rules(const std::string& text) {
  const Result<Config> config = parse_config(text, "heddled.toml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? config->rules : std::vector<Rule>{};
}

std::string rules_error(const std::string& text) {
  const Result<Config> config = parse_config(text, "heddled.toml");
  return config ? "" : config.error().message;
}

TEST(Rules, DefaultsLetOnlyTheDaemonsUserAndRootPromoteThemselves) {
  EXPECT_EQ(grade({}, kDaemon, who(0, "", "", 0)).priority, 0);
  EXPECT_EQ(grade({}, kDaemon, who(kDaemon, "", "", 2)).priority, 2);
  EXPECT_EQ(grade({}, kDaemon, who(8, "", "", 2)).priority, 5);
  EXPECT_EQ(grade({}, kDaemon, who(8, "", "", 9)).priority, 9);
  EXPECT_EQ(grade({}, kDaemon, who(8, "", "", -1)).priority, 5);
  EXPECT_EQ(grade({}, kDaemon, who(0, "", "", -100)).priority, 5);
  EXPECT_EQ(grade({}, kDaemon, who(0, "", "", 0)).rule, "default: root may claim any");
}

TEST(Rules, AnybodyMayAskForLessOfTheGpuAndARuleDecides) {
  Applicant applicant = who(8);
  applicant.sms = "25%";
  EXPECT_EQ(grade({}, kDaemon, applicant).terms.sms, "25%");
  const auto kept = rules("[[rule]]\nuid = 8\nsms = \"32-131\"\n");
  EXPECT_EQ(grade(kept, kDaemon, applicant).terms.sms, "32-131");
  const auto silent = rules("[[rule]]\nuid = 8\nclaim = 3\n");
  EXPECT_EQ(grade(silent, kDaemon, applicant).terms.sms, "25%");
  EXPECT_EQ(rules("[[rule]]\nsms = 32\n").at(0).terms.sms, "32");
  applicant.sms = "no SMs";
  EXPECT_EQ(grade({}, kDaemon, applicant).terms.sms, "");
  EXPECT_EQ(rules_error("[[rule]]\nsms = \"half\"\n"),
            "heddled.toml:2: rule.sms must be a number of SMs (32: the first 32), a range of them "
            "(32-131), or a share (25%, 25%-100%)");
}

TEST(Rules, RootOfAContainerIsNobodySpecial) {
  for (const uid_t uid : {uid_t{0}, kDaemon}) {
    Applicant applicant = who(uid, "", "", 0);
    applicant.origin.local = false;
    EXPECT_EQ(grade({}, kDaemon, applicant).priority, 5);
    EXPECT_EQ(grade({}, kDaemon, applicant).rule, "default: others may claim Q5 at most");
  }
}

TEST(Rules, AUserWhomTheDaemonCannotSeeIsNobodySpecial) {
  const auto all = rules("[[rule]]\nuid = 65534\npriority = 0\n");
  EXPECT_EQ(grade(all, 65534, who(std::nullopt, "", "", 0)).priority, 5);
  EXPECT_EQ(grade(all, kDaemon, who(65534)).priority, 0);
}

TEST(Rules, TheFirstMatchDecides) {
  const auto all = rules(R"(
[[rule]]
name = "given"
exe = "/opt/*"
priority = 1
[[rule]]
name = "claim"
uid = 8
label = "team-*"
claim = 3
)");
  EXPECT_EQ(grade(all, kDaemon, who(8, "/opt/x", "team-a", 9)).priority, 1);
  EXPECT_EQ(grade(all, kDaemon, who(8, "/bin/x", "team-a", 0)).priority, 3);
  EXPECT_EQ(grade(all, kDaemon, who(8, "/bin/x", "team-a", 0)).rule, "claim");
  EXPECT_EQ(grade(all, kDaemon, who(8, "/bin/x", "other", 0)).priority, 5);
  EXPECT_EQ(grade(all, kDaemon, who(9, "/bin/x", "team-a", 0)).priority, 5);
}

TEST(Rules, GiveShareObjectiveAndWhatHappensWithoutADaemon) {
  const auto all = rules(R"(
[[rule]]
label = "train"
share = 2.5
slo_ms = 20
slowdown_max = 1.1
slowdown_p99_max = 1.3
compute = { request = "25%", limit = "50%" }
dram_max = 0.3
l2_max = 0.5
fail = "closed"
)");
  const Grade given = grade(all, kDaemon, who(0, "", "train", 3));
  EXPECT_EQ(given.priority, 3) << "the rule says nothing of priorities: the default for root";
  EXPECT_EQ(given.terms.share, 2.5f);
  EXPECT_EQ(given.terms.slo_ms, 20.f);
  EXPECT_EQ(given.terms.slowdown_max, (core::SlowdownMax{1.1F, 1.3F}));
  EXPECT_EQ(given.terms.channel_max, (core::ChannelMax{0, 0.5F, 0.3F}));
  EXPECT_EQ(given.terms.compute, (core::Compute{0.25F, 0.5F}));
  EXPECT_TRUE(given.terms.fail_closed);
  const Grade other = grade(all, kDaemon, who(0, "", "serve", 3));
  EXPECT_EQ(other.terms.share, 1.f);
  EXPECT_EQ(other.terms.slo_ms, 0.f);
  EXPECT_EQ(other.terms.slowdown_max, core::SlowdownMax{});
  EXPECT_EQ(other.terms.channel_max, core::ChannelMax{});
  EXPECT_FALSE(other.terms.fail_closed);
}

TEST(Rules, LimitChannelsToTheLeastOfRuleAndClaim) {
  const auto all = rules("[[rule]]\nlabel = \"train\"\ndram_max = 0.3\nl2_max = 0.2\n");
  Applicant applicant = who(9, "", "train");
  applicant.channel_max = {0.6F, 0.1F, 0.9F};
  EXPECT_EQ(grade(all, kDaemon, applicant).terms.channel_max, (core::ChannelMax{0.6F, 0.1F, 0.3F}));
  applicant.label = "serve";
  EXPECT_EQ(grade(all, kDaemon, applicant).terms.channel_max, applicant.channel_max);
}

TEST(Rules, GoByAnyGroupOfTheProcess) {
  const auto all = rules("[[rule]]\ngid = 44\npriority = 2\n");
  Applicant applicant = who(8);
  applicant.origin.gids = {100, 44};
  EXPECT_EQ(grade(all, kDaemon, applicant).priority, 2);
  applicant.origin.gids = {100};
  EXPECT_EQ(grade(all, kDaemon, applicant).priority, 5);
}

TEST(Rules, GoByACgroupOfAnyHierarchy) {
  const auto all = rules("[[rule]]\ncgroup = \"/kubepods\"\npriority = 8\n");
  Applicant applicant = who(8);
  applicant.origin.cgroups = {"/user.slice", "/kubepods/burstable/pod1"};
  EXPECT_EQ(grade(all, kDaemon, applicant).priority, 8);
  applicant.origin.cgroups = {"/user.slice", "/kubepods-of-mine"};
  EXPECT_EQ(grade(all, kDaemon, applicant).priority, 5);
}

TEST(Rules, AnUnreadableExecutableMatchesNoPattern) {
  const auto all =
      rules("[[rule]]\nexe = \"*\"\npriority = 0\n[[rule]]\ncgroup = \"/\"\npriority = 1\n");
  EXPECT_EQ(grade(all, kDaemon, who(8)).priority, 5);
  EXPECT_EQ(grade(all, kDaemon, who(8, "/bin/x")).priority, 0);
}

TEST(Rules, AnUnknownUserOfARuleMatchesNobodyAndIsNamed) {
  const Result<Config> config = parse_config(
      "[[rule]]\nuid = \"no-such-user\"\npriority = 0\n"
      "[[rule]]\ngid = \"no-such-group\"\npriority = 0\n",
      "heddled.toml");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->warnings.size(), 2u);
  EXPECT_EQ(config->warnings[0].find("heddled.toml:2: rule.uid: this host knows no user "
                                     "'no-such-user'"),
            0u)
      << config->warnings[0];
  EXPECT_EQ(config->warnings[1].find("heddled.toml:5: rule.gid: this host knows no group "
                                     "'no-such-group'"),
            0u)
      << config->warnings[1];
  EXPECT_EQ(grade(config->rules, kDaemon, who(8)).priority, 5);
  auto later = config->rules;
  EXPECT_FALSE(resolve_names(later));
  later[0].user = later[1].group = "root";
  EXPECT_TRUE(resolve_names(later));
  EXPECT_EQ(later[0].uid, 0u);
  EXPECT_EQ(grade(later, kDaemon, who(0)).rule, "rule 1");
}

TEST(Rules, ARuleThatNoClientCanReachIsNamed) {
  const auto warnings = [](const std::string& first, const std::string& second) {
    return parse_config("[[rule]]\nname = \"first\"\npriority = 0\n" + first +
                            "\n[[rule]]\nname = \"second\"\npriority = 1\n" + second + "\n",
                        "heddled.toml")
        ->warnings;
  };
  EXPECT_EQ(warnings("", "uid = 8"),
            std::vector<std::string>{"heddled.toml:5: rule \"second\": no client reaches it, as "
                                     "\"first\" matches each of its clients; put it above"});
  EXPECT_EQ(warnings("uid = 8", "uid = 8\nexe = \"/opt/*\"").size(), 1u);
  EXPECT_EQ(warnings("cgroup = \"/a\"", "cgroup = \"/a/docker-*\"").size(), 1u);
  EXPECT_TRUE(warnings("uid = 8", "uid = 9").empty());
  EXPECT_TRUE(warnings("uid = 8", "exe = \"/opt/*\"").empty());
  EXPECT_TRUE(warnings("uid = 8\nexe = \"/opt/*\"", "uid = 8").empty());
  EXPECT_TRUE(warnings("cgroup = \"/a/docker-?\"", "cgroup = \"/a/docker-*\"").empty());
  EXPECT_EQ(warnings("uid = \"no-such-user\"", "uid = \"no-such-user\"").size(), 2u)
      << "names that are not known match nobody, and are told";
}

TEST(Rules, AClientThatARestrictionMayMeanGetsNoMoreThanTheDefault) {
  const auto all = rules(
      "[[rule]]\nname = \"held\"\nuid = \"no-such-user\"\nexe = \"/opt/*\"\npriority = 9\n"
      "[[rule]]\nexe = \"/*\"\npriority = 1\nshare = 4\n");
  const Grade maybe = grade(all, kDaemon, who(8, "/opt/x"));
  EXPECT_EQ(maybe.priority, 5);
  EXPECT_EQ(maybe.terms.share, 1);
  EXPECT_NE(maybe.rule.find("no more than the default: held"), std::string::npos) << maybe.rule;
  EXPECT_EQ(grade(all, kDaemon, who(8, "/usr/x")).priority, 1) << "it is not for this one";
  EXPECT_EQ(grade(all, kDaemon, who(0, "/opt/x", "", 0)).priority, 1) << "root's default is more";
  const auto promotes = rules(
      "[[rule]]\nuid = \"no-such-user\"\npriority = 0\n[[rule]]\nexe = \"/*\"\npriority = 1\n");
  EXPECT_EQ(grade(promotes, kDaemon, who(8, "/opt/x")).priority, 1) << "it restricts nobody";
}

TEST(Rules, WhatAPolicyDoesNotKeepOfAPromiseIsToldWithTheRemedy) {
  Rule rule;
  rule.name = "api";
  rule.terms.slowdown_max = {1.1F, 1.25F};
  Generation policy;
  policy.name = "fair";
  EXPECT_EQ(
      unkept_texts(rule, policy),
      (std::vector<std::string>{
          "rule \"api\" promises 1.10, policy fair does not keep promises; auto does",
          "rule \"api\" promises a p99 of 1.25, policy fair does not keep promises of the p99; "
          "auto does"}));
  policy.keeps_promises = true;
  EXPECT_EQ(unkept_texts(rule, policy).size(), 1u);
  policy.keeps_p99 = true;
  EXPECT_TRUE(unkept_texts(rule, policy).empty());
  policy = {};
  rule.terms.slowdown_max = {};
  EXPECT_TRUE(unkept_texts(rule, policy).empty()) << "nothing is promised";
  rule.terms.compute.limit = 0.5F;
  policy.name = "edf";
  EXPECT_EQ(unkept_texts(rule, policy),
            std::vector<std::string>{
                "rule \"api\" has compute, policy edf does not keep it; auto and fair do"});
  policy.keeps_compute = true;
  EXPECT_TRUE(unkept_texts(rule, policy).empty());
}

TEST(Rules, ACgroupIsAPathPrefixOrAGlob) {
  EXPECT_TRUE(cgroup_matches("/a/b", "/a/b"));
  EXPECT_TRUE(cgroup_matches("/a/b", "/a/b/c"));
  EXPECT_TRUE(cgroup_matches("/a/", "/a/b"));
  EXPECT_FALSE(cgroup_matches("/a/b", "/a/bc"));
  EXPECT_FALSE(cgroup_matches("/a/b", "/x/a/b"));
  EXPECT_TRUE(cgroup_matches("/a/*.service", "/a/x.service"));
  EXPECT_TRUE(cgroup_matches("/a/*.service", "/a/x.service/sub"));
  EXPECT_FALSE(cgroup_matches("/a/*.service", "/a/b/x.service"));
  EXPECT_TRUE(cgroup_matches("/system.slice/docker-*", "/system.slice/docker-1.scope/init"));
  EXPECT_FALSE(cgroup_matches("/*/docker-*",
                              "/user.slice/user-8.slice/user@8.service/app.slice/docker-x.service"))
      << "what systemd-run --user makes";
}

TEST(Rules, EveryBadValueIsOneLineWithItsPlace) {
  const auto rule = [](const std::string& line) { return rules_error("[[rule]]\n" + line + "\n"); };
  const std::string place = "heddled.toml:2: rule.";
  EXPECT_EQ(rule("uid = -1"), place + "uid must be the id or the name of a user");
  EXPECT_EQ(rule("gid = 1.5"), place + "gid must be the id or the name of a group");
  EXPECT_EQ(rule("priorty = 3"),
            "heddled.toml:2: unknown key rule.priorty; did you mean \"priority\"?")
      << "not that it has no priority";
  EXPECT_EQ(rule("cgroup = \"kubepods\""),
            place +
                "cgroup must be a path from the root, such as \"/system.slice/x.service\", or "
                "such a glob, \"/system.slice/docker-*\"");
  EXPECT_NE(rule("cgroup = \"*/docker-*\""), "") << "any user's cgroups may end so";
  EXPECT_EQ(rule("exe = \"python3\""), place +
                                           "exe must be a glob over an absolute path, such as "
                                           "\"/opt/app/*\" or \"*/python3*\"");
  EXPECT_EQ(rule("exe = 3"), place + "exe must be a string in quotes");
  for (const std::string of : {"slowdown_max", "slowdown_p99_max"}) {
    EXPECT_EQ(rule(of + " = 1"), place + of + " must be a number from 1.01 to 100");
  }
  EXPECT_EQ(rule("share = 0"), place + "share must be a number from 0.001 to 1000");
  EXPECT_EQ(rule("slo_ms = \"20\""), place + "slo_ms must be a number from 0.01 to 1e+06");
  for (const std::string of : {"3", "{}", "{ request = 0.3 }", "{ request = \"120%\" }",
                               "{ limits = \"20%\" }", "{ request = \"30%\", limit = \"20%\" }"}) {
    EXPECT_EQ(rule("compute = " + of).rfind(place + "compute must be { request = \"25%\"", 0), 0u)
        << of;
  }
  EXPECT_EQ(rule("compute = { limit = \"20%\" }"), "");
  EXPECT_EQ(rule("dram_max = 30"), place + "dram_max must be a number from 0.01 to 1");
  EXPECT_EQ(rule("fail = \"shut\""), place + "fail must be \"open\" or \"closed\"");
  EXPECT_EQ(rule("slo = 3\nclaim = 3"),
            "heddled.toml:2: unknown key rule.slo; did you mean \"slo_ms\"?");
  EXPECT_EQ(rule("priority = 3\nclaim = 3"),
            "heddled.toml:3: rule.claim must be left out beside "
            "priority, which is given whatever is claimed");
  EXPECT_NE(rule("label = \"x\"").find("heddled.toml:1: a rule needs"), std::string::npos);
}

TEST(Rules, EveryListingSaysWhichEndIsWhich) {
  EXPECT_EQ(priority_text(0), "Q0 (highest)");
  EXPECT_EQ(priority_text(5), "Q5");
  EXPECT_EQ(priority_text(9), "Q9 (lowest)");
}

TEST(Origin, ReadsBothVersionsOfCgroups) {
  EXPECT_EQ(cgroup_paths("12:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/b:c\n"),
            (std::vector<std::string>{"/a", "/b:c"}));
  EXPECT_EQ(cgroup_paths("0::/\n"), std::vector<std::string>{"/"});
  EXPECT_TRUE(cgroup_paths("").empty());
  EXPECT_TRUE(cgroup_paths("nonsense\n1:2\n").empty());
}

// A process that connected and holds still.
class Connected {
 public:
  Connected() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    socket_ = pair[0];
    close(pair[1]);
    EXPECT_EQ(ipc::peer_of(socket_, peer), 0);
  }
  ~Connected() {
    close(socket_);
    close(peer.pidfd);
  }
  int socket() const { return socket_; }
  ipc::Peer peer;

 private:
  int socket_ = -1;
};

TEST(Origin, IsWhatTheKernelSays) {
  const Connected self;  // the pair's other end is this process as well
  const Origin origin = origin_of(self.socket(), self.peer);
  EXPECT_EQ(origin.pid, getpid());
  EXPECT_TRUE(origin.local);
  EXPECT_TRUE(is_privileged(self.peer)) << "the daemon's own user";
  EXPECT_EQ(origin.uid, getuid());
  ASSERT_FALSE(origin.gids.empty());
  EXPECT_EQ(origin.gids[0], getgid());
  EXPECT_NE(origin.exe.find("server_test"), std::string::npos);
  EXPECT_FALSE(origin.cgroups.empty());
  EXPECT_EQ(origin.unseen, "");
}

TEST(Origin, NamesAnExecutableThatWasReplacedSince) {
  const std::string program = testing::TempDir() + "program-" + std::to_string(getpid());
  std::filesystem::copy_file("/bin/sleep", program);
  const pid_t child = fork();
  if (child == 0) {
    execl(program.c_str(), program.c_str(), "60", nullptr);
    _exit(1);
  }
  const std::string exe = "/proc/" + std::to_string(child) + "/exe";
  std::error_code error;
  for (int i = 0; i < 10'000 && std::filesystem::read_symlink(exe, error) != program; ++i) {
    usleep(1'000);
  }
  EXPECT_EQ(unlink(program.c_str()), 0);
  Connected self;
  self.peer.pid = child;
  EXPECT_EQ(origin_of(self.socket(), self.peer).exe, program);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(Origin, OfAProcessThatEndedIsNotAnothersThatGotItsNumber) {
  Connected self;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  close(self.peer.pidfd);
  self.peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0u));
  ASSERT_GE(self.peer.pidfd, 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  // The number is alive (it is ours), the process that connected is not.
  const Origin origin = origin_of(self.socket(), self.peer);
  EXPECT_EQ(origin.exe, "");
  EXPECT_TRUE(origin.cgroups.empty());
  EXPECT_NE(origin.unseen.find("has ended"), std::string::npos);
}

TEST(Origin, OfANumberThatIsAnotherUsersByNowIsDropped) {
  Connected self;
  self.peer.by_number = true;  // as before Linux 6.5
  EXPECT_NE(origin_of(self.socket(), self.peer).exe, "");
  ++self.peer.uid;
  const Origin origin = origin_of(self.socket(), self.peer);
  EXPECT_EQ(origin.exe, "");
  EXPECT_TRUE(origin.cgroups.empty());
  EXPECT_NE(origin.unseen.find("another user's"), std::string::npos);
}

int wait_for_a_signal(void*) {
  pause();
  return 0;
}

TEST(Origin, OfAContainerIsNotPrivilegedWhateverItsUser) {
  alignas(16) static char stack[65536];
  const pid_t child = clone(wait_for_a_signal, stack + sizeof stack,
                            CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, nullptr);
  if (child < 0) GTEST_SKIP() << "no PID namespaces here: " << strerror(errno);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0u));
  for (const uid_t uid : {uid_t{0}, geteuid()}) {
    EXPECT_FALSE(is_privileged({child, uid, 0, pidfd}));
    EXPECT_FALSE(is_privileged({child, uid, 0, -1})) << "a kernel without pidfds";
    EXPECT_FALSE(is_privileged({0, uid, 0, -1})) << "of a namespace that is not seen";
  }
  EXPECT_TRUE(is_privileged({getpid(), 0, 0, -1}));
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(pidfd);
}

TEST(Origin, OutsideThePidNamespaceSaysSo) {
  Connected self;
  self.peer.pid = 0;
  const Origin origin = origin_of(self.socket(), self.peer);
  EXPECT_EQ(origin.uid, getuid());
  EXPECT_EQ(origin.exe, "");
  EXPECT_NE(origin.unseen.find("PID namespace"), std::string::npos);
}

}  // namespace
}  // namespace heddle::server
