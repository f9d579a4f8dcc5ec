// The driver's entry points that the shim wraps or calls, as cuda.h declares them. Arguments that
// the shim only passes on are void*. tests/gpu checks this against cuda.h if a toolkit is there.
//
// HEDDLE_REAL(name) is the driver's own function, resolved at its first call; a plain `name` would
// be the shim's wrapper.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver/driver_api.h"

#pragma GCC visibility push(default)
extern "C" {

// clang-format off
CUresult cuInit(unsigned flags) noexcept;
CUresult cuDriverGetVersion(int* version) noexcept;
CUresult cuDeviceGetCount(int* count) noexcept;
CUresult cuDeviceGetName(char* name, int length, CUdevice device) noexcept;
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) noexcept;
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) noexcept;
CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags) noexcept;
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept;

CUresult cuCtxGetCurrent(CUcontext* context) noexcept;
CUresult cuCtxGetDevice(CUdevice* device) noexcept;
CUresult cuCtxPushCurrent_v2(CUcontext context) noexcept;
CUresult cuCtxPopCurrent_v2(CUcontext* context) noexcept;
CUresult cuCtxSynchronize() noexcept;
CUresult cuCtxSynchronize_v2(CUcontext context) noexcept;
CUresult cuCtxDestroy(CUcontext context) noexcept;
CUresult cuCtxDestroy_v2(CUcontext context) noexcept;
CUresult cuDevicePrimaryCtxReset(CUdevice device) noexcept;
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) noexcept;
CUresult cuDevicePrimaryCtxRelease(CUdevice device) noexcept;
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) noexcept;
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) noexcept;
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) noexcept;

CUresult cuCheckpointProcessLock(int pid, void* arguments) noexcept;
CUresult cuCheckpointProcessUnlock(int pid, void* arguments) noexcept;

CUresult cuModuleLoad(CUmodule* module, const char* file) noexcept;
CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept;
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, void* options, void** values) noexcept;
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) noexcept;
CUresult cuModuleUnload(CUmodule module) noexcept;
CUresult cuLibraryUnload(CUlibrary library) noexcept;
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) noexcept;
CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) noexcept;
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned most, CUlibrary library) noexcept;
CUresult cuFuncGetName(const char** name, CUfunction function) noexcept;
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) noexcept;
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction f) noexcept;
CUresult cuFuncLoad(CUfunction function) noexcept;
CUresult cuKernelGetName(const char** name, CUkernel kernel) noexcept;
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) noexcept;
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int block_size,
                                                     size_t dynamic_smem) noexcept;

#define HEDDLE_LAUNCH_PARAMETERS                                                              \
  CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
      unsigned smem, CUstream stream, void** params
CUresult cuLaunchKernel(HEDDLE_LAUNCH_PARAMETERS, void** extra) noexcept;
CUresult cuLaunchKernel_ptsz(HEDDLE_LAUNCH_PARAMETERS, void** extra) noexcept;
CUresult cuLaunchCooperativeKernel(HEDDLE_LAUNCH_PARAMETERS) noexcept;
CUresult cuLaunchCooperativeKernel_ptsz(HEDDLE_LAUNCH_PARAMETERS) noexcept;
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) noexcept;
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) noexcept;
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) noexcept;
CUresult cuLaunch(CUfunction f) noexcept;
CUresult cuLaunchGrid(CUfunction f, int width, int height) noexcept;
CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) noexcept;

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log, size_t size) noexcept;
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log, size_t size) noexcept;
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) noexcept;
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* params) noexcept;
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph, void* params) noexcept;
CUresult cuGraphExecDestroy(CUgraphExec exec) noexcept;
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) noexcept;
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) noexcept;
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) noexcept;
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) noexcept;
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) noexcept;
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept;
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept;
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* value) noexcept;
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue* value) noexcept;
CUresult cuGraphClone(CUgraph* clone, CUgraph graph) noexcept;
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                            size_t* count) noexcept;
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) noexcept;
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) noexcept;
CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) noexcept;
CUresult cuGraphDestroy(CUgraph graph) noexcept;
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* node, int* result) noexcept;
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void* result) noexcept;
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params, CUcontext context) noexcept;
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params, CUcontext context) noexcept;
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) noexcept;
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) noexcept;
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) noexcept;
CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) noexcept;
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, void* params) noexcept;
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) noexcept;

CUresult cuStreamSynchronize(CUstream stream) noexcept;
CUresult cuStreamSynchronize_ptsz(CUstream stream) noexcept;
CUresult cuStreamQuery(CUstream stream) noexcept;
CUresult cuStreamQuery_ptsz(CUstream stream) noexcept;
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) noexcept;
CUresult cuStreamGetPriority(CUstream stream, int* priority) noexcept;
CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) noexcept;
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) noexcept;
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) noexcept;
CUresult cuStreamDestroy(CUstream stream) noexcept;
CUresult cuStreamDestroy_v2(CUstream stream) noexcept;
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) noexcept;
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) noexcept;
CUresult cuStreamBeginCapture(CUstream stream) noexcept;
CUresult cuStreamBeginCapture_ptsz(CUstream stream) noexcept;
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) noexcept;
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) noexcept;
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const void* edges, size_t count, CUstreamCaptureMode mode) noexcept;
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const void* edges, size_t count, CUstreamCaptureMode mode) noexcept;
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) noexcept;
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) noexcept;

// The first versions have addresses and sizes of 32 bits.
CUresult cuMemAlloc(unsigned* at, unsigned bytes) noexcept;
CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) noexcept;
CUresult cuMemAllocPitch(unsigned* at, unsigned* pitch, unsigned width, unsigned height, unsigned element) noexcept;
CUresult cuMemAllocPitch_v2(CUdeviceptr* at, size_t* pitch, size_t width, size_t height, unsigned element) noexcept;
CUresult cuMemAllocManaged(CUdeviceptr* at, size_t bytes, unsigned flags) noexcept;
CUresult cuMemFree(unsigned at) noexcept;
CUresult cuMemFree_v2(CUdeviceptr at) noexcept;
CUresult cuMemFreeHost(void* at) noexcept;
CUresult cuMemHostUnregister(void* at) noexcept;
CUresult cuMemGetInfo(unsigned* free, unsigned* total) noexcept;
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept;
CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) noexcept;
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) noexcept;
CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* what) noexcept;
CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* what) noexcept;
CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* what) noexcept;
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* what) noexcept;
CUresult cuArrayDestroy(CUarray array) noexcept;
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* what, unsigned levels) noexcept;
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) noexcept;
// Since 10.2 and 11.2.
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* what,
                     unsigned long long flags) noexcept;
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept;
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) noexcept;
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) noexcept;
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from, int type) noexcept;
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) noexcept;
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) noexcept;
CUresult cuMemAllocAsync(CUdeviceptr* at, size_t bytes, CUstream stream) noexcept;
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* at, size_t bytes, CUstream stream) noexcept;
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* at, size_t bytes, CUmemoryPool pool, CUstream stream) noexcept;
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* at, size_t bytes, CUmemoryPool pool, CUstream stream) noexcept;
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) noexcept;
CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream) noexcept;
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) noexcept;
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) noexcept;
CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept;
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) noexcept;
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) noexcept;
CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept;
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, void* what) noexcept;
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* what) noexcept;
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, CUgraphNodeType* what) noexcept;
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const void* edges,
                           size_t count, CUgraphNodeType* what) noexcept;

CUresult cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) noexcept;
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* at, void* host, unsigned flags) noexcept;
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) noexcept;
CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) noexcept;
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) noexcept;
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) noexcept;

// Since 12.4: where they are missing there are no SM sets.
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) noexcept;
CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned flags, unsigned min_count) noexcept;
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) noexcept;
CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device, unsigned flags) noexcept;
CUresult cuGreenCtxDestroy(CUgreenCtx context) noexcept;
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) noexcept;
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned flags, int priority) noexcept;
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* context) noexcept;
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) noexcept;
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) noexcept;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) noexcept;

CUresult cuEventCreate(CUevent* event, unsigned flags) noexcept;
CUresult cuEventDestroy(CUevent event) noexcept;
CUresult cuEventDestroy_v2(CUevent event) noexcept;
CUresult cuEventRecord(CUevent event, CUstream stream) noexcept;
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) noexcept;
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) noexcept;
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) noexcept;
CUresult cuEventQuery(CUevent event) noexcept;
CUresult cuEventSynchronize(CUevent event) noexcept;
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) noexcept;
// clang-format on

}  // extern "C"
#pragma GCC visibility pop
