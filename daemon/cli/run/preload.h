// Would a program's loader take the shim? Asked before anything is preloaded: an object that the
// loader cannot take is ignored at best, and at worst no program starts any more.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::cli {

// lib/heddle beside bin/heddle, as `cmake --install` lays it out, and the shim in it.
std::filesystem::path library_directory();
std::filesystem::path shim_path();
// The shim by the path that LD_PRELOAD is to name: AddressSanitizer looks at it.
std::filesystem::path preload_path();

// Where execvp would find `program`; itself if nowhere.
std::string resolve_program(const std::string& program);

// What the kernel will call `program`'s executable: itself, or for a script its interpreter.
std::string executable_of(const std::string& program);

struct Obstacle {
  std::string why;        // "" if there is none; "PROGRAM is ...", to be followed by a remedy
  bool harmless = false;  // the program runs as if nothing were preloaded; its children may not
};

// What keeps the shim out of `program` (a path; scripts are followed to their interpreters).
Obstacle obstacle_in(const std::string& program, const std::filesystem::path& shim);

// What the loader takes from the value of LD_PRELOAD, and from the text of /etc/ld.so.preload.
std::vector<std::string> preload_variable(const std::string& value);
std::vector<std::string> preload_file(const std::string& text);

// Symbol versions that the shim needs and the C library in these bytes lacks, newest last. Empty:
// it loads. A file that is no C library for x86-64 lacks them all.
std::vector<std::string> missing_versions(std::string_view shim, std::string_view libc);

// Files that the shim needs beside a C library: libpthread.so.0, libdl.so.2. Programs built since
// glibc 2.34 do not, so that an image may lack them; with the shim preloaded none of them starts.
std::vector<std::string> companions(std::string_view shim);

}  // namespace heddle::cli
