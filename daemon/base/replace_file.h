// Puts a text in a file's place, all of it or none: written beside it, synced, renamed. Whenever
// the machine or the disk gives out, the old file is still there, whole.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace heddle {

// The error names the file and what the system says; what follows from it is for the caller to add.
inline Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // an old one, or a link that somebody laid there
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = open(fresh.c_str(), flags, mode);
  bool written = fd >= 0;
  while (written && !text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    written = count > 0;
    if (written) text.remove_prefix(static_cast<size_t>(count));
  }
  written = written && fsync(fd) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (written && rename(fresh.c_str(), path.c_str()) == 0) return {};
  if (written) error = errno;
  if (fd >= 0) unlink(fresh.c_str());
  return fail(path + ": " + strerror(error));
}

}  // namespace heddle
