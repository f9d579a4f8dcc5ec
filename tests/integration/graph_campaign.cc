// Random programs of executable graphs, by seed: whatever stands in for an executable, its launches
// follow each other, in whatever streams and threads, across updates.
//
//   graph_campaign [--seed N] [--rounds N]      prints 'ok', or what was wrong, and exits with 1
//
// With HEDDLE_MATRIX_PACE_MS it is a program of tests/gpu/matrix.py, as programs/program.h has
// them.
//
// Each executable has two words of its own, which every kernel of it changes in a way that depends
// on the order. The launches of one executable are their only users, so that nothing but CUDA's own
// order of them keeps the words right. A kernel of the second word is a branch of its graph, beside
// the kernel before it. Streams end while their work runs, threads end with their
// default stream, and executables are made anew, so that handles and addresses are used again.
#include <poll.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

constexpr size_t kExecs = 4, kStreams = 5;
constexpr unsigned kBlocks = 66, kParts = 24;

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

struct Kernel {
  uint64_t value;
  bool branch;
};

struct Executable {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr words = 0;
  std::vector<CUgraphNode> nodes;
  std::vector<Kernel> kernels;  // in order
  uint64_t expected[2] = {};
};

class Campaign {
 public:
  explicit Campaign(uint64_t seed) : random_(seed) {
    DO(cuStreamCreate(&capturing_, 1));
    DO(cuStreamCreate(&branch_, 1));
    DO(cuEventCreate(&forked_, CU_EVENT_DISABLE_TIMING));
    for (Executable& e : execs_) {
      DO(cuMemAlloc_v2(&e.words, sizeof e.expected));
      DO(cuMemsetD8_v2(e.words, 0, sizeof e.expected));
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
      uint64_t words[2] = {};
      DO(cuMemcpyDtoH_v2(words, execs_[i].words, sizeof words));
      if (memcmp(words, execs_[i].expected, sizeof words) == 0) continue;
      right_ = false;
      printf("executable %zu: launches overtook each other\n", i);
      memcpy(execs_[i].expected, words, sizeof words);
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

  void follow(CUstream stream, CUstream other) {
    DO(cuEventRecord(forked_, other));
    DO(cuStreamWaitEvent(stream, forked_, 0));
  }

  // Of these kernels, each with a new value.
  CUgraph capture(Executable& e, std::vector<Kernel>& kernels) {
    DO(cuStreamBeginCapture_v2(capturing_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (size_t i = 0; i < kernels.size(); ++i) {
      const bool forks = i + 1 < kernels.size() && kernels[i + 1].branch;
      if (forks) follow(branch_, capturing_);
      kernels[i].value = random_();
      uint32_t block_ns = 20'000 + draw(200'000);
      CUdeviceptr word = word_of(e, kernels[i]);
      void* params[] = {&word, &block_ns, &kernels[i].value};
      const CUstream stream = kernels[i].branch ? branch_ : capturing_;
      DO(cuLaunchKernel(spin, kBlocks, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
      if (kernels[i].branch) follow(capturing_, branch_);
    }
    CUgraph graph = nullptr;
    DO(cuStreamEndCapture(capturing_, &graph));
    return graph;
  }

  static CUdeviceptr word_of(const Executable& e, const Kernel& kernel) {
    return e.words + (kernel.branch ? sizeof(uint64_t) : 0);
  }

  void make(Executable& e) {
    e.kernels.clear();
    for (size_t count = 1 + draw(4); e.kernels.size() < count;) {
      const bool may_branch = !e.kernels.empty() && !e.kernels.back().branch;
      e.kernels.push_back({0, may_branch && draw(4) == 0});
    }
    e.graph = capture(e, e.kernels);
    DO(cuGraphInstantiateWithFlags(&e.exec, e.graph, draw(2) * 8));  // with node priorities or not
    size_t count = e.kernels.size();
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
    for (const Kernel& kernel : e.kernels) {
      uint64_t& word = e.expected[kernel.branch];
      word = word * kStateFactor + kernel.value;
    }
  }

  void update_whole(Executable& e) {
    CUgraph next = capture(e, e.kernels);
    char info[64] = {};
    DO(cuGraphExecUpdate_v2(e.exec, next, info));
    DO(cuGraphDestroy(next));
  }

  // A node is known by what it did in the graph, which keeps the values of its capture.
  void update_node(Executable& e) {
    CUDA_KERNEL_NODE_PARAMS_v2 params = {};
    const CUgraphNode node = e.nodes[draw(e.nodes.size())];
    DO(cuGraphKernelNodeGetParams_v2(node, &params));
    const size_t at = place_of(e, node);
    uint32_t block_ns = 20'000 + draw(200'000);
    uint64_t value = random_();
    CUdeviceptr word = word_of(e, e.kernels[at]);
    void* arguments[] = {&word, &block_ns, &value};
    params.kernelParams = arguments;
    DO(cuGraphExecKernelNodeSetParams_v2(e.exec, node, &params));
    e.kernels[at].value = value;
  }

  // Nodes come in the order of their capture.
  static size_t place_of(const Executable& e, CUgraphNode node) {
    size_t at = 0;
    while (e.nodes[at] != node) ++at;
    return at;
  }

  void update_refused(Executable& e) {
    std::vector<Kernel> more = e.kernels;
    more.push_back({0, false});
    CUgraph next = capture(e, more);
    char info[64] = {};
    if (cu.cuGraphExecUpdate_v2(e.exec, next, info) == CUDA_SUCCESS) {
      fprintf(stderr, "the driver took an update of another shape\n");
      exit(1);
    }
    DO(cuGraphDestroy(next));
  }

  std::mt19937_64 random_;
  CUstream capturing_ = nullptr, branch_ = nullptr;
  CUevent forked_ = nullptr;
  CUstream streams_[kStreams] = {};
  Executable execs_[kExecs];
  bool right_ = true;
};

void tell(const char* line) {
  puts(line);
  fflush(stdout);
}

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
  const char* pace_ms = getenv("HEDDLE_MATRIX_PACE_MS");
  for (unsigned part = 0; part < kParts; ++part) {
    if (pace_ms != nullptr && part == kParts / 2) tell("half");
    for (unsigned i = part; i < rounds; i += kParts) campaign.round();
    if (pace_ms != nullptr) poll(nullptr, 0, atoi(pace_ms));
  }
  if (!campaign.settle()) {
    puts("wrong");
    return 1;
  }
  tell(pace_ms == nullptr ? "ok" : "{\"digests\": {\"words\": \"right\"}}");
  pollfd input{0, POLLIN, 0};
  if (pace_ms != nullptr) poll(&input, 1, 2000);  // the reader looks at this process
  return 0;
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
