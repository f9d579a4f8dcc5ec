// An application under the shim that is its driver's kernel module as well: it answers the requests
// of the fake driver (shim_fake_objects.cc) and of the shim. One command a line, one answer a line.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "shim/driver/driver_api.h"
#include "shim/driver/rm_api.h"

namespace {

using namespace heddle;

std::mutex lock;
std::set<rm::Handle> off;
int switched = 0;     // requests that switched channels
int off_at_end = -1;  // how many channels were off when a context was freed

int off_now() {
  const std::lock_guard held(lock);
  return static_cast<int>(off.size());
}

void answer(unsigned long request, void* argument) {
  const std::lock_guard held(lock);
  if (request == rm::request_of<rm::Free>(rm::kFree)) {
    off_at_end = static_cast<int>(off.size());
    off.clear();
  }
  if (request != rm::request_of<rm::Control>(rm::kControl)) return;
  auto& control = *static_cast<rm::Control*>(argument);
  control.status = 0;
  if (control.command != rm::kDisableChannels) return;
  const auto& channels = *reinterpret_cast<const rm::DisableChannels*>(control.parameters);
  ++switched;
  for (uint32_t i = 0; i < channels.count; ++i) {
    if (channels.disable != 0) {
      off.insert(channels.channels[i]);
    } else {
      off.erase(channels.channels[i]);
    }
  }
}

}  // namespace

extern "C" int ioctl(int file, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (_IOC_TYPE(request) != rm::kType) {
    return static_cast<int>(syscall(SYS_ioctl, file, request, argument));
  }
  answer(request, argument);
  return 0;
}

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  atexit([] { printf("%d\n", off_now()); });  // behind what comes later
  if (getenv("LOADED_BEFORE") != nullptr) dlopen(getenv("HEDDLE_REAL_LIBCUDA"), RTLD_LAZY);
  void* const shim = dlopen("libcuda.so.1", RTLD_NOW);
  if (shim == nullptr) return 2;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(shim, "cuInit"));
  const auto destroy = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(shim, "cuCtxDestroy_v2"));
  const auto context = reinterpret_cast<CUcontext>(16);
  const auto of_device = [&](const char* name) {
    return reinterpret_cast<CUresult (*)(CUdevice)>(dlsym(shim, name))(0);
  };
  char line[64], word[32];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    int number = 0, result = -1;
    sscanf(line, "%31s %d", word, &number);
    if (strcmp(word, "init") == 0) {
      result = init(0);
    } else if (strcmp(word, "make") == 0) {
      void* const fake = dlopen(getenv("HEDDLE_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
      result = reinterpret_cast<int (*)(int)>(dlsym(fake, "fake_make_context"))(number);
    } else if (strcmp(word, "off") == 0) {
      result = off_now();
    } else if (strcmp(word, "retain") == 0) {
      CUcontext primary;
      result = reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(
          dlsym(shim, "cuDevicePrimaryCtxRetain"))(&primary, 0);
    } else if (strcmp(word, "destroy") == 0) {  // how many were off when the driver did it
      result = destroy(context) == CUDA_SUCCESS ? off_at_end : -1;
    } else if (strcmp(word, "reset") == 0) {
      result = of_device("cuDevicePrimaryCtxReset_v2") == CUDA_SUCCESS ? off_at_end : -1;
    } else if (strcmp(word, "release") == 0) {
      result = of_device("cuDevicePrimaryCtxRelease_v2") == CUDA_SUCCESS ? off_at_end : -1;
    } else if (strcmp(word, "fork") == 0) {  // how often the child switches channels
      const int before = switched;
      const pid_t child = fork();
      if (child == 0) {
        destroy(context);
        _exit(switched - before);
      }
      waitpid(child, &result, 0);
    } else if (strcmp(word, "exit") == 0) {
      exit(0);
    }
    printf("%d\n", result);
  }
  return 0;
}
