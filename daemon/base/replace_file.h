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

// Opens a new file `fresh` that is to be renamed to `path`. What lies there is replaced, a link
// that somebody laid too, but no pipe or device.
inline Result<int> open_beside(const std::string& path, const std::string& fresh, mode_t mode) {
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) {
    return fail(path + ": there is something else than a file");
  }
  unlink(fresh.c_str());  // an old one, or a link that somebody laid there
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = open(fresh.c_str(), flags, mode);
  if (fd < 0) return fail(path + ": " + strerror(errno));
  return fd;
}

// The error names the file and what the system says; what follows from it is for the caller to add.
inline Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::string fresh = path + ".new";
  const Result<int> opened = open_beside(path, fresh, mode);
  if (!opened) return fail(opened.error().message);
  const int fd = *opened;
  bool written = true;
  while (written && !text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    written = count > 0;
    if (written) text.remove_prefix(static_cast<size_t>(count));
  }
  written = written && fsync(fd) == 0;
  int error = errno;
  close(fd);
  if (written && rename(fresh.c_str(), path.c_str()) == 0) return {};
  if (written) error = errno;
  unlink(fresh.c_str());
  return fail(path + ": " + strerror(error));
}

}  // namespace heddle
