// Kernel launches, in all their forms.
#include <cstring>

#include "bench/sim/demo_kernels.h"
#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr CUresult kCooperativeTooLarge = static_cast<CUresult>(720);

// Keys of the `extra` array: CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE.
const void* packed_parameters(void** extra) {
  for (; extra != nullptr && extra[0] != nullptr; extra += 2) {
    if (extra[0] == reinterpret_cast<void*>(1)) return extra[1];
  }
  return nullptr;
}

template <class T>
T parameter(void** params, const void* packed, int index, int offset) {
  T value;
  const void* from = params != nullptr ? params[index] : static_cast<const char*>(packed) + offset;
  memcpy(&value, from, sizeof value);
  return value;
}

// What the kernel does, and how long, from its name and parameters.
CUresult describe(const Function& function, void** params, void** extra, Command& command) {
  if (function.name == kNullKernel) return CUDA_SUCCESS;
  const void* packed = packed_parameters(extra);
  const bool meet = function.name.ends_with(kMeetKernel);
  if (!meet && function.name != kSpinKernel) return unsupported("cuLaunchKernel");
  if (params == nullptr && packed == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (meet) {
    command.kind = CommandKind::kMeet;
    command.value = parameter<uint64_t>(params, packed, 0, kMeetingOffset);
    command.bytes = parameter<uint32_t>(params, packed, 1, kRanksOffset);
    return CUDA_SUCCESS;
  }
  command.kernel.block_ns = parameter<uint32_t>(params, packed, 1, kBlockNsOffset);
  command.value = parameter<uint64_t>(params, packed, 2, kValueOffset);
  const auto state = parameter<CUdeviceptr>(params, packed, 0, kStateOffset);
  if (state == 0) return CUDA_SUCCESS;
  command.dst = locate(state, sizeof(uint64_t));
  return command.dst == kNoHeap || state % sizeof(uint64_t) != 0 ? kIllegalAddress : CUDA_SUCCESS;
}

struct Attributes {
  bool cooperative = false;
  bool prioritized = false;
  int priority = 0;
};

CUresult read_attributes(const CUlaunchConfig& config, Attributes& read) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        read.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        read.prioritized = true;
        read.priority = attribute.value.priority;
        break;
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        break;  // changes where or how early blocks run, which is not modelled
      default:
        return unsupported("cuLaunchKernelEx");
    }
  }
  return CUDA_SUCCESS;
}

CUresult shape_of(const CUlaunchConfig& config, bool cooperative, uint32_t sms,
                  KernelShape& shape) {
  const uint64_t blocks = uint64_t{config.gridDimX} * config.gridDimY * config.gridDimZ;
  const uint64_t threads = uint64_t{config.blockDimX} * config.blockDimY * config.blockDimZ;
  if (blocks == 0 || blocks > UINT32_MAX || threads == 0 || threads > kMaxBlockThreads ||
      config.sharedMemBytes > kMaxSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  shape.blocks = static_cast<uint32_t>(blocks);
  shape.threads = static_cast<uint32_t>(threads);
  shape.registers = kDemoRegisters;
  shape.shared_bytes = config.sharedMemBytes;
  static const GpuModel model{GpuConfig{}};
  const bool fits = blocks <= uint64_t{model.blocks_per_sm(shape)} * sms;
  return cooperative && !fits ? kCooperativeTooLarge : CUDA_SUCCESS;
}

// What a later look at the node shows: the launch as it was captured.
void describe_node(Node& node, const CUlaunchConfig& config, const Function& function,
                   const Stream& stream, const Attributes& attributes) {
  const Command& command = node.command;
  node.function = &function;
  node.context = stream.green != nullptr
                     ? reinterpret_cast<CUcontext>(const_cast<Green*>(stream.green))
                     : reinterpret_cast<CUcontext>(stream.context);
  node.priority = attributes.prioritized ? attributes.priority : stream.priority;
  const unsigned grid[] = {config.gridDimX, config.gridDimY, config.gridDimZ};
  const unsigned block[] = {config.blockDimX, config.blockDimY, config.blockDimZ};
  memcpy(node.grid, grid, sizeof grid);
  memcpy(node.block, block, sizeof block);
  if (command.kind == CommandKind::kMeet) {
    node.values[0] = command.value;
    node.values[1] = command.bytes;
  } else {
    node.values[0] = command.dst == kNoHeap ? 0 : kDeviceBase + command.dst;
    node.values[1] = command.kernel.block_ns;
    node.values[2] = command.value;
  }
}

CUresult launch(const CUlaunchConfig* config, CUfunction handle, void** params, void** extra,
                NullStream null) {
  HEDDLE_SIM_CALL(call);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Function* function = live<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error;
  Stream* stream = find_stream(call, config->hStream, null, error);
  if (stream == nullptr) return error;
  if (function->context != nullptr && function->context != stream->context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Attributes attributes;
  Command command;
  command.kind = CommandKind::kKernel;
  command.name = function->wire_name;
  error = read_attributes(*config, attributes);
  command.groups = stream->green != nullptr ? stream->green->groups : kAllGroups;
  const uint32_t sms = sms_of(command.groups);
  if (error == CUDA_SUCCESS) error = shape_of(*config, attributes.cooperative, sms, command.kernel);
  if (error == CUDA_SUCCESS) error = describe(*function, params, extra, command);
  if (error != CUDA_SUCCESS) return error;
  if (attributes.prioritized) command.priority = attributes.priority - stream->priority;
  error = issue(call, stream, command);
  if (error == CUDA_SUCCESS && stream->capture != nullptr) {
    describe_node(stream->capture->nodes.back(), *config, *function, *stream, attributes);
  }
  return error;
}

CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** params, void** extra,
                bool cooperative, NullStream null) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  const CUlaunchConfig config{gx, gy,     gz,     bx,         by,
                              bz, shared, stream, &attribute, cooperative ? 1U : 0U};
  return launch(&config, f, params, extra, null);
}

}  // namespace

// With `func` the context is not looked at, as in the real driver: the kernel is on all SMs again.
CUresult change_node(Node& node, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  const bool by_kernel = params.func == nullptr;
  const Function* function = by_kernel ? live<Function>(params.kern) : live<Function>(params.func);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Green* green = by_kernel ? live<Green>(params.ctx) : nullptr;
  if (by_kernel && green == nullptr && live<Context>(params.ctx) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUlaunchConfig config{
      params.gridDimX,  params.gridDimY,       params.gridDimZ, params.blockDimX, params.blockDimY,
      params.blockDimZ, params.sharedMemBytes, nullptr,         nullptr,          0};
  Node changed = node;
  changed.command.kind = CommandKind::kKernel;
  changed.command.name = function->wire_name;
  changed.command.dst = kNoHeap;
  changed.command.groups = green != nullptr ? green->groups : kAllGroups;
  CUresult error = shape_of(config, false, sms_of(changed.command.groups), changed.command.kernel);
  if (error == CUDA_SUCCESS) {
    error = describe(*function, params.kernelParams, params.extra, changed.command);
  }
  if (error != CUDA_SUCCESS) return error;
  Stream of_node;
  of_node.green = green;
  of_node.context = by_kernel && green == nullptr ? live<Context>(params.ctx) : driver().primary;
  describe_node(changed, config, *function, of_node, {false, true, node.priority});
  node = changed;
  return CUDA_SUCCESS;
}

}  // namespace heddle::sim

using namespace heddle::sim;

#define HEDDLE_LAUNCH(name, null)                                                                 \
  HEDDLE_SIM_API CUresult cuLaunchKernel##name(                                                   \
      CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
      unsigned shared, CUstream stream, void** params, void** extra) {                            \
    return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, false, null);         \
  }                                                                                               \
  HEDDLE_SIM_API CUresult cuLaunchCooperativeKernel##name(                                        \
      CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
      unsigned shared, CUstream stream, void** params) {                                          \
    return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr, true, null);        \
  }                                                                                               \
  HEDDLE_SIM_API CUresult cuLaunchKernelEx##name(const CUlaunchConfig* config, CUfunction f,      \
                                                 void** params, void** extra) {                   \
    return launch(config, f, params, extra, null);                                                \
  }

HEDDLE_LAUNCH(, NullStream::kLegacy)
HEDDLE_LAUNCH(_ptsz, NullStream::kPerThread)
