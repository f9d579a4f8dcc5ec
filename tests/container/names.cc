// Exits 0 if both of the driver's names lead to the shim, as programs look them up.
#include <dlfcn.h>
#include <stdio.h>

#include <initializer_list>

int main() {
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    void* library = dlopen(name, RTLD_NOW);
    if (library == nullptr || dlsym(library, "cuInit") == nullptr ||
        dlsym(library, "heddle_shim_protocol") == nullptr) {
      const char* error = library == nullptr ? dlerror() : "not the shim";
      fprintf(stderr, "%s: %s\n", name, error);
      return 1;
    }
  }
}
