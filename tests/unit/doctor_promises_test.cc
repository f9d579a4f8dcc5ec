// What `heddle doctor` says of the policy, of promises, and of what heddled cannot keep.
#include <gtest/gtest.h>

#include "daemon/cli/doctor/doctor.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// The findings where client 1 has such a promise, of the mean and of the tail.
std::vector<Finding> of(const json& promise, const json& p99 = nullptr) {
  return examine_promises(
      {{"clients",
        {{{"id", 1},
          {"pid", 42},
          {"label", "api"},
          {"devices", {{{"device", 0}, {"promise", promise}, {"promise_p99", p99}}}}}}}});
}

TEST(DoctorPromises, NamesTheClientWhosePromiseIsBrokenNow) {
  EXPECT_TRUE(of(nullptr).empty()) << "nothing was promised";
  json promise = {{"slowdown_max", 1.1},
                  {"slowdown", 1.2467},
                  {"blocks", 6},
                  {"broken", 5},
                  {"broken_by", "slots"}};
  const std::vector<Finding> broken = of(promise);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].level, Finding::Level::kWarn);
  EXPECT_EQ(broken[0].text,
            "client 1 (pid 42, api): promise 1.10: now 1.25, 5 of 6 blocks broken, by slots");
  EXPECT_NE(broken[0].remedy, "");
  promise["slowdown"] = 1.05;
  const std::vector<Finding> kept = of(promise);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].level, Finding::Level::kOk);
  EXPECT_EQ(kept[0].text, "the promise is kept now");
  EXPECT_EQ(of(promise, promise)[0].text, "all 2 promises are kept now");
  json tail = promise;
  tail["broken_now"] = true;
  EXPECT_EQ(of(nullptr, tail)[0].text,
            "client 1 (pid 42, api): promise p99 1.10: now 1.05, 5 of 6 blocks broken, by slots");
}

TEST(DoctorPolicy, SaysWhatToDoWhereTheDefaultIsNotThere) {
  json status = {{"policy", {{"name", "auto"}, {"error", ""}}}};
  const auto found = [&] { return examine_policy(status).at(0); };
  EXPECT_EQ(found().level, Finding::Level::kOk);
  status["policy"] = {
      {"name", "builtin"},
      {"error", "/p/auto.lua: no such policy; no policy is there: install heddle's"}};
  EXPECT_EQ(found().level, Finding::Level::kWarn);
  EXPECT_EQ(found().text, "builtin runs; the last load failed: /p/auto.lua: no such policy");
  EXPECT_EQ(found().remedy, "no policy is there: install heddle's, then send heddled SIGHUP");
  status["policy"]["error"] = "/p/auto.lua: quarantined after 8 faults, the last: x; mend it";
  status["policy"]["faulted"] = {{"name", "auto"}};
  EXPECT_EQ(found().remedy, "mend the file; saving it loads it");
}

TEST(DoctorKept, NamesWhatIsNotKeptWithTheRemedy) {
  EXPECT_TRUE(examine_kept(json::object()).empty()) << "an older daemon says none of it";
  const std::vector<Finding> all =
      examine_kept({{"state_error", "/s: anybody can write it; chmod o-w it"},
                    {"profiles", {{"errors", {"a.toml: no space"}}}},
                    {"config", {{"unkept", {"rule \"api\" promises 1.10; load another"}}}}});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].text,
            "quarantines and the history of policies are not kept: /s: anybody can write it");
  EXPECT_EQ(all[0].remedy, "chmod o-w it");
  EXPECT_EQ(all[1].text, "a profile: a.toml: no space");
  EXPECT_NE(all[1].remedy, "");
  EXPECT_EQ(all[2].topic, "promise");
  EXPECT_EQ(all[2].text, "rule \"api\" promises 1.10");
}

}  // namespace
}  // namespace heddle::cli
