#include "daemon/cli/run/elf.h"

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
constexpr size_t kTextMax = 256;           // a name of either, and a loader's path
constexpr uint32_t kSymbolsMax = 1 << 16;  // a CUDA driver exports some 700

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

// False if it is not for x86-64.
bool read_header(std::string_view file, Elf64_Ehdr& header) {
  return read_at(file, 0, header) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == EM_X86_64;
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
      elf.from.push_back(text_at(file_, strings + library.vn_file));
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

  std::vector<Symbol> exports() const {
    std::vector<Symbol> all;
    const uint64_t symbols = offset_of(DT_SYMTAB), strings = offset_of(DT_STRTAB);
    if (symbols == kNone || strings == kNone) return all;
    const uint32_t count = std::min(symbol_count(), kSymbolsMax);
    for (uint32_t i = 1; i < count; ++i) {  // the first is none
      Elf64_Sym symbol;
      if (!read_at(file_, symbols + uint64_t{i} * sizeof symbol, symbol)) break;
      const unsigned binding = ELF64_ST_BIND(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || (binding != STB_GLOBAL && binding != STB_WEAK)) continue;
      all.push_back({text_at(file_, strings + symbol.st_name), binding == STB_WEAK});
    }
    return all;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // The symbol table's length stands in its hash table alone.
  uint32_t symbol_count() const {
    if (const uint64_t at = offset_of(DT_HASH); at != kNone) {
      Elf64_Word counts[2] = {};  // of buckets, of symbols
      read_at(file_, at, counts);
      return counts[1];
    }
    const uint64_t at = offset_of(DT_GNU_HASH);
    struct {
      uint32_t buckets, first_symbol, bloom_words, shift;
    } header;
    if (at == kNone || !read_at(file_, at, header)) return 0;
    const uint64_t buckets = at + sizeof header + uint64_t{header.bloom_words} * sizeof(uint64_t);
    const uint64_t chains = buckets + uint64_t{header.buckets} * sizeof(uint32_t);
    // Each bucket names its first symbol; the chain of the last of them ends with a 1 in bit 0.
    uint32_t last = 0;
    for (uint32_t i = 0, first; i < std::min(header.buckets, kSymbolsMax); ++i) {
      if (!read_at(file_, buckets + uint64_t{i} * sizeof first, first)) break;
      last = std::max(last, first);
    }
    if (last < header.first_symbol) return header.first_symbol;
    for (uint32_t hash; last < kSymbolsMax; ++last) {
      const uint64_t chain = chains + uint64_t{last - header.first_symbol} * sizeof hash;
      if (!read_at(file_, chain, hash) || (hash & 1) != 0) return last + 1;
    }
    return last;
  }

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
  elf.is_x86_64 = read_header(file, header);
  if (!elf.is_x86_64) return elf;
  const Reader reader(file, header);
  elf.interpreter = reader.interpreter();
  reader.versions(elf);
  return elf;
}

std::vector<Symbol> exported_symbols(std::string_view file) {
  Elf64_Ehdr header;
  if (!read_header(file, header)) return {};
  return Reader(file, header).exports();
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
