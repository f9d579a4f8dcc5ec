// Random programs of executable graphs, by seed: whatever stands in for an executable, its launches
// follow each other, in whatever streams and threads, across updates.
//
//   graph_campaign [--seed N] [--rounds N]      prints 'ok', or what was wrong, and exits with 1
//
// Each executable has a word of its own, which every kernel of it changes in a way that depends on
// the order. The launches of one executable are its only users, so that nothing but CUDA's own
// order of them keeps the word right. Streams end while their work runs, threads end with their
// default stream, and executables are made anew, so that handles and addresses are used again.
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

constexpr size_t kExecs = 4, kStreams = 5;
constexpr unsigned kBlocks = 66;

Driver cu;
CUfunction spin;
CUcontext primary;

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cu.cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define DO(call) check(cu.call, #call)

struct Executable {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr word = 0;
  std::vector<CUgraphNode> nodes;
  std::vector<uint64_t> values;  // of its kernels, in order
  uint64_t expected = 0;
};

class Campaign {
 public:
  explicit Campaign(uint64_t seed) : random_(seed) {
    DO(cuStreamCreate(&capturing_, 1));
    for (Executable& e : execs_) {
      DO(cuMemAlloc_v2(&e.word, sizeof(uint64_t)));
      DO(cuMemsetD8_v2(e.word, 0, sizeof(uint64_t)));
      make(e);
    }
    for (CUstream& stream : streams_) stream = new_stream();
  }

  void round() {
    Executable& e = execs_[draw(kExecs)];
    switch (draw(16)) {
      case 0:
        return update_whole(e);
      case 1:
        return update_node(e);
      case 2:
        return update_refused(e);
      case 3: {
        CUstream& stream = streams_[draw(kStreams)];
        DO(cuStreamDestroy_v2(stream));  // its launches go on
        stream = new_stream();
        return;
      }
      case 4:
        if (draw(8) == 0) {
          DO(cuGraphExecDestroy(e.exec));
          DO(cuGraphDestroy(e.graph));
          DO(cuCtxSynchronize());  // a new executable does not follow the old one
          make(e);
        }
        return;
      case 5:
        if (draw(4) == 0) settle();
        return;
      default:
        return launch(e);
    }
  }

  // True if all words are what the launches in order make them.
  bool settle() {
    DO(cuCtxSynchronize());
    for (size_t i = 0; i < kExecs; ++i) {
      uint64_t word = 0;
      DO(cuMemcpyDtoH_v2(&word, execs_[i].word, sizeof word));
      if (word == execs_[i].expected) continue;
      right_ = false;
      printf("executable %zu: launches overtook each other\n", i);
      execs_[i].expected = word;
    }
    return right_;
  }

 private:
  uint32_t draw(size_t below) { return static_cast<uint32_t>(random_() % below); }

  CUstream new_stream() {
    CUstream stream = nullptr;
    DO(cuStreamCreate(&stream, draw(2)));
    return stream;
  }

  CUgraph capture(Executable& e, size_t kernels, std::vector<uint64_t>& values) {
    values.clear();
    DO(cuStreamBeginCapture_v2(capturing_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (size_t i = 0; i < kernels; ++i) {
      values.push_back(random_());
      uint32_t block_ns = 20'000 + draw(200'000);
      void* params[] = {&e.word, &block_ns, &values.back()};
      DO(cuLaunchKernel(spin, kBlocks, 1, 1, 256, 1, 1, 0, capturing_, params, nullptr));
    }
    CUgraph graph = nullptr;
    DO(cuStreamEndCapture(capturing_, &graph));
    return graph;
  }

  void make(Executable& e) {
    e.graph = capture(e, 1 + draw(4), e.values);
    DO(cuGraphInstantiateWithFlags(&e.exec, e.graph, draw(2) * 8));  // with node priorities or not
    size_t count = e.values.size();
    e.nodes.resize(count);
    DO(cuGraphGetNodes(e.graph, e.nodes.data(), &count));
  }

  void launch(Executable& e) {
    const uint32_t how = draw(kStreams + 3);
    if (how < kStreams) {
      DO(cuGraphLaunch(e.exec, streams_[how]));
    } else if (how == kStreams) {
      DO(cuGraphLaunch(e.exec, nullptr));
    } else if (how == kStreams + 1) {
      DO(cuGraphLaunch(e.exec, CU_STREAM_PER_THREAD));
    } else {
      std::thread([&] {
        DO(cuCtxSetCurrent(primary));
        DO(cuGraphLaunch(e.exec, CU_STREAM_PER_THREAD));
      }).join();
    }
    for (uint64_t value : e.values) e.expected = e.expected * kStateFactor + value;
  }

  void update_whole(Executable& e) {
    std::vector<uint64_t> values;
    CUgraph next = capture(e, e.values.size(), values);
    char info[64] = {};
    DO(cuGraphExecUpdate_v2(e.exec, next, info));
    DO(cuGraphDestroy(next));
    e.values = values;
  }

  // A node is known by what it did in the graph, which keeps the values of its capture.
  void update_node(Executable& e) {
    CUDA_KERNEL_NODE_PARAMS_v2 params = {};
    const CUgraphNode node = e.nodes[draw(e.nodes.size())];
    DO(cuGraphKernelNodeGetParams_v2(node, &params));
    const size_t at = place_of(e, node);
    uint32_t block_ns = 20'000 + draw(200'000);
    uint64_t value = random_();
    void* arguments[] = {&e.word, &block_ns, &value};
    params.kernelParams = arguments;
    DO(cuGraphExecKernelNodeSetParams_v2(e.exec, node, &params));
    e.values[at] = value;
  }

  // A captured chain's nodes come in the order of their capture.
  static size_t place_of(const Executable& e, CUgraphNode node) {
    size_t at = 0;
    while (e.nodes[at] != node) ++at;
    return at;
  }

  void update_refused(Executable& e) {
    std::vector<uint64_t> values;
    CUgraph next = capture(e, e.values.size() + 1, values);
    char info[64] = {};
    if (cu.cuGraphExecUpdate_v2(e.exec, next, info) == CUDA_SUCCESS) {
      fprintf(stderr, "the driver took an update of another shape\n");
      exit(1);
    }
    DO(cuGraphDestroy(next));
  }

  std::mt19937_64 random_;
  CUstream capturing_ = nullptr;
  CUstream streams_[kStreams] = {};
  Executable execs_[kExecs];
  bool right_ = true;
};

int run(uint64_t seed, unsigned rounds) {
  cu = Driver::load();
  DO(cuInit(0));
  DO(cuDevicePrimaryCtxRetain(&primary, 0));
  DO(cuCtxSetCurrent(primary));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  DO(cuLibraryLoadData(&library, heddle_demo_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  DO(cuLibraryGetKernel(&kernel, library, "heddle_spin"));
  spin = reinterpret_cast<CUfunction>(kernel);
  printf("seed %llu, %u rounds\n", static_cast<unsigned long long>(seed), rounds);
  Campaign campaign(seed);
  for (unsigned i = 0; i < rounds; ++i) campaign.round();
  const bool right = campaign.settle();
  puts(right ? "ok" : "wrong");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::workloads

int main(int argc, char** argv) {
  unsigned long long seed = std::random_device()(), rounds = 1'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], nullptr, 10);
    if (strcmp(argv[i], "--rounds") == 0) rounds = strtoull(argv[i + 1], nullptr, 10);
  }
  return heddle::workloads::run(seed, static_cast<unsigned>(rounds));
}
