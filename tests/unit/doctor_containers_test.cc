// heddle doctor: whom heddled had no place for, and whose clock is another. Whose driver tells
// of MPS.
#include <gtest/gtest.h>

#include "daemon/cli/doctor/doctor.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

std::vector<Finding> examined(const json& refusals, double clock_ahead_s) {
  json status = json::object();
  if (!refusals.is_null()) status["refusals"] = refusals;
  const json client = {{"id", 4}, {"clock_ahead_s", clock_ahead_s}};
  return examine_containers(
      {{"daemon", {{"status", status}, {"ps", {{"clients", json::array({client})}}}}}});
}

TEST(DoctorContainers, TellsWhoWasRefusedLately) {
  json refusals = {{"count", 3}, {"last", "pid 7 of user 0 kept"}, {"last_s_ago", 12.5}};
  auto told = examined(refusals, 0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].level, Finding::Level::kWarn);
  EXPECT_NE(told[0].text.find("3 times heddled refused a program"), std::string::npos);
  EXPECT_NE(told[0].text.find("pid 7 of user 0"), std::string::npos);
  refusals["last"] = "";  // of an unprivileged asker
  told = examined(refusals, 0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].remedy, "");
  refusals["last_s_ago"] = 3'600;
  EXPECT_TRUE(examined(refusals, 0).empty());
  EXPECT_TRUE(examined(nullptr, 0).empty()) << "an older daemon";
}

TEST(DoctorContainers, TellsOfAClockThatIsApart) {
  const auto told = examined(nullptr, -1.5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].text.find("client 4: its clock is 1.500 s behind heddled's"), 0u);
}

TEST(DoctorMode, IsWhatEachClientsDriverSays) {
  json client = {{"mode", "mps"}, {"mode_told", true}};
  const auto judged = [](const json& clients, const char* mode) {
    return examine_told_mode({{"clients", clients}}, mode);
  };
  EXPECT_EQ(judged(json::array({client}), "mps")->level, Finding::Level::kOk);
  EXPECT_EQ(judged(json::array({client}), "timeslice")->level, Finding::Level::kWarn);
  const json silent = {{"mode", "mps"}, {"mode_told", false}};
  EXPECT_FALSE(judged(json::array({client, silent}), "mps")) << "one has it of the configuration";
  EXPECT_FALSE(judged(json::array(), "mps"));
  client["mode"] = "timeslice";
  EXPECT_FALSE(judged(json::array({client}), "timeslice"));
}

TEST(DoctorProtocol, NamesWhoFailsClosedAndWouldWaitForGood) {
  json facts = {{"protocol", 2}, {"daemon", {{"status", {{"protocol", 1}}}}}};
  facts["daemon"]["ps"]["clients"] = {{{"pid", 41}, {"fail", "open"}},
                                      {{"pid", 42}, {"fail", "closed"}}};
  const std::vector<Finding> found = examine_protocol(facts);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, Finding::Level::kError);
  EXPECT_TRUE(found[0].text.starts_with("pid 42 fails closed")) << found[0].text;
  facts["daemon"]["status"]["protocol"] = 2;
  EXPECT_TRUE(examine_protocol(facts).empty());
}

}  // namespace
}  // namespace heddle::cli
