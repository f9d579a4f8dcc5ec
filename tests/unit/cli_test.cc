// The command line's parts that ask no daemon: output, options, and whether the shim would load.
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>

#include "daemon/base/printable_output.h"
#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/policy/policy.h"
#include "daemon/cli/run/preload.h"
#include "tests/folder.h"
#include "tests/unit/made_elf.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

TEST(Print, JsonIsAsciiAndLosesNothing) {
  ::testing::internal::CaptureStdout();
  write_json({{"label", "evil\u009b31m\u202e"}});
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const unsigned char c : text) EXPECT_LT(c, 0x80) << text;
  EXPECT_EQ(nlohmann::json::parse(text)["label"], "evil\u009b31m\u202e");
}

TEST(Options, ANumberIsBetweenItsBounds) {
  CLI::App app;
  double seconds = 0;
  app.add_option("--seconds", seconds)->transform(as_seconds())->check(between(0.1, 60));
  const auto takes = [&](const std::string& text) {
    try {
      app.parse("--seconds=" + text);
      return true;
    } catch (const CLI::ParseError&) {
      return false;
    }
  };
  for (const char* bad : {"nan", "-nan", "inf", "-inf", "-1", "0", "61", "1e300", "2m", "x", ""}) {
    EXPECT_FALSE(takes(bad)) << bad << " was taken for " << seconds;
  }
  for (const char* good : {"0.1", "60", "1m", "5s", "1e1"}) EXPECT_TRUE(takes(good)) << good;
}

TEST(Print, ATerminalIsSentNothingThatItObeys) {
  EXPECT_EQ(printable("a b"), "a b");
  EXPECT_EQ(printable(""), "-");
  EXPECT_EQ(printable("a\x1b[2J\x7f"), "a?[2J?");
  EXPECT_EQ(printable("\x9b"
                      "2J\xc2\x9b"),
            "?2J??");
}

class Preload : public ::testing::Test {
 protected:
  void SetUp() override {
    shim_ = write("shim", make_elf({"", {"GLIBC_2.2.5", "GLIBC_2.17"}, {}}));
  }
  fs::path write(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    fs::permissions(path, fs::perms(0755));
    return path;
  }
  Obstacle obstacle(const std::string& bytes) {
    return obstacle_in(write("program", bytes).string(), shim_);
  }
  const TestFolder made_;
  const fs::path folder_ = made_.path();
  fs::path shim_;
};

TEST_F(Preload, TakesProgramsOfThisSystem) {
  EXPECT_EQ(obstacle_in("/bin/sh", shim_).why, "");
  EXPECT_EQ(obstacle_in("/proc/self/exe", shim_).why, "");
  EXPECT_EQ(obstacle(make_elf({})).why, "");
}

TEST_F(Preload, RefusesWhatWouldIgnoreIt) {
  const Obstacle fixed = obstacle(make_elf({.loader = ""}));
  EXPECT_NE(fixed.why.find("program is statically linked"), std::string::npos);
  EXPECT_TRUE(fixed.harmless);
  EXPECT_NE(obstacle(make_elf({.elf_class = ELFCLASS32})).why.find("not for x86-64"),
            std::string::npos);
  EXPECT_NE(obstacle(make_elf({.machine = EM_AARCH64})).why.find("not for x86-64"),
            std::string::npos);
}

TEST_F(Preload, RefusesWhatItWouldBreak) {
  const Obstacle musl = obstacle(make_elf({.loader = "/lib/ld-musl-x86_64.so.1"}));
  EXPECT_NE(musl.why.find("uses /lib/ld-musl-x86_64.so.1, not glibc's loader"), std::string::npos);
  EXPECT_FALSE(musl.harmless);
  // An old C library beside the program's loader.
  const fs::path loader = write("ld-linux-x86-64.so.2", "");
  write("libc.so.6", make_elf({"", {}, {"GLIBC_2.2.5", "GLIBC_2.12"}}));
  const Obstacle old = obstacle(make_elf({.loader = loader.string()}));
  EXPECT_NE(old.why.find("lacks GLIBC_2.17"), std::string::npos) << old.why;
  EXPECT_FALSE(old.harmless);
  write("libc.so.6", make_elf({"", {}, {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"}}));
  EXPECT_EQ(obstacle(make_elf({.loader = loader.string()})).why, "");
  // One that came without what was once apart from it.
  write("shim", make_elf({.loader = "", .needs = {"GLIBC_2.2.5"}, .from = "libdl.so.2"}));
  const Obstacle alone = obstacle(make_elf({.loader = loader.string()}));
  EXPECT_NE(alone.why.find("beside which is no libdl.so.2"), std::string::npos) << alone.why;
  write("libdl.so.2", "");
  EXPECT_EQ(obstacle(make_elf({.loader = loader.string()})).why, "");
}

TEST_F(Preload, RefusesProgramsThatGainPrivileges) {
  if (geteuid() != 0) GTEST_SKIP() << "an owner gains nothing from his own program";
  const fs::path program = write("program", make_elf({}));
  ASSERT_EQ(chown(program.c_str(), 1, getegid()), 0);
  fs::permissions(program, fs::perms(04755));
  EXPECT_NE(obstacle_in(program.string(), shim_).why.find("gains privileges"), std::string::npos);
}

TEST_F(Preload, FollowsScriptsToTheirInterpreters) {
  const fs::path musl = write("musl", make_elf({.loader = "/lib/ld-musl-x86_64.so.1"}));
  EXPECT_NE(obstacle("#!" + musl.string() + " -x\n").why.find("ld-musl"), std::string::npos);
  EXPECT_EQ(obstacle("#! /bin/sh\n").why, "");
  EXPECT_EQ(obstacle("echo a script without a line\n").why, "");
  const std::string path = getenv("PATH");
  setenv("PATH", (folder_.string() + ":" + path).c_str(), 1);
  EXPECT_NE(obstacle("#!/usr/bin/env -S A=b musl\n").why.find("ld-musl"), std::string::npos);
  setenv("PATH", path.c_str(), 1);
  const std::string shell = fs::canonical("/bin/sh").string();
  const auto executable = [&](const std::string& text) {
    return executable_of(write("program", text).string());
  };
  EXPECT_EQ(executable("#!/usr/bin/env -S A=b sh\n"), shell) << "rules by exe see the interpreter";
  EXPECT_EQ(executable("#!/bin/sh -e\n"), shell);
  EXPECT_EQ(executable("echo a script without a line\n"), shell);
  EXPECT_EQ(executable(make_elf({})), (folder_ / "program").string());
  const fs::path loop = folder_ / "program";
  EXPECT_EQ(obstacle("#!" + loop.string() + "\n").why, "") << "the kernel will say so";
}

TEST(PreloadList, IsReadAsTheLoaderReadsIt) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(preload_variable(" a.so::/b/$LIB/b.so #c "), (Words{"a.so", "/b/$LIB/b.so", "#c"}));
  EXPECT_EQ(preload_variable(""), Words{});
  EXPECT_EQ(preload_file("# all of\n/a.so:/b.so\t/c.so # /d.so\n\n/e.so#f"),
            (Words{"/a.so", "/b.so", "/c.so", "/e.so"}));
}

TEST(PreloadList, LoaderVariablesAreFilledIn) {
  setenv("LD_PRELOAD", "/usr/$LIB/a.so:/${ORIGIN}/b.so:/gone.so:c.so", 1);
  const nlohmann::json list = probe_environment()["ld_preload"];
  unsetenv("LD_PRELOAD");
  ASSERT_EQ(list.size(), 4u);
  for (const auto& entry : list) EXPECT_EQ(entry["exists"], entry["path"] != "/gone.so") << entry;
}

TEST(Elf, AFileThatIsNoCLibraryLacksEverything) {
  const std::string shim = make_elf({"", {"GLIBC_2.17", "GLIBC_2.2.5"}, {}});
  EXPECT_EQ(missing_versions(shim, ""), (std::vector<std::string>{"GLIBC_2.2.5", "GLIBC_2.17"}));
  EXPECT_EQ(missing_versions(shim, make_elf({"", {}, {"GLIBC_2.2.5"}})),
            std::vector<std::string>{"GLIBC_2.17"});
}

TEST(PolicyTest, OutputOfATestAndItsPolicyIsShown) {
  const TestFolder folder;
  const std::string at = folder.path();
  std::ofstream(at + "/p.lua") << "trace('loaded') return policy { name = 'p', api = 1, "
                                  "version = '1', hooks = { client_init = function(c) "
                                  "trace('%s comes', c.name) end } }";
  std::ofstream(at + "/p_test.lua")
      << "test('a', function(t) local s = t.sim { policy = 'p.lua' } s:run(20) "
         "s:client { name = 'x' } print('n', 1, nil) trace('%d', 7) end)\n"
         "test('b', function(t) for i = 1, 300 do print(i) end error('no') end)";
  const auto results = run_policy_test_file(at + "/p_test.lua");
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ((*results)[0].output,
            (std::vector<std::string>{"0.0 us: loaded", "20.0 us: x comes", "n\t1\tnil", "7"}));
  EXPECT_EQ((*results)[1].output.size(), 201U);
  EXPECT_EQ((*results)[1].output.back(), "100 more lines");
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_policy_tests({at + "/p_test.lua"}, "a", false), 0);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("     | 20.0 us: x comes\n"),
            std::string::npos);
}

TEST(PrintableOutput, ControlBytesAreShownAndTextStays) {
  const auto shown = [](std::string_view text) { return without_controls(text); };
  EXPECT_EQ(shown("one\ttwo\n"), "one\ttwo\n");
  EXPECT_EQ(shown("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(shown("2 ± 1 µs – ≥ ÷ 日本"), "2 ± 1 µs – ≥ ÷ 日本");
  EXPECT_EQ(shown("a\x9b\xc2\x9b"), "a\\x9b\xc2\\x9b");
}

TEST(PrintableOutput, EveryStreamOfStandardErrorIsKeptPrintable) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto say = [] {
    keep_output_printable();
    std::cerr << "one\x1b" << std::flush;
    std::fprintf(stderr, "%s\x1b", "two");
    std::cerr << "three\n";
    std::_Exit(0);
  };
  EXPECT_EXIT(say(), testing::ExitedWithCode(0), "one\\\\x1btwo\\\\x1bthree\n");
}

TEST(PolicyTest, APolicyStandsForTheTestsBesideItWhichRunOnce) {
  const TestFolder made;
  const fs::path folder = made.path();
  std::ofstream(folder / "x.lua") << "queue 'not called by tests'";
  std::ofstream(folder / "x_test.lua") << "test('one is one', function(t) t.eq(1, 1, 'one') end)";
  for (const std::vector<std::string>& paths : std::vector<std::vector<std::string>>{
           {folder / "x.lua"}, {folder / "x.lua", folder / "x_test.lua"}, {folder}}) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_policy_tests(paths, "", false), 0);
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_NE(out.find("1 tests, 0 failed"), std::string::npos) << out;
  }
}

TEST(CommandLine, AWordThatIsNoCommandIsNamedWithTheNearest) {
  CLI::App app("x");
  app.add_option("--socket");
  app.add_subcommand("run", "Run a program: run [...] -- CMD");
  CLI::App* policy = app.add_subcommand("policy");
  policy->add_subcommand("load")->add_option("name");
  policy->add_subcommand("hidden")->group("");
  const auto said = [&](std::vector<const char*> words) {
    std::vector<char*> given;
    for (const char* word : words) given.push_back(const_cast<char*>(word));
    return unknown_command(app, given);
  };
  EXPECT_EQ(said({"polcy", "load"}), "no command 'polcy'; did you mean 'policy'?");
  EXPECT_EQ(said({"--socket", "/s", "--json", "policy", "laod"}),
            "no command 'laod'; did you mean 'load'?");
  EXPECT_EQ(said({"zzzzzz"}), "no command 'zzzzzz'; there are: run policy");
  EXPECT_EQ(said({"policy", "load", "mine"}), "") << "its argument";
  EXPECT_EQ(said({"policy", "hidden"}), "");
  EXPECT_EQ(said({"policy"}), "") << "one is missing";
}

TEST(CommandLine, UsageShowsThatAProgramFollows) {
  CLI::App app("x");
  app.formatter(std::make_shared<UsageFormatter>());
  app.add_subcommand("run", "Run a program: run [...] -- CMD");
  EXPECT_NE(app.get_subcommand("run")->help().find("run [OPTIONS] -- CMD [ARGS...]\n"),
            std::string::npos)
      << app.get_subcommand("run")->help();
  EXPECT_EQ(app.help().find("-- CMD [ARGS"), std::string::npos);
}

}  // namespace
}  // namespace heddle::cli
