#include "shim/driver/driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "shim/driver/cache.h"
#include "shim/link/log.h"
#include "shim/stop/hook.h"

namespace heddle::shim {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// The usual places of the driver, tried last.
constexpr const char* kPlaces[] = {
    "/usr/local/nvidia/lib64", "/usr/lib/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
    "/usr/lib/wsl/lib",
};

constexpr const char* const kNames[] = {
#define HEDDLE_ENTRY(name) #name,
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
};

extern "C" void* const heddle_exports[];
extern "C" void* const heddle_trampolines[];

constinit std::atomic<void*> driver{nullptr};
constinit std::atomic<bool> searched{false};

// The functions in the slots of entry points that are missing: in the driver, or with it.
CUresult not_found() { return CUDA_ERROR_NOT_FOUND; }
CUresult no_driver() { return CUDA_ERROR_NO_DEVICE; }

bool is_this_object(const char* path) {
  Dl_info own;
  struct stat ours, theirs;
  return dladdr(heddle_exports, &own) != 0 && stat(own.dli_fname, &ours) == 0 &&
         stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

// Loads the driver at `path`. False if it is not there, or is the shim itself or a copy of it.
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
  watch_requests(dlsym(handle, "cuInit"));
  void* none = nullptr;
  driver.compare_exchange_strong(none, handle, std::memory_order_acq_rel);
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
  const char* list = secure_getenv("LD_LIBRARY_PATH");
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

void search() {
  const char* named = secure_getenv("HEDDLE_REAL_LIBCUDA");
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

// The driver's handle; nullptr: there is none. No lock of the shim's is held while the driver
// loads: a library's constructor may call CUDA under the loader's own lock, on this thread or
// another. A thread that comes meanwhile searches as well, and finds the same driver.
void* the_driver() {
  if (!searched.load(std::memory_order_acquire)) {
    if (driver.load(std::memory_order_acquire) == nullptr) search();
    searched.store(true, std::memory_order_release);
  }
  return driver.load(std::memory_order_acquire);
}

// ---- the driver's addresses of its entry points; without a lock for the same reason -------------

constinit std::atomic<void*> own[kEntryCount];
constinit std::atomic<bool> own_known{false};

void look_up_own(void* handle) {
  for (uint32_t entry = 0; entry < kEntryCount; ++entry) {
    own[entry].store(dlsym(handle, kNames[entry]), std::memory_order_relaxed);
  }
  own_known.store(true, std::memory_order_release);
}

}  // namespace

// Called by trampolines.S at the first call through a slot, and while memory is parked.
extern "C" __attribute__((used)) void* heddle_resolve(void** slot) {
  await_memory();
  void* handle = the_driver();
  const ptrdiff_t entry = slot - heddle_slots;
  void* target = handle != nullptr ? dlsym(handle, kNames[entry]) : nullptr;
  if (target == nullptr) {
    target = reinterpret_cast<void*>(handle != nullptr ? not_found : no_driver);
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

CUcontext current_context() {
  CUcontext context = nullptr;
  return HEDDLE_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : nullptr;
}

CUdevice current_device() {
  CUdevice device = -1;
  if (current_context() == nullptr || HEDDLE_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) {
    return -1;
  }
  return device;
}

void* replacement(void* address) {
  void* handle = the_driver();
  if (handle == nullptr) return address;
  if (!own_known.load(std::memory_order_acquire)) look_up_own(handle);
  void* found = address;
  for (uint32_t entry = 0; entry < kEntryCount; ++entry) {
    if (own[entry].load(std::memory_order_relaxed) != address) continue;
    found = heddle_exports[entry];
    if (found != heddle_trampolines[entry]) break;  // the wrapper, where two names share an address
  }
  return found;
}

}  // namespace heddle::shim
