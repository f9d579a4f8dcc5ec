// What the store remembers of generations: who loaded them, how they ended, and the way back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/policy_store.h"
#include "tests/folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class PolicyHistoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ + "/state");
    settings_.directory = folder_;
    restart();
  }
  void restart() { store_.emplace(settings_, folder_ + "/state/quarantined"); }

  void save(const std::string& name, const std::string& version) const {
    std::ofstream(folder_ + "/" + name + ".lua")
        << "-- " + version + "\nreturn policy { name = '" + name + "', api = 1, version = '" +
               version + "', params = { a = { type = 'int', min = 0, max = 9, default = 1, " +
               "doc = 'd' } }, hooks = {} }";
  }
  uint64_t adopt(Result<server::Generation> generation, const std::string& how = "load") {
    EXPECT_TRUE(generation) << (generation ? "" : generation.error().message);
    generation->by = {how, 7, 42};
    last_ = *generation;
    const uint64_t number = store_->adopted(*generation, false);
    EXPECT_TRUE(store_->remember());
    return number;
  }
  uint64_t load(const std::string& name, const std::string& version) {
    save(name, version);
    return adopt(store_->load(name, false));
  }
  std::string running() const { return store_->show().value("text", "builtin").substr(0, 4); }
  bool differs() const { return store_->status().at("file_differs"); }

  const TestFolder made_;
  const std::string folder_ = made_.path();
  server::PolicySettings settings_;
  std::optional<FilePolicyStore> store_;
  server::Generation last_;
};

TEST_F(PolicyHistoryTest, SaysWhoLoadedWhatAndHowItEnded) {
  EXPECT_EQ(load("p", "1"), 1u);
  EXPECT_EQ(load("p", "2"), 2u);
  const std::string hash = last_.hash;
  store_->quarantine(last_, "it loops");
  EXPECT_EQ(adopt(store_->load("builtin", true), "quarantine"), 3u);
  const json all = store_->history();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["ended"], "replaced by 2 (load)");
  EXPECT_EQ(all[1]["ended"], "quarantined: it loops");
  EXPECT_EQ(all[2]["ended"], "");
  EXPECT_TRUE(all[2]["ended_at"].is_null());
  EXPECT_EQ(all[0]["uid"], 7);
  EXPECT_EQ(all[0]["pid"], 42);
  EXPECT_EQ(all[1]["hash"], hash);
  EXPECT_EQ(all[2]["name"], "builtin");
}

TEST_F(PolicyHistoryTest, SurvivesARestartAndGoesOnCounting) {
  load("p", "1");
  load("p", "2");
  restart();
  json all = store_->history();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["ended"], "heddled ended");
  EXPECT_EQ(adopt(store_->load("p", false), "config"), 3u);
  EXPECT_EQ(adopt(store_->past(1), "rollback"), 4u) << "its text was kept";
  EXPECT_EQ(running(), "-- 1");
  std::ofstream(folder_ + "/state/history.json") << "[{}, 7, {\"generation\": 3}";
  restart();
  EXPECT_EQ(store_->history().size(), 0u) << "one that was cut is as if there were none";
}

TEST_F(PolicyHistoryTest, RollsBackToTheLastOtherThatWasNotQuarantined) {
  EXPECT_FALSE(store_->past(0));
  load("p", "1");
  EXPECT_NE(store_->past(0).error().message.find("no other generation ran"), std::string::npos);
  load("p", "2");
  adopt(store_->load("p", false));  // the same again
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 1");
  load("p", "3");
  store_->quarantine(last_, "it loops");
  adopt(store_->load("builtin", true), "quarantine");
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 1");
  EXPECT_NE(store_->past(99).error().message.find("no generation 99"), std::string::npos);
  adopt(store_->past(6), "rollback");
  EXPECT_EQ(running(), "buil");
}

TEST_F(PolicyHistoryTest, WhatWasThrownOutIsSkippedAndASecondRollbackGoesFurtherBack) {
  load("p", "1");
  load("p", "2");
  load("p", "3");  // 3
  adopt(store_->past(2), "rolled back by itself: runs took 1.29 times what they take alone");
  EXPECT_EQ(running(), "-- 2");
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 1") << "not 3, which was thrown out, nor 2 again";
  EXPECT_EQ(last_.as, 1u);
  EXPECT_NE(store_->past(0).error().message.find("no other generation ran before generation 1 "),
            std::string::npos);
  restart();
  adopt(store_->past(3), "rollback");
  EXPECT_EQ(running(), "-- 3") << "who names it gets it";
  load("p", "4");  // 7
  load("p", "5");
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 4");
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 3");
  EXPECT_EQ(last_.as, 6u);
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 2") << "before 3 the first time";
  EXPECT_EQ(store_->history().back()["as"], 2);
}

TEST_F(PolicyHistoryTest, BehindAFallbackIsWhatRanBeforeTheGoodOne) {
  load("p", "1");
  load("p", "2");
  store_->good(last_);
  load("p", "3");
  store_->quarantine(last_, "it loops");
  adopt(store_->load("builtin", true), "quarantine");
  adopt(*store_->last_good(), "fallback");
  EXPECT_EQ(running(), "-- 2");
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(running(), "-- 1");
}

TEST_F(PolicyHistoryTest, StatusHasTheParameters) {
  load("p", "1");
  adopt(store_->with_params("p", {{"a", "8"}}), "set");
  EXPECT_EQ(store_->status()["values"], json({{"a", "8"}}));
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(store_->status()["values"], json::object());
}

TEST_F(PolicyHistoryTest, ARollbackStandsUntilTheFileIsSavedAgain) {
  load("p", "1");
  load("p", "2");
  EXPECT_FALSE(differs());
  adopt(store_->past(0), "rollback");
  EXPECT_TRUE(differs());
  EXPECT_FALSE(store_->changed()) << "the file is what it was: the rollback would be undone";
  save("p", "3");
  const auto changed = store_->changed();
  ASSERT_TRUE(changed);
  adopt(*changed, "save");
  EXPECT_EQ(running(), "-- 3");
  EXPECT_FALSE(differs());
}

TEST_F(PolicyHistoryTest, LookSeesThatTheFileDiffersWhereNobodyWatches) {
  load("p", "1");
  store_->look();
  EXPECT_FALSE(differs());
  save("p", "22");
  store_->look();
  EXPECT_TRUE(differs());
  std::ofstream(folder_ + "/p.lua") << "broken";
  store_->look();
  EXPECT_TRUE(differs());
  save("p", "1");
  store_->look();
  EXPECT_FALSE(differs());
}

TEST_F(PolicyHistoryTest, ParametersThatWereSetGoBackToTheConfigurations) {
  settings_.name = "p";
  settings_.params = {{"a", "5"}};
  restart();
  load("p", "1");
  adopt(store_->with_params("p", {{"a", "8"}}), "set");
  EXPECT_EQ(store_->show()["values"]["a"], "8");
  EXPECT_EQ(store_->show()["live"]["a"], "8");
  EXPECT_NE(store_->without_params("p", {"b"}).error().message.find("'b'"), std::string::npos);
  adopt(store_->without_params("p", {}), "set");
  EXPECT_EQ(store_->show()["values"]["a"], "5");
  EXPECT_EQ(store_->show()["live"].size(), 0u);
  adopt(store_->past(0), "rollback");
  EXPECT_EQ(store_->show()["values"]["a"], "8") << "parameters make another generation, too";
  adopt(store_->without_params("p", {"a"}), "set");
  EXPECT_EQ(store_->show()["values"]["a"], "5");
}

TEST_F(PolicyHistoryTest, KeepsSoManyAndOfFewerTheText) {
  for (int i = 1; i <= 130; ++i) load("p", std::to_string(i));
  const json all = store_->history();
  ASSERT_EQ(all.size(), 100u);
  EXPECT_EQ(all[0]["generation"], 31);
  EXPECT_EQ(all[79]["kept"], false);
  EXPECT_EQ(all[80]["kept"], true);
  EXPECT_NE(store_->past(110).error().message.find("not kept any more"), std::string::npos);
  EXPECT_TRUE(store_->past(111));
  EXPECT_LT(fs::file_size(folder_ + "/state/history.json"), 64u * 1024);
}

}  // namespace
}  // namespace heddle
