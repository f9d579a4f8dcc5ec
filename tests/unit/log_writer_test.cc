// The log where nobody reads it: no line waits, and what finds no room is counted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "daemon/server/log_writer.h"

namespace heddle::server {
namespace {

TEST(LogWriter, LosesWhatFindsNoRoomAndHoldsUpNobody) {
  int log[2];
  ASSERT_EQ(pipe(log), 0);
  fcntl(log[1], F_SETFL, O_NONBLOCK);
  while (write(log[1], "full", 4) > 0) {
  }
  fcntl(log[1], F_SETFL, 0);
  const int before = dup(STDERR_FILENO);
  dup2(log[1], STDERR_FILENO);
  const auto writer = LogWriter::start();
  constexpr size_t kLine = 1 << 10;
  for (size_t i = 0; i < 2 * LogWriter::kBytes / kLine; ++i) {
    writer->put(std::string(kLine - 1, 'x') + "\n");
  }
  EXPECT_GE(writer->lost(), LogWriter::kBytes / kLine);
  fcntl(log[0], F_SETFL, O_NONBLOCK);
  char read_now[1 << 16];
  writer->put("last\n");
  for (size_t seen = 0; seen < LogWriter::kBytes;) {
    const ssize_t size = read(log[0], read_now, sizeof read_now);
    if (size > 0) seen += static_cast<size_t>(size);
  }
  writer->stop();
  dup2(before, STDERR_FILENO);
  for (const int fd : {before, log[0], log[1]}) close(fd);
}

}  // namespace
}  // namespace heddle::server
