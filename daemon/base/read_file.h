// Reads what a path names, whatever lies there: a pipe is not waited for, a device not read to an
// end that it has not, and memory not filled with a file that is no text of heddle's.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "daemon/base/result.h"

namespace heddle {

inline constexpr size_t kTextBytesMost = 64 << 20;  // of configurations, profiles, tables and jobs

// The error names the file and what is wrong; `remedy` ends it.
inline Result<std::string> read_file(const std::string& path, const std::string& remedy,
                                     size_t most = kTextBytesMost) {
  const std::string too_large = "over " + std::to_string(most >> 10) + " KiB";
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat file {};
  std::string why;
  if (fd < 0 || fstat(fd, &file) != 0) {
    why = strerror(errno);
  } else if (!S_ISREG(file.st_mode)) {
    why = "no regular file";
  } else if (static_cast<uint64_t>(file.st_size) > most) {
    why = too_large;
  }
  std::string text;
  while (why.empty()) {  // to its end, not to its size, which /proc says is 0
    char part[16 << 10];
    const ssize_t count = ::read(fd, part, sizeof part);
    if (count == 0) break;
    if (count > 0) text.append(part, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) why = strerror(errno);
    if (text.size() > most) why = too_large;
  }
  if (fd >= 0) close(fd);
  if (!why.empty()) return fail(path + ": cannot be read: " + why + "; " + remedy);
  return text;
}

}  // namespace heddle
