// Graphs of the simulated driver: a clone's kernels are put on SM sets, and compute the same.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/workloads/driver.h"

namespace heddle::sim {
namespace {

class SimGraph : public ::testing::Test {
 protected:
  template <class Signature>
  static Signature* symbol(const char* name) {
    void* found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<Signature*>(found);
  }

  static void SetUpTestSuite() {
    char directory[] = "/tmp/heddle-sim-graph-XXXXXX";
    directory_ = mkdtemp(directory);
    setenv("HEDDLE_SIM_SOCKET", (directory_ + "/gpu.sock").c_str(), 1);
    setenv("HEDDLE_SIM_LOG", (directory_ + "/log.json").c_str(), 1);
  }

  // In a process of its own: the owner writes its log as a client leaves.
  template <class Body>
  void in_child(Body&& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      open();
      body();
      fflush(stdout);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }

  void open() {
    library_ = dlopen(HEDDLE_SIM_DIR "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    cu = workloads::Driver::load();
    ASSERT_EQ(cu.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&primary_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuCtxSetCurrent(primary_), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuModuleGetFunction(&spin_, module, "heddle_spin"), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuMemAlloc_v2(&word_, sizeof(uint64_t)), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuMemsetD8_v2(word_, 0, sizeof(uint64_t)), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }

  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  // A graph of kernels with these values.
  CUgraph capture(const std::vector<uint64_t>& values) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cu.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    for (uint64_t value : values) {
      uint32_t block_ns = 1000;
      void* params[] = {&word_, &block_ns, &value};
      EXPECT_EQ(cu.cuLaunchKernel(spin_, 132, 1, 1, 256, 1, 1, 0, stream_, params, nullptr),
                CUDA_SUCCESS);
    }
    EXPECT_EQ(cu.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    return graph;
  }

  CUcontext context_of(unsigned count) {
    CUdevResource all{}, rest{}, groups[32];
    unsigned found = 31;
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    CUcontext context = nullptr;
    EXPECT_EQ(symbol<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>(
                  "cuDeviceGetDevResource")(0, &all, CU_DEV_RESOURCE_TYPE_SM),
              CUDA_SUCCESS);
    EXPECT_EQ((symbol<CUresult(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*,
                               unsigned, unsigned)>("cuDevSmResourceSplitByCount")(
                  groups, &found, &all, &rest, 0, 8)),
              CUDA_SUCCESS);
    EXPECT_EQ((symbol<CUresult(CUdevResourceDesc*, CUdevResource*, unsigned)>(
                  "cuDevResourceGenerateDesc")(&description, groups, count)),
              CUDA_SUCCESS);
    EXPECT_EQ((symbol<CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>(
                  "cuGreenCtxCreate")(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM)),
              CUDA_SUCCESS);
    EXPECT_EQ((symbol<CUresult(CUcontext*, CUgreenCtx)>("cuCtxFromGreenCtx")(&context, green)),
              CUDA_SUCCESS);
    return context;
  }

  // Each kernel of the graph into the context; by its function, which hides the context, or not.
  void put(CUgraph graph, CUcontext context, bool by_function) {
    CUgraphNode nodes[8];
    size_t count = std::size(nodes);
    ASSERT_EQ(
        (symbol<CUresult(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes")(graph, nodes, &count)),
        CUDA_SUCCESS);
    for (size_t i = 0; i < count; ++i) {
      CUDA_KERNEL_NODE_PARAMS_v2 params{};
      ASSERT_EQ((symbol<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*)>(
                    "cuGraphKernelNodeGetParams_v2")(nodes[i], &params)),
                CUDA_SUCCESS);
      if (!by_function) params.func = nullptr;
      params.ctx = context;
      ASSERT_EQ((symbol<CUresult(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2*)>(
                    "cuGraphKernelNodeSetParams_v2")(nodes[i], &params)),
                CUDA_SUCCESS);
    }
  }

  uint64_t run(CUgraph graph) {
    CUgraphExec executable = nullptr;
    uint64_t word = 0;
    EXPECT_EQ(cu.cuGraphInstantiateWithFlags(&executable, graph,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
              CUDA_SUCCESS);
    EXPECT_EQ(cu.cuMemsetD8_v2(word_, 0, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuMemcpyDtoH_v2(&word, word_, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuGraphExecDestroy(executable), CUDA_SUCCESS);
    return word;
  }

  // The SMs of the kernels with this value, as the owner logs them; at most ten seconds.
  static std::vector<int> sms_of(uint64_t value, size_t wanted) {
    std::vector<int> sms;
    for (int i = 0; i < 1000 && sms.size() < wanted; ++i) {
      sms.clear();
      std::ifstream log(directory_ + "/log.json");
      for (std::string line; std::getline(log, line) && !log.eof();) {
        const size_t at = line.find("\"sms\":");
        if (line.find("\"value\":" + std::to_string(value) + ",") == std::string::npos) continue;
        if (at != std::string::npos) sms.push_back(std::atoi(line.c_str() + at + 6));
      }
      if (sms.size() < wanted) poll(nullptr, 0, 10);
    }
    return sms;
  }

  static inline workloads::Driver cu;
  static inline void* library_ = nullptr;
  static inline std::string directory_;
  static inline CUcontext primary_ = nullptr;
  static inline CUfunction spin_ = nullptr;
  static inline CUdeviceptr word_ = 0;
  CUstream stream_ = nullptr;
};

TEST_F(SimGraph, ACloneOnAnSmSetComputesTheSameThere) {
  in_child([&] {
    const CUgraph graph = capture({7001, 7002});
    CUgraph clone = nullptr;
    ASSERT_EQ((symbol<CUresult(CUgraph*, CUgraph)>("cuGraphClone")(&clone, graph)), CUDA_SUCCESS);
    put(clone, context_of(2), false);
    const uint64_t plain = run(graph);
    EXPECT_EQ(plain, 7001 * workloads::kStateFactor + 7002);
    EXPECT_EQ(run(clone), plain);
  });
  EXPECT_EQ(sms_of(7001, 2), (std::vector<int>{132, 16}));
  EXPECT_EQ(sms_of(7002, 2), (std::vector<int>{132, 16}));
}

TEST_F(SimGraph, AFunctionHidesTheContext) {
  in_child([&] {
    const CUgraph graph = capture({7003});
    put(graph, context_of(3), true);
    run(graph);
  });
  EXPECT_EQ(sms_of(7003, 1), (std::vector<int>{132}));
}

TEST_F(SimGraph, AContextThatIsNoneIsRefused) {
  in_child([&] {
    const CUgraph graph = capture({7004});
    CUgraphNode node = nullptr;
    size_t count = 1;
    CUDA_KERNEL_NODE_PARAMS_v2 params{};
    ASSERT_EQ(
        (symbol<CUresult(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes")(graph, &node, &count)),
        CUDA_SUCCESS);
    ASSERT_EQ((symbol<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*)>(
                  "cuGraphKernelNodeGetParams_v2")(node, &params)),
              CUDA_SUCCESS);
    params.func = nullptr;
    params.ctx = nullptr;
    EXPECT_EQ((symbol<CUresult(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2*)>(
                  "cuGraphKernelNodeSetParams_v2")(node, &params)),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(SimGraph, ItsEdgesAreThoseOfItsCaptureAndThoseThatWereAddedAndNotRemoved) {
  in_child([&] {
    const CUgraph graph = capture({1, 2, 3});
    CUgraphNode nodes[3], from[4], to[4];
    size_t count = 3;
    ASSERT_EQ(cu.cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    const auto edges =
        symbol<CUresult(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, size_t*)>(
            "cuGraphGetEdges_v2");
    const auto add = symbol<CUresult(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t)>(
        "cuGraphAddDependencies");
    ASSERT_EQ(edges(graph, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(add(graph, &nodes[0], &nodes[2], 1), CUDA_SUCCESS);
    EXPECT_EQ(add(graph, &nodes[2], &nodes[1], 1), CUDA_ERROR_INVALID_VALUE);
    count = std::size(from);
    ASSERT_EQ(edges(graph, from, to, nullptr, &count), CUDA_SUCCESS);
    ASSERT_EQ(count, 3u);
    EXPECT_EQ(std::vector(from, from + 3), (std::vector{nodes[0], nodes[1], nodes[0]}));
    EXPECT_EQ(std::vector(to, to + 3), (std::vector{nodes[1], nodes[2], nodes[2]}));
    const auto remove = symbol<CUresult(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t)>(
        "cuGraphRemoveDependencies");
    EXPECT_EQ(remove(graph, &nodes[1], &nodes[2], 1), CUDA_SUCCESS);
    EXPECT_EQ(remove(graph, &nodes[1], &nodes[2], 1), CUDA_ERROR_INVALID_VALUE);
    count = std::size(from);
    ASSERT_EQ(edges(graph, from, to, nullptr, &count), CUDA_SUCCESS);
    ASSERT_EQ(count, 2u);
    EXPECT_EQ(std::vector(from, from + 2), (std::vector{nodes[0], nodes[0]}));
  });
}

}  // namespace
}  // namespace heddle::sim
