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

// Standard error is a full pipe, whose reader is `read_end`.
class FullError {
 public:
  FullError() {
    EXPECT_EQ(pipe(pipes_), 0);
    fcntl(pipes_[1], F_SETFL, O_NONBLOCK);
    while (write(pipes_[1], "full", 4) > 0) {
    }
    fcntl(pipes_[1], F_SETFL, 0);
    dup2(pipes_[1], STDERR_FILENO);
  }
  // Whoever still writes fails, and his thread ends no sooner than the test.
  ~FullError() {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, pipes_[0], pipes_[1]}) close(fd);
  }
  int read_end() const { return pipes_[0]; }

 private:
  const int before_ = dup(STDERR_FILENO);
  int pipes_[2];
};

TEST(Log, LosesWhatFindsNoRoomAndHoldsUpNobody) {
  FullError error;
  std::string text;
  {
    Log log(LogLevel::kInfo);
    for (size_t i = 0; i < 2 * Log::kLines; ++i) log.info("line", {{"number", i}});
    EXPECT_GE(log.lost(), Log::kLines - 2);
    log.info("last");
    fcntl(error.read_end(), F_SETFL, O_NONBLOCK);
    char read_now[1 << 16];
    while (text.find("event=last\n") == std::string::npos) {
      const ssize_t size = read(error.read_end(), read_now, sizeof read_now);
      if (size > 0) text.append(read_now, static_cast<size_t>(size));
    }
  }
  EXPECT_NE(text.find("event=log_lines_lost"), std::string::npos);
  EXPECT_NE(text.find("number=" + std::to_string(2 * Log::kLines - 1)), std::string::npos);
}

TEST(Log, EndsThoughNobodyReadsIt) {
  FullError error;
  Log(LogLevel::kInfo).info("never read");
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
