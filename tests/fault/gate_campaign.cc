// A random program, by seed: whatever holds its launches back, its values are those of its order.
//
//   gate_campaign [--seed N] [--operations N] [--threads N] [--patience-s N]
//
// Prints the digest of all values and exits with 0; with 1 if a value is not what the operations
// make in their order, and with 3, saying where each thread stands, if nobody got on for so long.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "ipc/gate.h"
#include "tests/fault/gate_words.h"

namespace heddle::fault {
namespace {

constexpr size_t kGraphs = 3;
constexpr uint32_t kLongestNs = 40'000;

// What one operation does with words of the thread's.
struct Step {
  enum Kind : uint8_t { kSpin, kCopy, kFill } kind;
  size_t to, from;
  uint64_t value;
};

struct Executable {
  CUgraphExec exec = nullptr;
  std::vector<Step> steps;
};

// What a seed's program does beside launches, copies and fills.
struct Habits {
  explicit Habits(uint64_t seed) : bits(static_cast<unsigned>(seed * kStateFactor >> 60)) {}
  bool graphs() const { return (bits & 1) != 0; }
  bool many_graphs() const { return (bits & 9) == 9; }
  bool waits_for_words() const { return (bits & 2) != 0; }
  bool frees() const { return (bits & 4) != 0; }
  // From the first of these on nothing of it may be held.
  bool calls_host() const { return bits == 7; }
  bool writes_words() const { return bits == 15; }
  unsigned bits;
};

class Worker : public OrderedWords {
 public:
  Worker(uint64_t seed, Habits habits)
      : OrderedWords(seed, habits.writes_words()), habits_(habits) {}

  void run(uint64_t operations) {
    begin();
    DO(cu.cuStreamCreate(&capturing_, CU_STREAM_NON_BLOCKING));
    DO(cu.cuStreamCreate(&branch_, CU_STREAM_NON_BLOCKING));
    for (Executable& e : graphs_) make(e);
    for (uint64_t i = 0; i < operations; ++i) {
      operate();
      ++place->done;
    }
    finish();
  }
  uint64_t launches() const { return launches_; }

 private:
  // ---- operations ----

  void launch(CUdeviceptr word, uint64_t value, CUstream stream) {
    constexpr unsigned kBlocks[] = {1, 1, 16, 132};
    uint32_t block_ns = 2'000 + draw(longest_ns_);
    void* params[] = {&word, &block_ns, &value};
    const unsigned blocks = kBlocks[draw(4)];
    // A default stream has two names.
    const bool by_name = draw(2) == 0;
    if (by_name && stream == CU_STREAM_LEGACY) stream = nullptr;
    if (by_name && stream == CU_STREAM_PER_THREAD) {
      DO(cu.cuLaunchKernel_ptsz(spin, blocks, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr));
    } else {
      DO(cu.cuLaunchKernel(spin, blocks, 1, 1, 128, 1, 1, 0, stream, params, nullptr));
    }
    ++launches_;
  }
  Step draw_step() {
    const uint32_t how = draw(8);
    return {how < 6    ? Step::kSpin
            : how == 6 ? Step::kCopy
                       : Step::kFill,
            draw(kCells), draw(kCells), random_()};
  }
  void put(const Step& step, CUstream stream) {
    switch (step.kind) {
      case Step::kSpin:
        return launch(at(step.to), step.value, stream);
      case Step::kCopy:
        return DO(cu.cuMemcpyDtoDAsync_v2(at(step.to), at(step.from), sizeof(uint64_t), stream));
      case Step::kFill:
        DO(cu.cuMemsetD32Async(at(step.to), static_cast<unsigned>(step.value), 2, stream));
    }
  }
  void count(const Step& step) {
    uint64_t& value = cells_[step.to].value;
    const uint64_t half = step.value & 0xffffffff;
    value = step.kind == Step::kSpin   ? value * kStateFactor + step.value
            : step.kind == Step::kCopy ? cells_[step.from].value
                                       : half << 32 | half;
  }
  void use_all(const std::vector<Step>& steps, size_t stream) {
    for (const Step& step : steps) {
      use(step.to, stream);
      if (step.kind == Step::kCopy) use(step.from, stream);
    }
  }

  void operate() {
    const size_t stream = draw(kStreams);
    const uint32_t how = draw(100);
    if (how < 6) return read(stream);
    if (how < 10) return write(stream);
    if (how < 13) return borrow(stream);
    if (how < 21) return habits_.graphs() ? launch_graph(stream) : step(stream);
    if (how < 22) return habits_.waits_for_words() ? wait_for_host(stream) : step(stream);
    if (how < 23) return habits_.frees() && draw(3) == 0 ? free_something() : step(stream);
    if (how < 24) return renew(draw(kCreated));
    if (how < 25) return another_thread();
    if (how < 26) return draw(4) == 0 ? settle() : step(stream);
    if (how < 27) return habits_.calls_host() ? call_host(stream) : step(stream);
    if (how < 50 && habits_.many_graphs()) return launch_graph(stream);
    step(stream);
  }

  // Mostly some of them, one behind the other.
  void step(size_t stream) {
    for (uint32_t left = 1 + draw(8); left > 0; --left) {
      const std::vector<Step> one(1, draw_step());
      use_all(one, stream);
      put(one[0], streams_[stream]);
      count(one[0]);
    }
  }
  void read(size_t stream) {
    const size_t cell = draw(kCells), to = pinned(1);
    use(cell, stream);
    DO(cu.cuMemcpyDtoHAsync_v2(&pinned_[to], at(cell), sizeof(uint64_t), streams_[stream]));
    reads_.push_back({to, cells_[cell].value});
  }
  void write(size_t stream) {
    const size_t cell = draw(kCells), from = pinned(1);
    use(cell, stream);
    pinned_[from] = cells_[cell].value = random_();
    DO(cu.cuMemcpyHtoDAsync_v2(at(cell), &pinned_[from], sizeof(uint64_t), streams_[stream]));
  }
  // Memory of the stream's own for a while.
  void borrow(size_t stream) {
    const size_t cell = draw(kCells);
    CUdeviceptr memory = 0;
    use(cell, stream);
    DO(more.allocate(&memory, sizeof(uint64_t) << draw(12), streams_[stream]));
    DO(cu.cuMemcpyDtoDAsync_v2(memory, at(cell), sizeof(uint64_t), streams_[stream]));
    const uint64_t value = random_();
    launch(memory, value, streams_[stream]);
    DO(cu.cuMemcpyDtoDAsync_v2(at(cell), memory, sizeof(uint64_t), streams_[stream]));
    const size_t last = draw(2) == 0 ? draw(kStreams) : stream;
    follow(stream, last);
    DO(more.free(memory, streams_[last]));
    cells_[cell].value = cells_[cell].value * kStateFactor + value;
  }

  // The stream stands until the host says so, which it does after some more work.
  void wait_for_host(size_t stream) {
    flags_[0] = 0;
    DO(more.wait(streams_[stream], address(&flags_[0]), 1, CU_STREAM_WAIT_VALUE_EQ));
    for (uint32_t left = draw(4); left > 0; --left) {
      const size_t cell = draw(kCells);
      if (cells_[cell].stream != stream) continue;  // whose order takes nothing
      const Step one{Step::kSpin, cell, 0, random_()};
      put(one, streams_[stream]);
      count(one);
    }
    flags_[0] = 1;
    DO(cu.cuStreamSynchronize(streams_[stream]));  // the flag is free again
  }

  // A word goes to the host, which changes it, and back.
  void call_host(size_t stream) {
    const size_t cell = draw(kCells), by = pinned(1);
    use(cell, stream);
    DO(cu.cuMemcpyDtoHAsync_v2(&pinned_[by], at(cell), sizeof(uint64_t), streams_[stream]));
    DO(more.call(
        streams_[stream], [](void* word) { *static_cast<uint64_t*>(word) *= kStateFactor; },
        &pinned_[by]));
    DO(cu.cuMemcpyHtoDAsync_v2(at(cell), &pinned_[by], sizeof(uint64_t), streams_[stream]));
    cells_[cell].value *= kStateFactor;
  }

  // A thread that launches into its own stream, or one of this thread's, and ends; its work goes
  // on.
  void another_thread() {
    const size_t cell = draw(kCells), heir = draw(kStreams);
    const CUstream stream = draw(2) == 0 ? CU_STREAM_PER_THREAD : streams_[draw(kCreated)];
    DO(cu.cuStreamSynchronize(streams_[cells_[cell].stream]));
    Place* const mine = place;
    std::vector<uint64_t> values(1 + draw(6));
    std::generate(values.begin(), values.end(), random_);
    std::thread([&] {
      place = mine;
      DO(cu.cuCtxSetCurrent(primary));
      for (const uint64_t value : values) launch(at(cell), value, stream);
      DO(cu.cuEventRecord(event_, stream));
    }).join();
    DO(cu.cuStreamWaitEvent(streams_[heir], event_, 0));
    cells_[cell].stream = heir;
    for (const uint64_t v : values) cells_[cell].value = cells_[cell].value * kStateFactor + v;
  }

  // Waits for all that was launched.
  void free_something() {
    kWaitingCalls[draw(std::size(kWaitingCalls) - 1)].run();
  }  // no partition

  // ---- graphs ----

  // In two branches now and then: the odd steps, if they use no word of the even ones.
  CUgraph capture(const std::vector<Step>& steps) {
    // Into a stream that has other work, unless another thread's legacy stream would end that.
    const size_t own = draw(kCreated);
    const CUstream capturing = blocking_[own] ? capturing_ : streams_[own];
    DO(cu.cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const auto meets = [&](size_t i, size_t j) {
      const Step &a = steps[i], &b = steps[j];
      return a.to == b.to || (a.kind == Step::kCopy && a.from == b.to) ||
             (b.kind == Step::kCopy && b.from == a.to);
    };
    bool forks = true;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (size_t j = i + 1; j < steps.size(); j += 2) forks = forks && !meets(i, j);
    }
    longest_ns_ = 5 * kLongestNs;  // some graphs are long enough for gates inside
    if (forks) {
      DO(cu.cuEventRecord(event_, capturing));
      DO(cu.cuStreamWaitEvent(branch_, event_, 0));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      put(steps[i], forks && i % 2 == 1 ? branch_ : capturing);
    }
    if (forks) {
      DO(cu.cuEventRecord(event_, branch_));
      DO(cu.cuStreamWaitEvent(capturing, event_, 0));
    }
    longest_ns_ = kLongestNs;
    CUgraph graph = nullptr;
    DO(cu.cuStreamEndCapture(capturing, &graph));
    // An event of a capture is no event of a stream.
    DO(cu.cuEventDestroy_v2(event_));
    DO(cu.cuEventCreate(&event_, draw(2) * CU_EVENT_DISABLE_TIMING));
    launches_ -= static_cast<uint64_t>(std::count_if(
        steps.begin(), steps.end(), [](const Step& s) { return s.kind == Step::kSpin; }));
    return graph;
  }

  void make(Executable& e) {
    e.steps.resize(1 + draw(24));
    std::generate(e.steps.begin(), e.steps.end(), [this] { return draw_step(); });
    const CUgraph graph = capture(e.steps);
    DO(cu.cuGraphInstantiateWithFlags(&e.exec, graph, 0));
    DO(cu.cuGraphDestroy(graph));
  }

  void launch_graph(size_t stream) {
    Executable& e = graphs_[draw(kGraphs)];
    const uint32_t how = draw(12);
    if (how == 0) {
      DO(cu.cuGraphExecDestroy(e.exec));
      settle();  // a new executable does not follow the old one
      make(e);
    } else if (how < 3) {
      for (Step& step : e.steps) step.value = random_();
      const CUgraph graph = capture(e.steps);
      char info[64] = {};
      DO(cu.cuGraphExecUpdate_v2(e.exec, graph, info));
      DO(cu.cuGraphDestroy(graph));
    }
    for (uint32_t times = 1 + draw(3); times > 0; --times) {
      use_all(e.steps, stream);
      DO(cu.cuGraphLaunch(e.exec, streams_[stream]));
      ++launches_;
      for (const Step& step : e.steps) count(step);
      stream = draw(kStreams);
    }
  }

  const Habits habits_;
  CUstream capturing_ = nullptr, branch_ = nullptr;
  Executable graphs_[kGraphs];
  uint32_t longest_ns_ = kLongestNs;
  uint64_t launches_ = 0;
};

// ---- the program ----

struct Options {
  uint64_t seed = std::random_device()(), operations = 500, threads = 2, patience_s = 20;
};

// Ends the program if nobody gets on.
void watch(uint64_t threads, uint64_t patience_s) {
  std::thread([=] {
    uint64_t before = 0, waited = 0;
    for (;; ++waited) {
      sleep(1);
      uint64_t now = 0;
      for (uint64_t i = 0; i < threads; ++i) now += places[i].done;
      if (now != before) waited = 0;
      before = now;
      if (waited < patience_s) continue;
      for (uint64_t i = 0; i < threads; ++i) {
        fprintf(stderr, "thread %llu stands after %llu operations in %s\n",
                static_cast<unsigned long long>(i),
                static_cast<unsigned long long>(places[i].done.load()), places[i].call.load());
      }
      _exit(3);
    }
  }).detach();
}

// How many units stood at gates of this process; those of sessions that are open are not known.
uint64_t tickets() {
  uint64_t most = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0;
    if (strstr(line, "/memfd:heddle-gates") == nullptr || sscanf(line, "%lx", &begin) != 1)
      continue;
    const auto* page = reinterpret_cast<const ipc::GatePage*>(begin);
    most += page->word[0] % ipc::kGateAhead;
  }
  if (maps != nullptr) fclose(maps);
  return most;
}

int run(const Options& options) {
  printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  watch(options.threads, options.patience_s);
  begin();
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  std::atomic<bool> right{true};
  for (uint64_t i = 0; i < options.threads; ++i) {
    workers.push_back(
        std::make_unique<Worker>(options.seed * kThreadsMost + i, Habits(options.seed)));
  }
  for (uint64_t i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      place = &places[i];
      DO(cu.cuCtxSetCurrent(primary));
      workers[i]->run(options.operations);
      if (!workers[i]->right()) right = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t digest = 0, launches = 0;
  for (const auto& worker : workers) {
    digest = digest * kStateFactor + worker->digest();
    launches += worker->launches();
  }
  printf("digest %016llx, %llu launches, %llu tickets\n", static_cast<unsigned long long>(digest),
         static_cast<unsigned long long>(launches), static_cast<unsigned long long>(tickets()));
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::fault

int main(int argc, char** argv) {
  heddle::fault::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t value = strtoull(argv[i + 1], nullptr, 10);
    if (strcmp(argv[i], "--seed") == 0) options.seed = value;
    if (strcmp(argv[i], "--operations") == 0) options.operations = value;
    if (strcmp(argv[i], "--threads") == 0) options.threads = std::min<uint64_t>(value, 8);
    if (strcmp(argv[i], "--patience-s") == 0) options.patience_s = value;
  }
  return heddle::fault::run(options);
}
