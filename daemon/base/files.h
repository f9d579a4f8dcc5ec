// The files that paths of the command line mean.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace heddle {

enum class Depth : bool { kDirectory, kTree };

// A directory stands for what in it, or in the tree below it, has a name that ends in `ending`, in
// order; anything else for itself, whether or not it is there.
inline std::vector<std::string> files_of(const std::vector<std::string>& paths,
                                         std::string_view ending, Depth depth) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const auto first = static_cast<ptrdiff_t>(files.size());
    for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      if (depth == Depth::kDirectory) entry.disable_recursion_pending();
      if (entry->path().string().ends_with(ending)) files.push_back(entry->path().string());
    }
    std::sort(files.begin() + first, files.end());
  }
  return files;
}

// Reads what a path names, whatever lies there: a pipe is not waited for, a device not read to an
// end that it has not, and memory not filled with a file that is no text of heddle's.
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

// Puts a text in a file's place, all of it or none: written beside it, synced, renamed. Whenever
// the machine or the disk gives out, the old file is still there, whole.
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

// Where heddled keeps what it remembers, and heddle looks where no heddled says it.
// What systemd made for us, or the usual place; "" if there is none. It may not be there yet.
inline std::string state_directory() {
  if (const char* given = getenv("STATE_DIRECTORY")) return given;
  if (geteuid() == 0) return "/var/lib/heddle";
  if (const char* state = getenv("XDG_STATE_HOME")) return std::string(state) + "/heddle";
  if (const char* home = getenv("HOME")) return std::string(home) + "/.local/state/heddle";
  return "";
}

}  // namespace heddle
