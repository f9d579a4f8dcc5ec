#include "shim/driver/import.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::shim {
namespace {

struct Imports {
  const char* base;
  const ElfW(Sym) * symbols;
  const char* names;
};

// Relocations whose place holds a symbol's address, and nothing added.
constexpr bool is_import(size_t type) {
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
}

size_t find_in(const Imports& in, const ElfW(Rela) * table, size_t bytes, const char* symbol,
               void*** places, size_t most, size_t found) {
  for (size_t i = 0; table != nullptr && i < bytes / sizeof *table; ++i) {
    if (!is_import(ELF64_R_TYPE(table[i].r_info))) continue;
    const char* const name = in.names + in.symbols[ELF64_R_SYM(table[i].r_info)].st_name;
    if (strcmp(name, symbol) != 0) continue;
    if (found < most) {
      places[found] = reinterpret_cast<void**>(const_cast<char*>(in.base) + table[i].r_offset);
    }
    ++found;
  }
  return found;
}

// Whether the place lies in pages (RELRO) that the loader made read-only after it wrote them.
bool is_protected(const void* base, const void* place) {
  const auto* const file = static_cast<const ElfW(Ehdr)*>(base);
  const auto at = static_cast<const char*>(place) - static_cast<const char*>(base);
  const auto* header =
      reinterpret_cast<const ElfW(Phdr)*>(static_cast<const char*>(base) + file->e_phoff);
  for (size_t i = 0; i < file->e_phnum; ++i, ++header) {
    const auto begin = static_cast<ptrdiff_t>(header->p_vaddr);
    if (header->p_type == PT_GNU_RELRO && at >= begin &&
        at < begin + static_cast<ptrdiff_t>(header->p_memsz)) {
      return true;
    }
  }
  return false;
}

}  // namespace

size_t find_imports(const void* address, const char* symbol, void*** places, size_t most) {
  Dl_info object;
  link_map* map = nullptr;
  if (dladdr1(address, &object, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return 0;
  }
  Imports in{reinterpret_cast<const char*>(map->l_addr), nullptr, nullptr};
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    // The loader has turned the offsets in these entries into addresses.
    switch (entry->d_tag) {
      case DT_SYMTAB:
        in.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        in.names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        break;
      case DT_JMPREL:
        tables[0] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        bytes[0] = entry->d_un.d_val;
        break;
      case DT_RELA:
        tables[1] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        bytes[1] = entry->d_un.d_val;
        break;
    }
  }
  if (in.symbols == nullptr || in.names == nullptr) return 0;
  size_t found = 0;
  for (size_t i = 0; i < 2; ++i)
    found = find_in(in, tables[i], bytes[i], symbol, places, most, found);
  return found;
}

bool replace_import(void** place, void* function) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const page =
      reinterpret_cast<char*>(place) - reinterpret_cast<uintptr_t>(place) % page_bytes;
  Dl_info object;
  if (dladdr(place, &object) == 0) return false;
  const bool closed = is_protected(object.dli_fbase, place);
  if (closed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(place, function, __ATOMIC_RELEASE);
  if (closed) mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace heddle::shim
