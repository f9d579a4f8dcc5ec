// Which SMs each group of the driver's split has, and which groups are of one GPC, as JSON.
//
//   nvcc -O2 -arch=sm_90 -std=c++17 groups.cu -o groups -lcuda && ./groups
//
// A group is what cuDevSmResourceSplitByCount gives for at least 8 SMs: the unit of heddle's SM
// sets. The blocks of a cluster run on one GPC: SMs that ever hold blocks of one cluster are
// joined. Run it outside MPS, where %smid is the physical SM, and with nothing else on the GPU.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    if (const CUresult result = (call); result != CUDA_SUCCESS) {                       \
      const char* text = "";                                                            \
      cuGetErrorString(result, &text);                                                  \
      fprintf(stderr, "groups: line %d: %s: %s\n", __LINE__, #call, text ? text : "?"); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

// Each block says its SM, and stays so long that all SMs get one.
__global__ void say_sm(unsigned* sms, long long cycles) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) sms[blockIdx.x] = sm;
  for (const long long begin = clock64(); clock64() - begin < cycles;) {
  }
}

namespace {

constexpr unsigned kGroupSms = 8, kBlocks = 1024, kSmemBytes = 120 * 1024;  // a block an SM
constexpr int kTries = 50;

unsigned root(std::vector<unsigned>& parent, unsigned i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

// The SMs of `blocks` blocks in clusters of `cluster`, in block order; empty if the GPU refuses.
std::vector<unsigned> run(CUfunction kernel, CUstream stream, unsigned* sms, unsigned blocks,
                          unsigned cluster) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {cluster, 1, 1};
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.sharedMemBytes = kSmemBytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int fit = 0;
  if (cuOccupancyMaxActiveClusters(&fit, kernel, &config) != CUDA_SUCCESS || fit == 0) return {};
  long long cycles = 20000;
  void* arguments[] = {&sms, &cycles};
  CHECK(cuLaunchKernelEx(&config, kernel, arguments, nullptr));
  CHECK(cuStreamSynchronize(stream));
  std::vector<unsigned> found(blocks);
  CHECK(cuMemcpyDtoH(found.data(), reinterpret_cast<CUdeviceptr>(sms), blocks * sizeof(unsigned)));
  return found;
}

void print(const char* key, const std::vector<std::set<unsigned>>& sets, const char* end) {
  printf("  \"%s\": [", key);
  for (size_t i = 0; i < sets.size(); ++i) {
    printf("%s[", i ? ", " : "");
    for (auto it = sets[i].begin(); it != sets[i].end(); ++it)
      printf("%s%u", it == sets[i].begin() ? "" : ", ", *it);
    printf("]");
  }
  printf("]%s\n", end);
}

}  // namespace

int main() {
  CHECK(cuInit(0));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 0));
  cudaFree(nullptr);  // the primary context, current
  cudaFuncSetAttribute(say_sm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  cudaFuncSetAttribute(say_sm, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  CUfunction kernel;
  if (cudaGetFuncBySymbol(&kernel, reinterpret_cast<const void*>(say_sm)) != cudaSuccess) return 1;
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, kBlocks * sizeof(unsigned)));
  const auto sms = reinterpret_cast<unsigned*>(memory);
  CUdevResource all, rest;
  CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  const unsigned total = all.sm.smCount;
  unsigned count = total / kGroupSms;
  std::vector<CUdevResource> groups(count);
  CHECK(cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, kGroupSms));
  groups.resize(count);
  if (rest.sm.smCount != 0) groups.push_back(rest);

  std::vector<std::set<unsigned>> members;
  for (CUdevResource& group : groups) {
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    CHECK(cuDevResourceGenerateDesc(&description, &group, 1));
    CHECK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    const auto found = run(kernel, stream, sms, kBlocks / 4, 1);
    members.emplace_back(found.begin(), found.end());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuGreenCtxDestroy(green));
  }

  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned> parent(4 * total);  // %smid may have gaps
  std::iota(parent.begin(), parent.end(), 0u);
  std::set<unsigned> seen;
  for (const unsigned cluster : {16u, 8u, 4u, 2u}) {
    for (int t = 0; t < kTries; ++t) {
      const auto found = run(kernel, stream, sms, kBlocks, cluster);
      for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] >= parent.size()) return fprintf(stderr, "groups: SM %u\n", found[i]), 1;
        seen.insert(found[i]);
        parent[root(parent, found[i])] = root(parent, found[i / cluster * cluster]);
      }
    }
  }
  std::map<unsigned, std::set<unsigned>> joined;
  for (const unsigned sm : seen) joined[root(parent, sm)].insert(sm);
  std::vector<std::set<unsigned>> gpcs;
  for (auto& [_, set] : joined) gpcs.push_back(set);
  std::sort(gpcs.begin(), gpcs.end());

  char name[128] = "";
  CHECK(cuDeviceGetName(name, sizeof(name), device));
  printf("{\n  \"gpu\": \"%s\",\n  \"sms\": %u,\n", name, total);
  print("groups", members, ",");
  print("gpcs", gpcs, ",");
  std::vector<std::set<unsigned>> of_group;
  for (const auto& group : members) {
    of_group.emplace_back();
    for (unsigned g = 0; g < gpcs.size(); ++g)
      for (const unsigned sm : group)
        if (gpcs[g].count(sm)) of_group.back().insert(g);
  }
  print("gpcs_of_group", of_group, "");
  printf("}\n");
  return 0;
}
