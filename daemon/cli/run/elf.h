// What an ELF file says of how it is loaded, read without running it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

struct Elf {
  bool is_x86_64 = false;            // class and machine; nothing below is read if not
  std::string interpreter;           // the loader (PT_INTERP); "": static, or a library
  std::vector<std::string> needs;    // symbol versions of other libraries, such as "GLIBC_2.17"
  std::vector<std::string> defines;  // its own symbol versions
  std::vector<std::string> from;     // the libraries that `needs` are versions of
};

// None if `file` is no ELF file. What lies outside of the file is left out: any bytes are safe.
std::optional<Elf> parse_elf(std::string_view file);

struct Symbol {
  std::string name;
  bool weak = false;
};

// What a library exports, by its dynamic symbol table. Nothing if `file` is no ELF file for x86-64;
// what lies outside of the file is left out here, too.
std::vector<Symbol> exported_symbols(std::string_view file);

// A file's bytes as they are mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  explicit MappedFile(int fd);  // keeps no hold of it
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }  // empty if it could not be read

 private:
  void map(int fd);
  std::string_view bytes_;
};

}  // namespace heddle::cli
