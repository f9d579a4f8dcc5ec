#include "daemon/cli/run/preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "daemon/cli/run/elf.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Scripts whose interpreters are scripts; Linux itself goes no deeper.
constexpr int kScriptsMax = 4;

// The program that the kernel runs for a script: its interpreter, or what `env` will look for.
std::string interpreter_of(std::string_view script) {
  std::istringstream line(std::string(script.substr(2, script.find('\n') - 2)));
  std::string interpreter, argument;
  line >> interpreter;
  if (fs::path(interpreter).filename() != "env") return resolve_program(interpreter);
  while (line >> argument) {
    if (argument[0] != '-' && argument.find('=') == std::string::npos) {
      return resolve_program(argument);
    }
  }
  return interpreter;
}

// Such programs run in secure mode: their loader ignores LD_PRELOAD.
bool gains_privileges(const std::string& program) {
  struct stat file;
  if (stat(program.c_str(), &file) != 0) return false;
  return ((file.st_mode & S_ISUID) != 0 && file.st_uid != geteuid()) ||
         ((file.st_mode & S_ISGID) != 0 && file.st_gid != getegid()) ||
         (geteuid() != 0 && getxattr(program.c_str(), "security.capability", nullptr, 0) > 0);
}

Obstacle obstacle_in_elf(const std::string& program, const Elf& elf, const fs::path& shim) {
  if (!elf.is_x86_64) return {program + " is not for x86-64, the shim is", true};
  if (elf.interpreter.empty()) {
    return {program + " is statically linked: it loads no library, the shim neither", true};
  }
  if (gains_privileges(program)) {
    return {program + " gains privileges: its loader takes no preload", true};
  }
  const fs::path loader(elf.interpreter);
  if (loader.filename() != "ld-linux-x86-64.so.2") {
    return {program + " uses " + elf.interpreter + ", not glibc's loader"};
  }
  // glibc's loader takes the C library of its own release, which lies beside it.
  std::error_code error;
  const fs::path libc = fs::canonical(loader, error).parent_path() / "libc.so.6";
  const MappedFile library(libc.string());
  if (library.bytes().empty()) return {};  // elsewhere: nothing is known against it
  const MappedFile own(shim.string());
  const std::string runs_on = program + " runs on " + libc.string();
  const auto missing = missing_versions(own.bytes(), library.bytes());
  if (!missing.empty()) return {runs_on + ", which lacks " + missing.back()};
  for (const std::string& file : companions(own.bytes())) {
    const bool there = fs::exists(libc.parent_path() / file, error);
    if (!there) return {runs_on + ", beside which is no " + file};
  }
  return {};
}

std::vector<std::string> split(const std::string& list, const char* separators) {
  std::vector<std::string> words;
  for (size_t at = list.find_first_not_of(separators); at < list.size();
       at = list.find_first_not_of(separators, at)) {
    const size_t end = std::min(list.find_first_of(separators, at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace

fs::path library_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "lib/heddle";
}

fs::path shim_path() { return library_directory() / "libcuda.so.1"; }

fs::path preload_path() {
  const fs::path path = library_directory() / "with-libasan.so/libcuda.so.1";
  return access(path.c_str(), R_OK) == 0 ? path : shim_path();
}

std::string resolve_program(const std::string& program) {
  std::error_code error;
  if (program.find('/') != std::string::npos) return fs::weakly_canonical(program, error).string();
  const char* path = getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    const fs::path candidate = fs::path(directory.empty() ? "." : directory) / program;
    if (access(candidate.c_str(), X_OK) == 0) return fs::canonical(candidate, error).string();
  }
  return program;
}

std::string executable_of(const std::string& program) {
  std::string file = program;
  for (int i = 0; i < kScriptsMax; ++i) {
    const MappedFile mapped(file);
    // Unreadable, or not there: execvp will say.
    if (mapped.bytes().empty() || parse_elf(mapped.bytes())) return file;
    // What is neither is a script for the shell.
    file = mapped.bytes().substr(0, 2) == "#!" ? interpreter_of(mapped.bytes())
                                               : resolve_program("/bin/sh");
  }
  return file;
}

Obstacle obstacle_in(const std::string& program, const fs::path& shim) {
  const std::string file = executable_of(program);
  const auto elf = parse_elf(MappedFile(file).bytes());
  return elf ? obstacle_in_elf(file, *elf, shim) : Obstacle{};
}

std::vector<std::string> preload_variable(const std::string& value) { return split(value, ": "); }

std::vector<std::string> preload_file(const std::string& text) {
  std::string words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) words += line.substr(0, line.find('#')) + '\n';
  return split(words, ": \t\n");
}

std::vector<std::string> missing_versions(std::string_view shim, std::string_view libc) {
  const auto needs = parse_elf(shim), has = parse_elf(libc);
  std::vector<std::string> missing;
  if (!needs) return missing;
  for (const std::string& version : needs->needs) {
    if (has && std::find(has->defines.begin(), has->defines.end(), version) != has->defines.end()) {
      continue;
    }
    if (std::find(missing.begin(), missing.end(), version) == missing.end()) {
      missing.push_back(version);
    }
  }
  std::sort(missing.begin(), missing.end(), [](const std::string& a, const std::string& b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  });
  return missing;
}

std::vector<std::string> companions(std::string_view shim) {
  std::vector<std::string> files;
  const auto elf = parse_elf(shim);
  if (!elf) return files;
  std::copy_if(elf->from.begin(), elf->from.end(), std::back_inserter(files),
               [](const std::string& file) {
                 return file != "libc.so.6" && file != "ld-linux-x86-64.so.2";
               });
  return files;
}

}  // namespace heddle::cli
