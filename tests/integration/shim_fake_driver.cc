// The least driver that the shim can stand on, told by its test when work is done. It answers at
// once, so that it also serves to time the shim itself. Everything it lacks is a missing symbol,
// which the shim must live with.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/integration/shim_fake_driver.h"

FAKE std::atomic<int> fake_noting;  // nonzero: what streams are told is kept
std::atomic<int> fake_noting{0};

namespace {

// Contexts 1 and 2, each on a device of its own, are the handles 16 and 32. A stream from
// kSecondContext on belongs to the second; an event keeps its context in its low digit.
constexpr uint64_t kSecondContext = 4096;
constexpr uint64_t kContextStep = 16;

// What green-context streams are made of: below the second context's, as they are of the first.
constexpr uint64_t kLanes = 3072;
constexpr uint64_t kGreenStreams = 2560;  // the application's own ones
constexpr unsigned kSplit = 2;            // groups, and what is left

// What the streams were told, in order: "record 64", "wait 64", "launch 64"; threads take turns.
char ops[1 << 16];
size_t ops_used = 0;
pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER;

thread_local uint64_t current = 1;
thread_local uint64_t pushed = 0;
std::atomic<uint64_t> events{0x10000};

CUcontext handle_of(uint64_t context) {
  return reinterpret_cast<CUcontext>(context * kContextStep);
}
uint64_t number_of(CUcontext context) { return reinterpret_cast<uint64_t>(context) / kContextStep; }
uint64_t context_of(CUstream stream) {
  if (reinterpret_cast<uint64_t>(stream) <= 2) return current;
  return reinterpret_cast<uint64_t>(stream) < kSecondContext ? 1 : 2;
}

}  // namespace

void note(const char* what, CUstream stream) {
  if (fake_noting.load(std::memory_order_relaxed) == 0) return;
  pthread_mutex_lock(&ops_lock);
  const int size = snprintf(ops + ops_used, sizeof ops - ops_used, "%s %lu,", what,
                            reinterpret_cast<uint64_t>(stream));
  if (ops_used + static_cast<size_t>(size) < sizeof ops) ops_used += static_cast<size_t>(size);
  pthread_mutex_unlock(&ops_lock);
}

// Controls, for shim_client.
FAKE std::atomic<int> fake_busy;          // nonzero: no event is complete
FAKE std::atomic<int> fake_launches;      // calls that succeeded
FAKE std::atomic<int> fake_priority;      // of the last launch that had one
FAKE std::atomic<int> fake_refusing;      // nonzero: no launch may have a priority
FAKE std::atomic<int> fake_prioritized;   // launches that came with one
FAKE std::atomic<int> fake_clusters;      // that came as clusters
FAKE std::atomic<int> fake_dependent;     // that came as programmatic dependent launches
FAKE std::atomic<int> fake_fail;          // result of the next launch
FAKE std::atomic<int> fake_event_calls;   // records and queries
FAKE std::atomic<int> fake_records;       // events recorded
FAKE std::atomic<int> fake_event_errors;  // so many records fail
FAKE std::atomic<int> fake_capturing;
FAKE std::atomic<int> fake_asking;    // calls that ask whether a stream captures, and have to wait
FAKE std::atomic<int> fake_answers;   // so many of those may return; -1: all
FAKE std::atomic<int> fake_blocking;  // synchronizing calls return once it is zero
FAKE std::atomic<int> fake_primary;   // who holds the primary context
FAKE std::atomic<int> fake_unseen;    // nonzero: a capture in global mode that the shim cannot see
FAKE std::atomic<int> fake_ended;     // calls that would have ended it
std::atomic<int> fake_busy{0}, fake_launches{0}, fake_priority{0}, fake_refusing{0},
    fake_prioritized{0}, fake_clusters{0}, fake_dependent{0}, fake_fail{0}, fake_event_calls{0},
    fake_event_errors{0}, fake_capturing{0}, fake_asking{0}, fake_answers{-1}, fake_blocking{0},
    fake_records{0}, fake_primary{0}, fake_unseen{0}, fake_ended{0};

FAKE std::atomic<int> fake_green_contexts;  // alive
FAKE std::atomic<int> fake_lanes;           // their streams, alive
FAKE std::atomic<int> fake_lanes_made;      // in all
FAKE std::atomic<int> fake_lane_busy;       // nonzero: what is in one is not done
FAKE std::atomic<int> fake_groups;          // of the last one
FAKE std::atomic<int> fake_lane_priority;   // of the last one
FAKE std::atomic<int> fake_lane_refuses;    // so many launches into one fail
FAKE std::atomic<int> fake_lane_deaf;       // so many records on one fail
FAKE std::atomic<int> fake_lane_syncs;      // one was waited for
FAKE std::atomic<int> fake_lane_pause_ms;   // a launch into one takes so long
FAKE std::atomic<int> fake_lane_pauses;     // launches that do so now
FAKE std::atomic<int> fake_lane_looks;      // asked whether it is done
FAKE std::atomic<int> fake_tie;             // the last event that a lane waited for
FAKE std::atomic<int> fake_stream_lives;    // another one: each handle is another stream's
FAKE std::atomic<int> fake_stream_looks;    // any stream was asked whether it is done
FAKE std::atomic<int> fake_duration_us;     // between any two events
FAKE std::atomic<int> fake_spinning;        // kernels that run until it is zero
FAKE std::atomic<int> fake_no_lane;         // so many cannot be made
std::atomic<int> fake_lane_pause_ms{0}, fake_lane_pauses{0}, fake_stream_lives{0},
    fake_stream_looks{0}, fake_duration_us{250}, fake_spinning{0}, fake_no_lane{0},
    fake_lanes_made{0}, fake_lane_busy{0}, fake_green_contexts{0}, fake_lanes{0}, fake_groups{0},
    fake_lane_priority{0}, fake_lane_refuses{0}, fake_lane_deaf{0}, fake_lane_syncs{0},
    fake_lane_looks{0}, fake_tie{0};

// What was noted since the last call.
FAKE const char* fake_ops() {
  static char out[sizeof ops];
  pthread_mutex_lock(&ops_lock);
  memcpy(out, ops, ops_used);
  out[ops_used] = '\0';
  ops_used = 0;
  pthread_mutex_unlock(&ops_lock);
  return out;
}

static bool is_lane(CUstream stream) {
  const auto number = reinterpret_cast<uint64_t>(stream);
  return number >= kLanes && number < kSecondContext;
}

static thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
void unsafe() { fake_ended += fake_unseen != 0 && capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL; }

// As a library may whose constructor calls CUDA, while the shim is loading the driver.
__attribute__((constructor)) static void call_early() {
  if (getenv("FAKE_EARLY") == nullptr) return;
  void* call = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDriverGetVersion");
  if (int version; call != nullptr) reinterpret_cast<CUresult (*)(int*)>(call)(&version);
}

FAKE CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
FAKE CUresult cuDriverGetVersion(int* version) { return *version = 12030, CUDA_SUCCESS; }
FAKE CUresult cuDeviceGetCount(int* count) { return *count = 2, CUDA_SUCCESS; }
FAKE CUresult cuDeviceGetUuid_v2(CUuuid* id, CUdevice device) {
  return memset(id, 'a' + device, sizeof *id), CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = handle_of(current), CUDA_SUCCESS;
}
FAKE CUresult cuCtxSetCurrent(CUcontext context) {
  return current = number_of(context), CUDA_SUCCESS;
}
FAKE CUresult cuCtxPushCurrent_v2(CUcontext context) {
  pushed = current;
  return cuCtxSetCurrent(context);
}
FAKE CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = handle_of(current);
  return current = pushed, CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetDevice(int* device) {
  return *device = static_cast<int>(current - 1), refused_without_context();
}
FAKE CUresult cuCtxDestroy_v2(CUcontext) {
  end_objects();
  return fake_capturing = 0, CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, int) {
  ++fake_primary;
  return *context = handle_of(1), CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRelease_v2(int) {
  if (--fake_primary == 0) end_objects();
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxReset_v2(int) { return end_objects(), CUDA_SUCCESS; }
FAKE CUresult cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  return *active = fake_primary > 0, CUDA_SUCCESS;
}
FAKE CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
FAKE CUresult cuIpcGetMemHandle(void*, CUdeviceptr) { return CUDA_SUCCESS; }
FAKE CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) { return CUDA_SUCCESS; }
FAKE CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned) { return CUDA_SUCCESS; }
FAKE CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return *context = handle_of(context_of(stream)), CUDA_SUCCESS;
}
// A stream of a Green Context that the application made.
FAKE CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* context) {
  const auto number = reinterpret_cast<uint64_t>(stream);
  const bool green = is_lane(stream) || (number >= kGreenStreams && number < kLanes);
  return *context = reinterpret_cast<CUgreenCtx>(green ? number : 0), CUDA_SUCCESS;
}
FAKE CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  *id =
      reinterpret_cast<uint64_t>(stream) + 1'000'000ULL * static_cast<unsigned>(fake_stream_lives);
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
  return cuStreamGetId(stream, id);
}
FAKE CUresult cuStreamQuery(CUstream stream) {
  ++fake_stream_looks;
  fake_lane_looks += is_lane(stream);
  unsafe();
  return is_lane(stream) && fake_lane_busy != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
FAKE CUresult cuStreamSynchronize(CUstream stream) {
  fake_lane_syncs += is_lane(stream);
  while (fake_blocking != 0) sched_yield();
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamSynchronize_ptsz(CUstream) { return CUDA_SUCCESS; }
FAKE CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
FAKE CUresult cuStreamGetPriority(CUstream, int* priority) {
  hold(Held::kFirstSight);
  return *priority = -3, CUDA_SUCCESS;
}
FAKE CUresult cuStreamDestroy_v2(CUstream stream) {
  fake_lanes -= is_lane(stream);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemHostGetFlags(unsigned*, void*) { return CUDA_SUCCESS; }
FAKE CUresult cuMemAlloc_v2(CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; }

FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  unsafe();
  *event = reinterpret_cast<CUevent>(events.fetch_add(16) + current);
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventDestroy_v2(CUevent) { return hold(Held::kEventEnd), CUDA_SUCCESS; }
// Real ones make system calls, some of which are cancellation points.
FAKE CUresult cuEventRecord(CUevent event, CUstream stream) {
  pthread_testcancel();
  ++fake_event_calls;
  ++fake_records;
  note("record", stream);
  if (is_lane(stream) && fake_lane_deaf > 0 && fake_lane_deaf-- > 0) return CUDA_ERROR_UNKNOWN;
  if (reinterpret_cast<uint64_t>(event) % 16 != context_of(stream)) {
    return refused(CUDA_ERROR_INVALID_HANDLE);
  }
  return fake_event_errors > 0 && fake_event_errors-- > 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return cuEventRecord(event, stream);
}
FAKE CUresult cuEventQuery(CUevent) {
  unsafe();
  ++fake_event_calls;
  return fake_busy != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
FAKE CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
FAKE CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) {
  unsafe();
  *ms = static_cast<float>(fake_duration_us) * 1e-3f;
  return fake_busy != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  if (is_lane(stream)) fake_tie = static_cast<int>(reinterpret_cast<uint64_t>(event));
  return note("wait", stream), CUDA_SUCCESS;
}

// Green Contexts: three groups of 8 SMs. Each holds the primary context.
FAKE CUresult cuDeviceGetDevResource(int, CUdevResource* out, CUdevResourceType type) {
  if (getenv("FAKE_NO_GREEN") != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *out = {};
  out->type = type;
  out->sm.smCount = 8 * (kSplit + 1);
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count,
                                          const CUdevResource* all, CUdevResource* rest, unsigned,
                                          unsigned) {
  *count = kSplit;
  for (unsigned i = 0; i <= kSplit; ++i) {
    CUdevResource& one = i < kSplit ? groups[i] : *rest;
    one = *all;
    one.sm.smCount = 8;
    one._internal_padding[0] = static_cast<unsigned char>(1U << i);
  }
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* groups,
                                        unsigned count) {
  uint64_t all = 0;
  for (unsigned i = 0; i < count; ++i) all |= groups[i]._internal_padding[0];
  return *out = reinterpret_cast<CUdevResourceDesc>(all), CUDA_SUCCESS;
}
// Waits for the kernels that run, and what the process launches meanwhile waits with it.
static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;
FAKE CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc groups, int, unsigned) {
  pthread_mutex_lock(&creating);
  while (fake_spinning != 0) sched_yield();
  pthread_mutex_unlock(&creating);
  fake_groups = static_cast<int>(reinterpret_cast<uint64_t>(groups));
  ++fake_primary;
  ++fake_green_contexts;
  return *out = reinterpret_cast<CUgreenCtx>(groups), CUDA_SUCCESS;
}
FAKE CUresult cuGreenCtxDestroy(CUgreenCtx) {
  --fake_primary;
  return --fake_green_contexts, CUDA_SUCCESS;
}
FAKE CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx, unsigned, int priority) {
  if (fake_no_lane > 0 && fake_no_lane-- > 0) return CUDA_ERROR_OUT_OF_MEMORY;
  fake_lane_priority = priority;
  ++fake_lanes;
  const auto number = static_cast<uint64_t>(fake_lanes_made++);
  return *out = reinterpret_cast<CUstream>(kLanes + 8 * number), CUDA_SUCCESS;
}

static CUresult launch(CUstream stream, unsigned threads = 1, unsigned shared = 0) {
  pthread_mutex_lock(&creating);
  pthread_mutex_unlock(&creating);
  note("launch", stream);
  if (refused_blocks(threads, shared) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (is_lane(stream) && fake_lane_pause_ms > 0) {
    ++fake_lane_pauses;
    usleep(static_cast<useconds_t>(fake_lane_pause_ms) * 1'000);
    --fake_lane_pauses;
  }
  if (is_lane(stream) && fake_lane_refuses > 0 && fake_lane_refuses-- > 0) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (const int failure = fake_fail.exchange(0)) return static_cast<CUresult>(failure);
  fake_launches.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned x, unsigned y,
                             unsigned z, unsigned shared, CUstream stream, void**, void**) {
  return launch(stream, x * y * z, shared);
}
FAKE CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned x, unsigned y,
                                  unsigned z, unsigned shared, CUstream stream, void**, void**) {
  return launch(stream, x * y * z, shared);
}
// A graph is the name of its only kernel; or "child " and the graph that its only node is, or
// "many " and the kernel that its last node is.
constexpr size_t kManyNodes = 1500;
static const char* after(const char* prefix, const void* graph) {
  const auto* text = static_cast<const char*>(graph);
  return strncmp(text, prefix, strlen(prefix)) == 0 ? text + strlen(prefix) : nullptr;
}
// What the nodes of the last clone were given. Each executable keeps what it was instantiated with.
FAKE std::atomic<int> fake_graph_groups;    // of the last executable that was launched; 0: all
FAKE std::atomic<int> fake_graph_priority;  // likewise
FAKE std::atomic<int> fake_clones;          // alive
FAKE std::atomic<int> fake_execs;           // alive
FAKE std::atomic<int> fake_no_twin;         // nonzero: no executable of an SM set is launched
std::atomic<int> fake_graph_groups{0}, fake_graph_priority{0}, fake_clones{0}, fake_execs{0},
    fake_no_twin{0};
static std::atomic<int> node_groups{0}, node_priority{0};
struct Instantiated {
  std::atomic<uint64_t> exec;
  std::atomic<int> groups, priority;
};
static Instantiated instantiated[64];
FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long flags) {
  hold(Held::kInstantiate);
  const uint64_t made = events.fetch_add(16);
  Instantiated& place = instantiated[made / 16 % 64];
  place.exec = made;
  place.groups = node_groups.exchange(0);
  const bool own = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  place.priority = own ? node_priority.load() : 0;
  ++fake_execs;
  return *exec = reinterpret_cast<CUgraphExec>(made), CUDA_SUCCESS;
}
FAKE CUresult cuGraphExecDestroy(CUgraphExec) { return --fake_execs, CUDA_SUCCESS; }
// As the real one: none of such nodes, and a clone's nodes are not the device's to update.
FAKE CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  for (const char* kind : {"alloc", "free", "while "})
    if (after(kind, graph) != nullptr) return refused(CUDA_ERROR_NOT_SUPPORTED);
  const char* plain = after("updatable ", graph);
  *clone = plain != nullptr ? reinterpret_cast<CUgraph>(const_cast<char*>(plain)) : graph;
  return ++fake_clones, CUDA_SUCCESS;
}
FAKE CUresult cuGraphDestroy(CUgraph) { return --fake_clones, CUDA_SUCCESS; }
FAKE CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, void*) { return CUDA_SUCCESS; }
FAKE CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned) { return CUDA_SUCCESS; }
FAKE CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  if (params->func != nullptr) return CUDA_SUCCESS;  // then the context is ignored
  const auto context = reinterpret_cast<uint64_t>(params->ctx);
  node_groups = context < kContextStep ? static_cast<int>(context) : 0;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, CUlaunchAttributeID,
                                            const CUlaunchAttributeValue* value) {
  return node_priority = value->priority, CUDA_SUCCESS;
}
FAKE CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID id,
                                            CUlaunchAttributeValue* value) {
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    return value->priority = after("raised", node) != nullptr ? -1 : 0, CUDA_SUCCESS;
  }
  const bool device = id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  return value->cooperative = after(device ? "updatable " : "coop", node) != nullptr, CUDA_SUCCESS;
}
// A Green Context's handle is its groups.
FAKE CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  return *context = reinterpret_cast<CUcontext>(green), CUDA_SUCCESS;
}
FAKE CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  const char* last = after("many ", graph);
  const size_t all = last != nullptr ? kManyNodes : 1;
  const size_t given = nodes != nullptr ? std::min(*count, all) : 0;
  for (size_t i = 0; i < given; ++i) {
    const char* name = i + 1 < all ? "one_of_many" : after(last != nullptr ? "many " : "", graph);
    nodes[i] = reinterpret_cast<CUgraphNode>(const_cast<char*>(name));
  }
  return *count = nodes != nullptr ? given : all, CUDA_SUCCESS;
}
FAKE CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = after("child ", node) != nullptr   ? CU_GRAPH_NODE_TYPE_GRAPH
          : after("while ", node) != nullptr ? CU_GRAPH_NODE_TYPE_CONDITIONAL
          : after("alloc", node) != nullptr  ? CU_GRAPH_NODE_TYPE_MEM_ALLOC
          : after("free", node) != nullptr   ? CU_GRAPH_NODE_TYPE_MEM_FREE
                                             : CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  *graph = reinterpret_cast<CUgraph>(const_cast<char*>(after("child ", node)));
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  params->kern = kernel_of(node);
  if (after("far ", node) != nullptr) return params->ctx = handle_of(7), CUDA_SUCCESS;
  return params->func = reinterpret_cast<CUfunction>(node), CUDA_SUCCESS;
}
FAKE CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const auto handle = reinterpret_cast<uint64_t>(exec);
  const Instantiated& place = instantiated[handle / 16 % 64];
  if (fake_no_twin != 0 && place.groups != 0) return CUDA_ERROR_UNKNOWN;
  fake_graph_groups = place.exec == handle ? place.groups.load() : -1;
  fake_graph_priority = place.priority.load();
  return launch(stream);
}
FAKE CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream stream) {
  return note("memset", stream), CUDA_SUCCESS;
}
FAKE CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream stream, void**) {
  return launch(stream);
}
FAKE CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS*, unsigned count, unsigned) {
  for (unsigned i = 0; i < count; ++i) launch(nullptr);
  return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    fake_clusters += config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    fake_dependent += config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PRIORITY) continue;
    fake_priority = config->attrs[i].value.priority;
    ++fake_prioritized;
    if (fake_refusing != 0) return refused(CUDA_ERROR_INVALID_VALUE);
  }
  return launch(config->hStream, config->blockDimX * config->blockDimY * config->blockDimZ,
                config->sharedMemBytes);
}

FAKE CUresult cuStreamBeginCapture_v2(CUstream, int) { return fake_capturing = 1, CUDA_SUCCESS; }
FAKE CUresult cuStreamBeginCapture_v2_ptsz(CUstream, int) {
  return fake_capturing = 1, CUDA_SUCCESS;
}
FAKE CUresult cuStreamEndCapture(CUstream, CUgraph*) { return fake_capturing = 0, CUDA_SUCCESS; }
FAKE CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  if (fake_answers >= 0) {
    ++fake_asking;
    while (fake_answers == 0) sched_yield();
    --fake_asking;
    --fake_answers;
  }
  *status = fake_capturing != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

FAKE CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

FAKE CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int, uint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  constexpr uint64_t kPerThread = 2;
  *pfn = nullptr;
  if (strcmp(symbol, "cuLaunchKernel") == 0) {
    *pfn = (flags & kPerThread) != 0 ? reinterpret_cast<void*>(cuLaunchKernel_ptsz)
                                     : reinterpret_cast<void*>(cuLaunchKernel);
  } else if (strcmp(symbol, "cuMemAlloc") == 0) {
    *pfn = reinterpret_cast<void*>(cuMemAlloc_v2);
  } else if (strcmp(symbol, "cuMemHostGetFlags") == 0) {
    *pfn = reinterpret_cast<void*>(cuMemHostGetFlags);
  }
  if (status != nullptr) {
    *status = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
