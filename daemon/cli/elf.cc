#include "daemon/cli/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace heddle::cli {
namespace {

// More than any library has of versions and of entries in its dynamic section; what is longer goes
// in circles, or means to keep us.
constexpr size_t kVersionsMax = 4096;
constexpr size_t kDynamicMax = 4096;
constexpr size_t kTextMax = 256;  // a name of either, and a loader's path

template <class T>
bool read_at(std::string_view file, uint64_t offset, T& out) {
  if (offset > file.size() || file.size() - offset < sizeof out) return false;
  memcpy(&out, file.data() + offset, sizeof out);
  return true;
}

std::string text_at(std::string_view file, uint64_t offset) {
  if (offset >= file.size()) return "";
  const std::string_view rest = file.substr(offset, kTextMax);
  return std::string(rest.substr(0, rest.find('\0')));
}

class Reader {
 public:
  Reader(std::string_view file, const Elf64_Ehdr& header) : file_(file) {
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (read_at(file, header.e_phoff + uint64_t{i} * sizeof segment, segment)) {
        segments_.push_back(segment);
      }
    }
  }

  std::string interpreter() const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_INTERP) return text_at(file_, segment.p_offset);
    }
    return "";
  }

  // Versions that the file needs, library by library, and those that it defines.
  void versions(Elf& elf) const {
    const uint64_t strings = offset_of(DT_STRTAB);
    uint64_t at = offset_of(DT_VERNEED);
    for (size_t n = 0; n < kVersionsMax && at != kNone; ++n) {
      Elf64_Verneed library;
      if (!read_at(file_, at, library)) break;
      uint64_t entry = at + library.vn_aux;
      for (unsigned i = 0; i < library.vn_cnt && elf.needs.size() < kVersionsMax; ++i) {
        Elf64_Vernaux version;
        if (!read_at(file_, entry, version)) break;
        elf.needs.push_back(text_at(file_, strings + version.vna_name));
        entry += version.vna_next;
      }
      if (library.vn_next == 0) break;
      at += library.vn_next;
    }
    at = offset_of(DT_VERDEF);
    for (size_t n = 0; n < kVersionsMax && at != kNone; ++n) {
      Elf64_Verdef version;
      Elf64_Verdaux name;
      if (!read_at(file_, at, version) || !read_at(file_, at + version.vd_aux, name)) break;
      elf.defines.push_back(text_at(file_, strings + name.vda_name));
      if (version.vd_next == 0) break;
      at += version.vd_next;
    }
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // Where in the file lies what an entry of the dynamic section points at.
  uint64_t offset_of(int64_t tag) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_DYNAMIC) continue;
      for (size_t n = 0; n < kDynamicMax && n < segment.p_filesz / sizeof(Elf64_Dyn); ++n) {
        Elf64_Dyn entry;
        const uint64_t at = segment.p_offset + n * sizeof entry;
        if (!read_at(file_, at, entry) || entry.d_tag == DT_NULL) break;
        if (entry.d_tag == tag) return offset_of_address(entry.d_un.d_ptr);
      }
      break;  // a file has one
    }
    return kNone;
  }

  uint64_t offset_of_address(uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address - segment.p_vaddr < segment.p_filesz) {
        return segment.p_offset + (address - segment.p_vaddr);
      }
    }
    return kNone;
  }

  const std::string_view file_;
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace

std::optional<Elf> parse_elf(std::string_view file) {
  if (file.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG)) return std::nullopt;
  Elf elf;
  Elf64_Ehdr header;
  elf.is_x86_64 = read_at(file, 0, header) && header.e_ident[EI_CLASS] == ELFCLASS64 &&
                  header.e_machine == EM_X86_64;
  if (!elf.is_x86_64) return elf;
  const Reader reader(file, header);
  elf.interpreter = reader.interpreter();
  reader.versions(elf);
  return elf;
}

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  map(fd);
  close(fd);
}

MappedFile::MappedFile(int fd) { map(fd); }

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void MappedFile::map(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size <= 0) return;
  const auto size = static_cast<size_t>(file.st_size);
  void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at != MAP_FAILED) bytes_ = {static_cast<const char*>(at), size};
}

}  // namespace heddle::cli
