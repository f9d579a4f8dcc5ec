#include "shim/driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "shim/cache.h"
#include "shim/log.h"

namespace heddle::shim {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// Where drivers lie when nothing else says so.
constexpr const char* kPlaces[] = {
    "/usr/local/nvidia/lib64", "/usr/lib/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
    "/usr/lib/wsl/lib",
};

constexpr const char* const kNames[] = {
#define HEDDLE_ENTRY(name) #name,
#include "shim/cuda/entry_points.inc"
#undef HEDDLE_ENTRY
};

extern "C" void* const heddle_exports[];
extern "C" void* const heddle_trampolines[];

constinit pthread_once_t opened = PTHREAD_ONCE_INIT;
constinit void* driver = nullptr;

// What stands in a slot that the driver cannot fill.
CUresult not_found() { return CUDA_ERROR_NOT_FOUND; }
CUresult no_driver() { return CUDA_ERROR_NO_DEVICE; }

bool is_this_object(const char* path) {
  Dl_info own;
  struct stat ours, theirs;
  return dladdr(heddle_exports, &own) != 0 && stat(own.dli_fname, &ours) == 0 &&
         stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

// Loads `path` beside us; false if it is not there, or is the shim itself, even as a copy.
bool open_driver(const char* path) {
  if (access(path, R_OK) != 0 || is_this_object(path)) return false;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    log_line("%s does not load: %s", path, dlerror());
    return false;
  }
  if (dlsym(handle, "heddle_shim_bypass") != nullptr || dlsym(handle, "cuInit") == nullptr) {
    dlclose(handle);
    return false;
  }
  log_line("driver: %s", path);
  driver = handle;
  return true;
}

bool open_in(const char* directory, size_t length) {
  char path[PATH_MAX];
  const int written =
      snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), directory, kLibrary);
  return length > 0 && written > 0 && static_cast<size_t>(written) < sizeof path &&
         open_driver(path);
}

bool open_in_library_path() {
  const char* list = getenv("LD_LIBRARY_PATH");
  while (list != nullptr && *list != '\0') {
    const size_t length = strcspn(list, ":;");
    if (open_in(list, length)) return true;
    list += length + (list[length] != '\0');
  }
  return false;
}

bool open_from_cache() {
  const int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat file;
  bool found = false;
  if (fstat(fd, &file) == 0 && file.st_size > 0) {
    const size_t size = static_cast<size_t>(file.st_size);
    void* image = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image != MAP_FAILED) {
      const char* path;
      for (unsigned skip = 0; !found; ++skip) {
        if (!find_in_cache(static_cast<const char*>(image), size, kLibrary, skip, path)) break;
        found = open_driver(path);
      }
      munmap(image, size);
    }
  }
  close(fd);
  return found;
}

void open_once() {
  const char* named = getenv("HEDDLE_REAL_LIBCUDA");
  if (named != nullptr && *named != '\0') {
    if (!open_driver(named)) log_line("HEDDLE_REAL_LIBCUDA=%s cannot be used", named);
    return;
  }
  if (open_in_library_path() || open_from_cache()) return;
  for (const char* place : kPlaces) {
    if (open_in(place, strlen(place))) return;
  }
  log_line("no CUDA driver found; set HEDDLE_REAL_LIBCUDA to its path");
}

// ---- wrapper table: the driver's address -> ours. Open addressing, written once. --------------

constexpr size_t kTableSize = 512;  // over twice the wrapped entry points

struct Replacement {
  void* real;
  void* ours;
};
constinit Replacement table[kTableSize] = {};
constinit pthread_once_t table_made = PTHREAD_ONCE_INIT;

size_t place_of(const void* address) {
  return static_cast<size_t>((reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u) >> 55);
}
static_assert(kTableSize == size_t{1} << (64 - 55));

void make_table() {
  for (uint32_t entry = 0; entry < kEntryCount; ++entry) {
    if (heddle_exports[entry] == heddle_trampolines[entry]) continue;
    void* real = driver != nullptr ? dlsym(driver, kNames[entry]) : nullptr;
    if (real == nullptr) continue;
    size_t place = place_of(real);
    while (table[place].real != nullptr && table[place].real != real) {
      place = (place + 1) % kTableSize;
    }
    if (table[place].real == nullptr) table[place] = {real, heddle_exports[entry]};
  }
}

}  // namespace

// Called by trampolines.S at the first call through a slot.
extern "C" __attribute__((used)) void* heddle_resolve(void** slot) {
  pthread_once(&opened, open_once);
  const ptrdiff_t entry = slot - heddle_slots;
  void* target = driver != nullptr ? dlsym(driver, kNames[entry]) : nullptr;
  if (target == nullptr) {
    target = reinterpret_cast<void*>(driver != nullptr ? not_found : no_driver);
  }
  __atomic_store_n(slot, target, __ATOMIC_RELEASE);
  return target;
}

bool driver_has(Entry entry) {
  void** slot = &heddle_slots[entry];
  const void* target = heddle_resolve(slot);
  return target != reinterpret_cast<void*>(not_found) &&
         target != reinterpret_cast<void*>(no_driver);
}

void* replacement(void* address) {
  pthread_once(&opened, open_once);
  pthread_once(&table_made, make_table);
  for (size_t place = place_of(address);; place = (place + 1) % kTableSize) {
    if (table[place].real == address) return table[place].ours;
    if (table[place].real == nullptr) return address;
  }
}

}  // namespace heddle::shim
