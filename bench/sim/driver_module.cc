// Modules, libraries, functions, occupancy. The code of a module is the PTX text committed beside a
// demo's source: the simulated driver reads the names of its entries and knows by name what they
// do.
#include <algorithm>
#include <cstring>

#include "bench/sim/demo_kernels.h"
#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

bool name_character(char c) {
  return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
}

// The NAMEs of `.entry NAME` in PTX text.
std::vector<std::string> entries_of(std::string_view ptx) {
  std::vector<std::string> names;
  constexpr std::string_view kEntry = ".entry";
  for (size_t at = ptx.find(kEntry); at != std::string_view::npos; at = ptx.find(kEntry, at)) {
    at = ptx.find_first_not_of(" \t\r\n", at + kEntry.size());
    size_t end = at;
    while (end < ptx.size() && name_character(ptx[end])) ++end;
    if (at == std::string_view::npos) break;
    names.emplace_back(ptx.substr(at, end - at));
  }
  return names;
}

CUresult load(Module** out, const void* image, Context* context) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* text = static_cast<const char*>(image);
  const bool binary = memcmp(text,
                             "\x7f"
                             "ELF",
                             4) == 0 ||
                      memcmp(text, "\x50\xed\x55\xba", 4) == 0;
  if (binary) return unsupported("cuModuleLoadData");
  if (strstr(text, ".version") == nullptr) return CUDA_ERROR_INVALID_PTX;
  auto* module = new Module;
  module->context = context;
  for (const std::string& name : entries_of(text)) {
    Function function;
    function.context = context;
    function.module = reinterpret_cast<CUmodule>(module);
    function.name = name;
    function.wire_name = driver().link.name_index(name);
    module->functions.push_back(function);
  }
  *out = module;
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult find(void** out, Handle handle, const char* name) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = live<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (Function& function : module->functions) {
    if (function.name != name) continue;
    *out = &function;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

template <class Handle>
CUresult unload(Handle handle) {
  HEDDLE_SIM_CALL(call);
  Module* module = live<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->context != nullptr) drain_words(call, module->context);
  module->tag = 0;
  for (Function& function : module->functions) function.tag = 0;
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult name_of(const char** name, Handle handle) {
  HEDDLE_SIM_CALL(call);
  const Function* function = live<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, CUfunction handle, int threads, size_t shared) {
  HEDDLE_SIM_CALL(call);
  if (live<Function>(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || threads <= 0 || threads > kMaxBlockThreads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelShape shape;
  shape.threads = static_cast<uint32_t>(threads);
  shape.registers = kDemoRegisters;
  shape.shared_bytes = static_cast<uint32_t>(std::min<size_t>(shared, UINT32_MAX));
  *blocks = static_cast<int>(GpuModel(GpuConfig{}).blocks_per_sm(shape));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult error = drain_words(call, call.context());
  if (error != CUDA_SUCCESS) return error;
  return load(reinterpret_cast<Module**>(module), image, call.context());
}
HEDDLE_SIM_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, void*,
                                           void*) {
  return cuModuleLoadData(module, image);
}
HEDDLE_SIM_API CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return find(reinterpret_cast<void**>(out), module, name);
}
HEDDLE_SIM_API CUresult cuModuleUnload(CUmodule module) { return unload(module); }

HEDDLE_SIM_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, void*, void*,
                                          unsigned, void*, void*, unsigned) {
  HEDDLE_SIM_CALL(call);
  return load(reinterpret_cast<Module**>(library), code, nullptr);
}
HEDDLE_SIM_API CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return find(reinterpret_cast<void**>(out), library, name);
}
HEDDLE_SIM_API CUresult cuLibraryUnload(CUlibrary library) { return unload(library); }

// A kernel is its own function here: what differs by context is nothing that is simulated.
HEDDLE_SIM_API CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (live<Function>(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return name_of(name, kernel);
}
HEDDLE_SIM_API CUresult cuFuncGetName(const char** name, CUfunction function) {
  return name_of(name, function);
}
HEDDLE_SIM_API CUresult cuFuncLoad(CUfunction function) {
  HEDDLE_SIM_CALL(call);
  return live<Function>(function) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  HEDDLE_SIM_CALL(call);
  const Function* function = live<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = function->module;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuFuncGetAttribute(int* out, CUfunction_attribute attribute,
                                           CUfunction function) {
  HEDDLE_SIM_CALL(call);
  if (live<Function>(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out = kMaxBlockThreads;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *out = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *out = kDemoRegisters;
      return CUDA_SUCCESS;
  }
  return unsupported("cuFuncGetAttribute");
}
HEDDLE_SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f,
                                                                    int threads, size_t shared) {
  return occupancy(blocks, f, threads, shared);
}
HEDDLE_SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction f, int threads, size_t shared, unsigned) {
  return occupancy(blocks, f, threads, shared);
}
