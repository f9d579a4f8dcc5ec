#include "shim/driver/cache.h"

#include <string.h>

#include <cstdint>

namespace heddle::shim {

bool find_in_cache(const char* image, size_t size, const char* library, unsigned skip,
                   const char*& path) {
  static constexpr char kMagic[] = "glibc-ld.so.cache1.1";
  constexpr size_t kHeader = 48, kEntry = 24;
  constexpr uint32_t kX86_64 = 0x0303;  // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6
  const void* start = memmem(image, size, kMagic, sizeof kMagic - 1);
  if (start == nullptr) return false;
  const char* base = static_cast<const char*>(start);
  const size_t room = size - static_cast<size_t>(base - image);
  if (room < kHeader) return false;
  // Since glibc 2.33 the cache ends in an extension, not in the end of a string.
  const auto is_text = [&](uint32_t at) {
    return at < room && memchr(base + at, '\0', room - at) != nullptr;
  };
  uint32_t count;
  memcpy(&count, base + 20, sizeof count);
  for (uint32_t i = 0; i < count && kHeader + (i + 1) * kEntry <= room; ++i) {
    uint32_t entry[3];  // flags, offset of the name, offset of the path
    memcpy(entry, base + kHeader + i * kEntry, sizeof entry);
    if (entry[0] != kX86_64 || !is_text(entry[1]) || !is_text(entry[2])) continue;
    if (strcmp(base + entry[1], library) != 0 || skip-- > 0) continue;
    path = base + entry[2];
    return true;
  }
  return false;
}

}  // namespace heddle::shim
