// Holds shim/driver/driver_api.h against the toolkit's cuda.h: every size, offset and value that
// the shim and the simulated driver rely on. Built only where a toolkit is present.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>

// These are macros there.

#undef CU_STREAM_LEGACY
#undef CU_STREAM_PER_THREAD
namespace ours {
#include "shim/driver/driver_api.h"
}

namespace {

#define SAME_VALUE(name) static_assert(static_cast<long>(ours::name) == static_cast<long>(::name))
#define SAME_OFFSET(type, field) \
  static_assert(offsetof(ours::type, field) == offsetof(::type, field))
#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type))

static_assert(ours::kArray3dLayered == CUDA_ARRAY3D_LAYERED);
static_assert(ours::kArray3dCubemap == CUDA_ARRAY3D_CUBEMAP);
static_assert(ours::kArray3dSparse == CUDA_ARRAY3D_SPARSE);
static_assert(ours::kArray3dDeferredMapping == CUDA_ARRAY3D_DEFERRED_MAPPING);
SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_INVALID_PTX);
SAME_VALUE(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
SAME_VALUE(CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_VALUE(CU_EVENT_DISABLE_TIMING);
SAME_VALUE(CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PRIORITY);
SAME_VALUE(CU_GRAPH_NODE_TYPE_KERNEL);
SAME_VALUE(CU_GRAPH_NODE_TYPE_GRAPH);
SAME_VALUE(CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL);
SAME_VALUE(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
SAME_VALUE(CUDA_ERROR_INVALID_RESOURCE_TYPE);
SAME_VALUE(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
SAME_VALUE(CU_DEV_RESOURCE_TYPE_SM);
SAME_VALUE(CU_GREEN_CTX_DEFAULT_STREAM);
SAME_VALUE(CU_STREAM_NON_BLOCKING);
SAME_SIZE(CUdevResource);
SAME_OFFSET(CUdevResource, sm);
SAME_OFFSET(CUdevSmResource, smCount);
SAME_OFFSET(CUdevSmResource, minSmPartitionSize);
SAME_OFFSET(CUdevSmResource, smCoscheduledAlignment);
SAME_SIZE(CUmemAllocationProp);
SAME_OFFSET(CUmemAllocationProp, location);
SAME_SIZE(CUDA_ARRAY_DESCRIPTOR);
SAME_OFFSET(CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(CUDA_ARRAY3D_DESCRIPTOR);
SAME_OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME_VALUE(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME_SIZE(CUuuid);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUlaunchAttribute);
SAME_SIZE(CUlaunchAttributeValue);
SAME_SIZE(CUlaunchConfig);
SAME_SIZE(CUDA_LAUNCH_PARAMS);
SAME_SIZE(CUipcMemHandle);
SAME_SIZE(CUmemLocation);
SAME_SIZE(CUmemAccessDesc);
SAME_OFFSET(CUmemAccessDesc, location);
SAME_VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
SAME_OFFSET(CUDA_LAUNCH_PARAMS, hStream);
SAME_OFFSET(CUlaunchAttribute, value);
SAME_OFFSET(CUlaunchConfig, sharedMemBytes);
SAME_OFFSET(CUlaunchConfig, hStream);
SAME_OFFSET(CUlaunchConfig, attrs);
SAME_OFFSET(CUlaunchConfig, numAttrs);
static_assert(offsetof(ours::CUlaunchAttributeValue, clusterDim) ==
              offsetof(CUlaunchAttributeValue, clusterDim));
static_assert(offsetof(ours::CUlaunchAttributeValue, priority) ==
              offsetof(CUlaunchAttributeValue, priority));

TEST(DriverApiTest, EveryEntryPointOfThisToolkitIsInTheTable) {
  std::set<std::string> known;
#define HEDDLE_ENTRY(name) known.insert(#name);
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
  EXPECT_GE(known.size(), 674u);
  EXPECT_TRUE(known.contains("cuLaunchKernelEx_ptsz"));
  EXPECT_TRUE(known.contains("cuGetProcAddress_v2"));
}

}  // namespace
