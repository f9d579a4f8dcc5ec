// What programs at gates share: the driver with more calls than most programs need, and where each
// thread stands, for who watches them.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "bench/workloads/driver.h"

namespace heddle::fault {

inline constexpr size_t kPage = 4096;

using workloads::Driver;
using workloads::kStateFactor;

inline Driver cu;
inline CUcontext primary;
inline CUfunction spin;

template <class Signature>
Signature* symbol(const char* name) {
  void* const found = dlsym(cu.library, name);
  if (found == nullptr) {
    fprintf(stderr, "the CUDA driver lacks %s\n", name);
    exit(2);
  }
  return reinterpret_cast<Signature*>(found);
}

struct More {
  CUresult (*allocate)(CUdeviceptr*, size_t, CUstream);
  CUresult (*free)(CUdeviceptr, CUstream);
  CUresult (*free_host)(void*);
  CUresult (*enlist)(void*, size_t, unsigned);
  CUresult (*strike)(void*);
  CUresult (*write)(CUstream, CUdeviceptr, uint32_t, unsigned);
  CUresult (*wait)(CUstream, CUdeviceptr, uint32_t, unsigned);
  CUresult (*call)(CUstream, void (*)(void*), void*);
  CUresult (*make_array)(CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
  CUresult (*free_array)(CUarray);

  void load() {
    allocate = symbol<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync");
    free = symbol<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    free_host = symbol<CUresult(void*)>("cuMemFreeHost");
    enlist = symbol<CUresult(void*, size_t, unsigned)>("cuMemHostRegister_v2");
    strike = symbol<CUresult(void*)>("cuMemHostUnregister");
    write = symbol<CUresult(CUstream, CUdeviceptr, uint32_t, unsigned)>("cuStreamWriteValue32_v2");
    wait = symbol<CUresult(CUstream, CUdeviceptr, uint32_t, unsigned)>("cuStreamWaitValue32_v2");
    call = symbol<CUresult(CUstream, void (*)(void*), void*)>("cuLaunchHostFunc");
    make_array = symbol<CUresult(CUarray*, const CUDA_ARRAY_DESCRIPTOR*)>("cuArrayCreate_v2");
    free_array = symbol<CUresult(CUarray)>("cuArrayDestroy");
  }
};
inline More more;

// Where a thread stands: for the watchdog.
struct Place {
  std::atomic<uint64_t> done{0};  // operations
  std::atomic<const char*> call{"nothing yet"};
};
inline constexpr size_t kThreadsMost = 8;
inline Place places[kThreadsMost];
inline thread_local Place* place = &places[0];

// A call returned; ends the program if it failed.
inline void done(const char* call, CUresult result) {
  place->call = "none";
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cu.cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define DO(what) (place->call = #what, done(#what, what))

struct Named {
  const char* name;
  void (*run)();
};

// ---- calls that wait for all that was launched ----

inline void free_memory() {
  CUdeviceptr memory = 0;
  DO(cu.cuMemAlloc_v2(&memory, kPage));
  DO(cu.cuMemFree_v2(memory));
}
inline void free_host() {
  void* memory = nullptr;
  DO(cu.cuMemHostAlloc(&memory, kPage, 0));
  DO(more.free_host(memory));
}
inline void unregister() {
  void* const memory = aligned_alloc(kPage, kPage);
  DO(more.enlist(memory, kPage, 0));
  DO(more.strike(memory));
  free(memory);
}
inline void load() {
  CUmodule module = nullptr;
  DO(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx));
  DO(cu.cuModuleUnload(module));
}
inline void free_array() {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR floats{64, 64, 0x20, 1};
  DO(more.make_array(&array, &floats));
  DO(more.free_array(array));
}
inline void free_mipmapped() {
  CUmipmappedArray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR floats{64, 64, 0, 0x20, 1, 0};
  DO((symbol<CUresult(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned)>(
      "cuMipmappedArrayCreate")(&array, &floats, 1)));
  DO(symbol<CUresult(CUmipmappedArray)>("cuMipmappedArrayDestroy")(array));
}
inline void partition() {
  CUdevResource all{};
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  DO((symbol<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>("cuDeviceGetDevResource")(
      0, &all, CU_DEV_RESOURCE_TYPE_SM)));
  DO((symbol<CUresult(CUdevResourceDesc*, CUdevResource*, unsigned)>("cuDevResourceGenerateDesc")(
      &description, &all, 1)));
  DO((symbol<CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>("cuGreenCtxCreate")(
      &green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM)));
}

inline constexpr Named kWaitingCalls[] = {
    {"cuMemFree", free_memory},          {"cuMemFreeHost", free_host},
    {"cuMemHostUnregister", unregister}, {"cuModuleLoadData", load},
    {"cuArrayDestroy", free_array},      {"cuMipmappedArrayDestroy", free_mipmapped},
    {"cuGreenCtxCreate", partition}};

inline CUdeviceptr address(void* at) { return reinterpret_cast<CUdeviceptr>(at); }

// The first device's context and kernel.
inline void begin() {
  cu = Driver::load();
  more.load();
  DO(cu.cuInit(0));
  DO(cu.cuDevicePrimaryCtxRetain(&primary, 0));
  DO(cu.cuCtxSetCurrent(primary));
  CUmodule module = nullptr;
  DO(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx));
  DO(cu.cuModuleGetFunction(&spin, module, "heddle_spin"));
}

}  // namespace heddle::fault
