// Who could have put a file, or a directory, where it lies: what decides for everybody, or is
// written to as root, must be root's or the daemon's own user's.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

// "" if nobody else can write it, else what is wrong and the remedy. A link is followed. A group
// that writes is often nobody else, root's or the user's own, as a umask of 002 makes files.
inline std::string ownership_problem(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return path + ": cannot be read; check the path";
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return path + ": owned by neither root nor the daemon's user; chown it";
  }
  if ((info.st_mode & S_IWOTH) != 0) return path + ": anybody can write it; run chmod o-w on it";
  if ((info.st_mode & S_IWGRP) != 0 && info.st_gid != 0 && info.st_gid != getegid()) {
    return path + ": a group can write it that is neither root's nor the daemon's; run chmod g-w " +
           "on it";
  }
  return "";
}

// The same of a file that is read where it lies: a link, a pipe or what is longer than `most` is
// wrong, too.
inline std::string file_problem(const std::string& path, off_t most) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return path + ": cannot be read; check the path";
  if (!S_ISREG(info.st_mode)) return path + ": not a regular file; remove it";
  if (info.st_size > most) {
    return path + ": longer than " + std::to_string(most >> 20) + " MiB; remove it";
  }
  return ownership_problem(path);
}

// The same of a directory and of what is read in it; links are followed.
inline std::string files_problem(const std::string& directory,
                                 const std::vector<std::string>& files, off_t most) {
  std::string problem = ownership_problem(directory);
  for (const std::string& file : files) {
    std::error_code error;
    const std::string real = std::filesystem::canonical(file, error).string();
    if (problem.empty()) problem = file_problem(error ? file : real, most);
  }
  return problem;
}

}  // namespace heddle
