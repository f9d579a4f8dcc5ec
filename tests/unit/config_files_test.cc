// A configuration of several files: conf.d beside it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/server/config.h"

namespace heddle::server {
namespace {

TEST(Config, ReadsFilesOfConfDBehindTheFileInOrder) {
  const std::filesystem::path folder = testing::TempDir() + "config-" + std::to_string(getpid());
  std::filesystem::create_directories(folder / "conf.d");
  const std::string file = folder / "heddled.toml";
  std::ofstream(file) << "[daemon]\nspin_us = 20\nreport = 'each'\n"
                         "[policy]\nname = \"fair\"\nparams = { slice_us = 3 }\n"
                         "[[rule]]\nname = \"own\"\nlabel = \"a\"\nclaim = 1\n";
  std::ofstream(folder / "conf.d/20-team.toml") << "[daemon]\nspin_us = 40\n"
                                                   "[[rule]]\nname = \"team\"\nclaim = 5\n";
  std::ofstream(folder / "conf.d/10-site.toml") << "[daemon]\nspin_us = 25\n"
                                                   "[policy]\nname = \"gapfill\"\n"
                                                   "[[rule]]\nname = \"site\"\nclaim = 3\n";
  std::ofstream(folder / "conf.d/.30-unsaved.toml") << "no TOML";
  std::ofstream(folder / "conf.d/10-site.toml.old") << "no TOML";
  const Result<Config> config = load_config(file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->spin_us, 40u);
  EXPECT_EQ(config->report, ReportSetting::kEach);
  EXPECT_EQ(config->policy.name, "gapfill");
  EXPECT_TRUE(config->policy.params.empty());
  ASSERT_EQ(config->rules.size(), 3u);
  EXPECT_EQ(config->rules[0].name, "own");
  EXPECT_EQ(config->rules[1].name, "site");
  EXPECT_EQ(config->rules[2].name, "team");

  std::ofstream(folder / "conf.d/20-team.toml") << "[daemon]\n\nspin_uss = 40\n";
  const Result<Config> mistyped = load_config(file);
  ASSERT_FALSE(mistyped);
  EXPECT_EQ(mistyped.error().message.find((folder / "conf.d/20-team.toml:3: ").string()), 0u)
      << mistyped.error().message;
  std::filesystem::remove_all(folder);
}

TEST(Config, KeepsParamsOfAPolicyThatALaterFileNamesAgain) {
  const std::filesystem::path folder = testing::TempDir() + "again-" + std::to_string(getpid());
  std::filesystem::create_directories(folder / "conf.d");
  const std::string file = folder / "heddled.toml";
  std::ofstream(file) << "[policy]\nname = \"fair\"\nparams = { slice_us = 3 }\n";
  std::ofstream(folder / "conf.d/10-site.toml") << "[policy]\nname = \"fair\"\nwatch = false\n";
  const Result<Config> config = load_config(file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->policy.params.size(), 1u);
  std::filesystem::remove_all(folder);
}

TEST(Config, RefusesConfDThatAnybodyCouldHaveWritten) {
  const std::filesystem::path folder = testing::TempDir() + "whose-" + std::to_string(getpid());
  const std::filesystem::path conf_d = folder / "conf.d";
  std::filesystem::create_directories(conf_d);
  const std::string file = folder / "heddled.toml", site = conf_d / "10-site.toml";
  std::ofstream(file) << "";
  std::ofstream(site) << "";
  ASSERT_TRUE(load_config(file));
  for (const std::string& open : {conf_d.string(), site}) {
    std::filesystem::permissions(open, std::filesystem::perms::others_write,
                                 std::filesystem::perm_options::add);
    const Result<Config> refused = load_config(file);
    ASSERT_FALSE(refused) << open;
    EXPECT_EQ(refused.error().message, open + ": anybody can write it; run chmod o-w on it");
    std::filesystem::permissions(open, std::filesystem::perms::others_write,
                                 std::filesystem::perm_options::remove);
  }
  ASSERT_EQ(mkfifo((conf_d / "20-pipe.toml").c_str(), 0600), 0);
  const Result<Config> piped = load_config(file);
  ASSERT_FALSE(piped);
  EXPECT_NE(piped.error().message.find("20-pipe.toml: not a regular file"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Config, ReachesEveryRuleOfTheExamplesTogether) {
  const std::filesystem::path folder = testing::TempDir() + "start-" + std::to_string(getpid());
  std::filesystem::create_directories(folder / "conf.d");
  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  std::filesystem::copy_file(root / "examples/promise.toml", folder / "conf.d/50-site.toml");
  std::ifstream page(root / "daemon/START.md");
  int blocks = 0;  // the rules by team, and that for everybody
  for (std::string line; std::getline(page, line);) {
    if (line != "```toml") continue;
    std::ofstream rules(folder / "conf.d" /
                        (++blocks == 1 ? "20-teams.toml" : "99-everybody.toml"));
    while (std::getline(page, line) && line != "```") rules << line << '\n';
  }
  EXPECT_EQ(blocks, 2);
  const Result<Config> config = load_config(folder / "heddled.toml", true);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->conf_d, 3u);
  EXPECT_FALSE(load_config(folder / "heddled.toml")) << "a file that was named must be there";
  EXPECT_EQ(config->rules.size(), 6u);
  for (const std::string& warning : config->warnings) ADD_FAILURE() << warning;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle::server
