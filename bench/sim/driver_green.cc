// Green Contexts: the split of the SMs, contexts of some of its groups, and their streams.
//
// One split is known, the one that was measured: groups of facts::kGroupSms SMs and what is left.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

// What this driver keeps in the part of a CUdevResource that is its own.
struct Mark {
  uint32_t groups = 0;
  uint64_t split = 0;  // the call that made it; 0: the whole device
};
static_assert(sizeof(Mark) <= sizeof(CUdevResource::_internal_padding));

struct Description {
  uint32_t groups;
};

CUdevResource resource(const Mark& mark) {
  CUdevResource out{};
  out.type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(out._internal_padding, &mark, sizeof mark);
  out.sm = {sms_of(mark.groups), facts::kGroupSms, facts::kGroupSms};
  return out;
}

Mark mark_of(const CUdevResource& resource) {
  Mark mark;
  memcpy(&mark, resource._internal_padding, sizeof mark);
  return mark;
}

}  // namespace

void drop_greens() {
  Driver& d = driver();
  for (Green* green : d.greens) green->tag = 0;
  d.primary_references -= static_cast<int>(d.greens.size());
  d.greens.clear();
}

}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* out,
                                               CUdevResourceType type) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *out = resource({kAllGroups, 0});
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count,
                                                    const CUdevResource* input,
                                                    CUdevResource* remaining, unsigned flags,
                                                    unsigned min_count) {
  HEDDLE_SIM_CALL(call);
  if (count == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (mark_of(*input).split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (flags != 0 || min_count > facts::kGroupSms) return unsupported("cuDevSmResourceSplitByCount");
  if (groups == nullptr) {
    *count = facts::kGroups;
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, facts::kGroups);
  const uint64_t split = driver().next_id++;
  for (unsigned i = 0; i < *count; ++i) groups[i] = resource({1U << i, split});
  const uint32_t rest = kAllGroups & ~((1U << *count) - 1);
  if (remaining != nullptr) *remaining = resource({rest, split});
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                                  unsigned count) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  uint32_t groups = 0;
  for (unsigned i = 0; i < count; ++i) {
    const Mark mark = mark_of(resources[i]);
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (mark.split != mark_of(resources[0]).split || (groups & mark.groups) != 0) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    groups |= mark.groups;
  }
  *out = reinterpret_cast<CUdevResourceDesc>(new Description{groups});
  return CUDA_SUCCESS;
}

// Keeps the primary context until it is destroyed. Waits for the kernels that the process has
// running, and what it launches meanwhile waits as well: so the lock stays taken, as on an H100.
HEDDLE_SIM_API CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc description,
                                         CUdevice device, unsigned flags) {
  HEDDLE_SIM_CALL(call);
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr || description == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* primary = retain_primary();
  if (primary == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (driver().mem_ops.pending()) {  // of those waits alone
    drain(call, primary);
  }
  for (const Context* context : driver().contexts) {
    for (const Stream* stream : context->streams) {
      while (outstanding(stream)) usleep(50);
    }
  }
  auto* green = new Green;
  green->context = primary;
  green->groups = reinterpret_cast<Description*>(description)->groups;
  driver().greens.push_back(green);
  *out = reinterpret_cast<CUgreenCtx>(green);
  return CUDA_SUCCESS;
}

// Its streams are of no use any more, and were to be destroyed before.
HEDDLE_SIM_API CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  HEDDLE_SIM_CALL(call);
  Green* green = live<Green>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::vector<Stream*> streams = green->context->streams;
  for (Stream* stream : streams) {
    if (stream->green == green) destroy_stream(stream);
  }
  green->tag = 0;
  std::erase(driver().greens, green);
  return release_primary(call);
}

HEDDLE_SIM_API CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned flags,
                                               int priority) {
  HEDDLE_SIM_CALL(call);
  Green* green = live<Green>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = make_stream(green->context, flags, priority, false);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->green = green;
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

// The context of a graph's kernel nodes; no thread can make it current here.
HEDDLE_SIM_API CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  HEDDLE_SIM_CALL(call);
  Green* green = live<Green>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
