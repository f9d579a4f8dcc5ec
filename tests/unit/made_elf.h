// ELF files as small as one can be, for the tests of what reads them.
#pragma once

#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace heddle::cli {

inline constexpr const char* kGlibcLoader = "/lib64/ld-linux-x86-64.so.2";

// A header, one PT_INTERP if there is a loader, symbol versions that it needs (`from` a library)
// and defines, functions that it exports: weak where the name begins with '?', and of another
// library where with '!'.
struct Made {
  std::string loader = kGlibcLoader;
  std::vector<std::string> needs = {}, defines = {};
  unsigned char elf_class = ELFCLASS64;
  Elf64_Half machine = EM_X86_64;
  std::vector<std::string> exports = {};
  std::string from = "libc.so.6";
};

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string make_elf(const Made& made) {
  std::string strings("\0", 1), need, define;
  const auto name = [&strings](const std::string& text) {
    const auto at = static_cast<Elf64_Word>(strings.size());
    strings += text + '\0';
    return at;
  };
  if (!made.needs.empty()) {
    put(need, Elf64_Verneed{1, static_cast<Elf64_Half>(made.needs.size()), name(made.from),
                            sizeof(Elf64_Verneed), 0});
  }
  for (size_t i = 0; i < made.needs.size(); ++i) {
    const bool last = i + 1 == made.needs.size();
    put(need, Elf64_Vernaux{0, 0, 0, name(made.needs[i]),
                            last ? 0 : static_cast<Elf64_Word>(sizeof(Elf64_Vernaux))});
  }
  for (size_t i = 0; i < made.defines.size(); ++i) {
    constexpr auto kStep = static_cast<Elf64_Word>(sizeof(Elf64_Verdef) + sizeof(Elf64_Verdaux));
    put(define, Elf64_Verdef{1, 0, 0, 1, 0, sizeof(Elf64_Verdef),
                             i + 1 == made.defines.size() ? 0 : kStep});
    put(define, Elf64_Verdaux{name(made.defines[i]), 0});
  }
  std::string symbols(sizeof(Elf64_Sym), '\0'), hash;
  for (const std::string& text : made.exports) {
    const bool weak = text[0] == '?', undefined = text[0] == '!';
    Elf64_Sym symbol{};
    symbol.st_name = name(weak || undefined ? text.substr(1) : text);
    symbol.st_info =
        static_cast<unsigned char>(ELF64_ST_INFO(weak ? STB_WEAK : STB_GLOBAL, STT_FUNC));
    symbol.st_shndx = undefined ? SHN_UNDEF : 1;
    put(symbols, symbol);
  }
  put(hash, std::array<Elf64_Word, 2>{0, static_cast<Elf64_Word>(1 + made.exports.size())});
  constexpr uint64_t kBody = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
  constexpr uint64_t kDynamic = 6 * sizeof(Elf64_Dyn);
  const uint64_t at_loader = kBody + kDynamic, at_strings = at_loader + made.loader.size() + 1;
  const uint64_t at_need = at_strings + strings.size(), at_define = at_need + need.size();
  const uint64_t at_symbols = at_define + define.size(), at_hash = at_symbols + symbols.size();
  const uint64_t size = at_hash + hash.size();
  constexpr uint64_t kBase = 0x10000;  // addresses are not offsets

  std::string out;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = made.elf_class;
  header.e_machine = made.machine;
  header.e_phoff = sizeof header;
  header.e_phnum = 3;
  put(out, header);
  put(out, Elf64_Phdr{PT_LOAD, 0, 0, kBase, 0, size, size, 0});
  put(out, Elf64_Phdr{PT_DYNAMIC, 0, kBody, kBase + kBody, 0, kDynamic, kDynamic, 0});
  const auto interp = static_cast<Elf64_Word>(made.loader.empty() ? PT_NULL : PT_INTERP);
  put(out, Elf64_Phdr{interp, 0, at_loader, kBase + at_loader, 0, made.loader.size() + 1, 0, 0});
  const auto entry = [&out](Elf64_Sxword tag, uint64_t value) {
    Elf64_Dyn dynamic{};
    dynamic.d_tag = tag;
    dynamic.d_un.d_val = value;
    put(out, dynamic);
  };
  entry(DT_STRTAB, kBase + at_strings);
  entry(need.empty() ? DT_DEBUG : DT_VERNEED, kBase + at_need);
  entry(define.empty() ? DT_DEBUG : DT_VERDEF, kBase + at_define);
  entry(made.exports.empty() ? DT_DEBUG : DT_SYMTAB, kBase + at_symbols);
  entry(made.exports.empty() ? DT_DEBUG : DT_HASH, kBase + at_hash);
  entry(DT_NULL, 0);
  return out + made.loader + '\0' + strings + need + define + symbols + hash;
}

}  // namespace heddle::cli
