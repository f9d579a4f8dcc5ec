// How many lines of the log a user's programs may cause.
#include "daemon/server/log_limit.h"

#include <gtest/gtest.h>

#include <memory>

#include "daemon/server/log.h"

namespace heddle::server {
namespace {

constexpr Causer kMallory{1000, false}, kRoot{0, true}, kContainerRoot{0, false};

uint64_t admitted(LogLimit& limit, Causer causer, int lines, int64_t now = 1) {
  uint64_t count = 0;
  for (int i = 0; i < lines; ++i) count += limit.admits(causer, "event", now) ? 1 : 0;
  return count;
}

TEST(LogLimit, AUserHasSoManyLinesInAWindowAndNobodyElseFewer) {
  LogLimit limit;
  EXPECT_EQ(admitted(limit, kMallory, 9'000), LogLimit::kLines);
  EXPECT_EQ(admitted(limit, kContainerRoot, 9'000), LogLimit::kLines);
  EXPECT_EQ(admitted(limit, kRoot, 7), 7u);
  EXPECT_FALSE(limit.due(1));
  EXPECT_TRUE(limit.due(1 + LogLimit::kWindowNs));
  const auto left_out = limit.take();
  ASSERT_EQ(left_out.size(), 2u) << "nothing of root's was left out";
  EXPECT_EQ(left_out.at(kMallory).more, 9'000 - LogLimit::kLines);
  EXPECT_EQ(left_out.at(kMallory).event, "event");
  EXPECT_FALSE(limit.left_out());
  EXPECT_EQ(admitted(limit, kMallory, 1, 1 + LogLimit::kWindowNs), 1u) << "another window";
}

TEST(LogLimit, LinesOfManyUsersShareTheLimit) {
  LogLimit limit;
  uint64_t lines = 0;
  for (uid_t uid = 0; uid < 10'000; ++uid) lines += admitted(limit, {uid, false}, 10);
  EXPECT_LE(lines, LogLimit::kUsers * 10 + LogLimit::kLines);
  EXPECT_LE(limit.take().size(), LogLimit::kUsers + 1);
}

TEST(LogLimit, ManyUsersHideNoLineOfRoots) {
  LogLimit limit;
  for (uid_t uid = 1; uid < 1'000; ++uid) admitted(limit, {uid, false}, LogLimit::kLines);
  EXPECT_EQ(admitted(limit, kRoot, 7), 7u);
}

TEST(LogLimit, ALineSaysHowManyWereLeftOut) {
  ::testing::internal::CaptureStderr();
  auto log = std::make_unique<Log>(LogLevel::kInfo);
  for (int i = 0; i < 9'000; ++i) log->warning(kMallory, "client_refused", {{"pid", i}});
  for (int i = 0; i < 500; ++i) log->warning("policy_failed", {{"number", i}});
  log.reset();  // all is written
  const std::string text = ::testing::internal::GetCapturedStderr();
  const auto lines = [&](const std::string& with) {
    size_t count = 0;
    for (size_t at = text.find(with); at != text.npos; at = text.find(with, at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(lines("event=client_refused pid="), LogLimit::kLines);
  EXPECT_EQ(lines("event=policy_failed"), 500u) << "no client causes these";
  EXPECT_EQ(lines("event=lines_left_out uid=1000 privileged=0 more=8900 last=client_refused"), 1u);
}

}  // namespace
}  // namespace heddle::server
