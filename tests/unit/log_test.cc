// The log where nobody reads it: no line waits, and what finds no room is counted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "daemon/server/log.h"

namespace heddle::server {
namespace {

TEST(Log, LosesWhatFindsNoRoomAndHoldsUpNobody) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  fcntl(pipes[1], F_SETFL, O_NONBLOCK);
  while (write(pipes[1], "full", 4) > 0) {
  }
  fcntl(pipes[1], F_SETFL, 0);
  const int before = dup(STDERR_FILENO);
  dup2(pipes[1], STDERR_FILENO);
  std::string text;
  {
    Log log(LogLevel::kInfo);
    for (size_t i = 0; i < 2 * Log::kLines; ++i) log.info("line", {{"number", i}});
    EXPECT_GE(log.lost(), Log::kLines - 2);
    log.info("last");
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    char read_now[1 << 16];
    while (text.find("event=last\n") == std::string::npos) {
      const ssize_t size = read(pipes[0], read_now, sizeof read_now);
      if (size > 0) text.append(read_now, static_cast<size_t>(size));
    }
  }
  EXPECT_NE(text.find("event=log_lines_lost"), std::string::npos);
  EXPECT_NE(text.find("number=" + std::to_string(2 * Log::kLines - 1)), std::string::npos);
  dup2(before, STDERR_FILENO);
  for (const int fd : {before, pipes[0], pipes[1]}) close(fd);
}

TEST(Log, EndsThoughNobodyReadsIt) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  fcntl(pipes[1], F_SETFL, O_NONBLOCK);
  while (write(pipes[1], "full", 4) > 0) {
  }
  fcntl(pipes[1], F_SETFL, 0);
  const int before = dup(STDERR_FILENO);
  dup2(pipes[1], STDERR_FILENO);
  Log(LogLevel::kInfo).info("never read");
  dup2(before, STDERR_FILENO);
  close(before);
  close(pipes[0]);  // whoever writes fails, and its thread ends no sooner than the test
}

// What a daemon writes to standard error; `stream` tells the inode that the journal is said to
// read.
std::string line_with(ino_t (*stream)(ino_t)) {
  testing::internal::CaptureStderr();
  struct stat error;
  fstat(STDERR_FILENO, &error);
  const std::string named =
      std::to_string(error.st_dev) + ':' + std::to_string(stream(error.st_ino));
  setenv("JOURNAL_STREAM", named.c_str(), 1);
  Log(LogLevel::kInfo).info("ready", {{"pid", 7}});  // its end waits until all is written
  unsetenv("JOURNAL_STREAM");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, TellsItsTimeInUtcAsAFieldLikeAllOthers) {
  setenv("TZ", "XYZ-9:30", 1);
  tzset();
  const time_t before = time(nullptr);
  const std::string line = line_with([](ino_t file) { return file + 1; });
  std::smatch parts;
  const std::regex logfmt(R"(time=(\S{19})\.\d{3}Z level=info event=ready pid=7\n)");
  ASSERT_TRUE(std::regex_match(line, parts, logfmt)) << line;
  tm fields{};
  ASSERT_NE(strptime(parts[1].str().c_str(), "%Y-%m-%dT%H:%M:%S", &fields), nullptr);
  EXPECT_GE(timegm(&fields), before);
  EXPECT_LE(timegm(&fields), time(nullptr));
  unsetenv("TZ");
  tzset();
}

TEST(Log, LeavesTheTimeToTheJournal) {
  EXPECT_EQ(line_with([](ino_t file) { return file; }), "level=info event=ready pid=7\n");
}

}  // namespace
}  // namespace heddle::server
