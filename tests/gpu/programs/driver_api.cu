// The driver API as programs without the runtime use it: found by dlopen and dlsym and through
// cuGetProcAddress, a module from PTX, launch parameters
// by array and by buffer (`extra`), and a module that is unloaded and loaded again.
#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

using namespace matrix;

#define DRIVER(call)                                                          \
  do {                                                                        \
    const CUresult result_ = (call);                                          \
    if (result_ != CUDA_SUCCESS) {                                            \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
      exit(2);                                                                \
    }                                                                         \
  } while (false)

namespace {

// data[i] = data[i] * 1664525 + salt
const char* kPtx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry lcg(.param .u64 data, .param .u32 salt)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [salt];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  mad.lo.u32 %r7, %r6, 1664525, %r1;
  st.global.u32 [%rd4], %r7;
  ret;
}
)";

void* library;

template <typename Function>
Function by_name(const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return reinterpret_cast<Function>(found);
}

struct Driver {
  decltype(&cuInit) init = by_name<decltype(&cuInit)>("cuInit");
  decltype(&cuCtxSetCurrent) set_current = by_name<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
  decltype(&cuDevicePrimaryCtxRetain) retain =
      by_name<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(&cuModuleLoadData) load = by_name<decltype(&cuModuleLoadData)>("cuModuleLoadData");
  decltype(&cuModuleUnload) unload = by_name<decltype(&cuModuleUnload)>("cuModuleUnload");
  decltype(&cuModuleGetFunction) function =
      by_name<decltype(&cuModuleGetFunction)>("cuModuleGetFunction");
  decltype(&cuCtxSynchronize) synchronize =
      by_name<decltype(&cuCtxSynchronize)>("cuCtxSynchronize");
  decltype(&cuLaunchKernel) launch = by_name<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  decltype(&cuLaunchKernel) launch_too = nullptr;  // the same, by cuGetProcAddress

  Driver() {
    const auto get = by_name<CUresult (*)(const char*, void**, int, cuuint64_t,
                                          CUdriverProcAddressQueryResult*)>("cuGetProcAddress_v2");
    void* found = nullptr;
    DRIVER(get("cuLaunchKernel", &found, 4000, 0, nullptr));
    launch_too = reinterpret_cast<decltype(&cuLaunchKernel)>(found);
  }
};

}  // namespace

int main() {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  const Driver driver;
  DRIVER(driver.init(0));
  CUcontext primary;
  DRIVER(driver.retain(&primary, 0));
  DRIVER(driver.set_current(primary));
  Program program;
  unsigned* data = words();
  for (const int round : program.rounds()) {
    CUmodule module;
    CUfunction lcg;
    DRIVER(driver.load(&module, kPtx));
    DRIVER(driver.function(&lcg, module, "lcg"));
    for (unsigned i = 0; i < 10; ++i) {
      unsigned salt = round * 10 + i;
      CUdeviceptr address = reinterpret_cast<CUdeviceptr>(data);
      if (i % 2 == 0) {
        void* arguments[] = {&address, &salt};
        DRIVER(driver.launch(lcg, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
      } else {
        struct {
          CUdeviceptr data;
          unsigned salt;
        } buffer = {address, salt};
        size_t size = 12;
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &size, CU_LAUNCH_PARAM_END};
        DRIVER(driver.launch_too(lcg, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
      }
    }
    DRIVER(driver.synchronize());
    DRIVER(driver.unload(module));
    program.launched(10);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
