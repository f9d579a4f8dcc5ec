// A random program, by seed: whatever holds its launches back, its values are those of its order.
//
//   gate_campaign [--seed N] [--operations N] [--threads N] [--patience-s N]
//
// Prints the digest of all values and exits with 0; with 1 if a value is not what the operations
// make in their order, and with 3, saying where each thread stands, if nobody got on for so long.
//
// Every word of memory has a value that the host computes as well, and a stream that used it last.
// Another stream that is to use it is ordered behind that one, in one of the ways that CUDA has. So
// the words depend on nothing but that order, and each thread's on nobody else's.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "bench/workloads/driver.h"
#include "ipc/gate.h"

namespace heddle::fault {
namespace {

using workloads::Driver;
using workloads::kStateFactor;

constexpr size_t kCells = 20, kCreated = 4, kStreams = kCreated + 2, kGraphs = 3;
constexpr size_t kPinned = 2048;  // words that copies go through, each once between two waits
constexpr size_t kFlags = 1024;   // words that a thread's streams wait for
constexpr size_t kThreadsMost = 8;

Driver cu;
CUcontext primary;
CUfunction spin;

template <class Signature>
Signature* symbol(const char* name) {
  void* const found = dlsym(cu.library, name);
  if (found == nullptr) {
    fprintf(stderr, "the CUDA driver lacks %s\n", name);
    exit(2);
  }
  return reinterpret_cast<Signature*>(found);
}

struct More {
  CUresult (*allocate)(CUdeviceptr*, size_t, CUstream);
  CUresult (*free)(CUdeviceptr, CUstream);
  CUresult (*free_host)(void*);
  CUresult (*enlist)(void*, size_t, unsigned);
  CUresult (*strike)(void*);
  CUresult (*write)(CUstream, CUdeviceptr, uint32_t, unsigned);
  CUresult (*wait)(CUstream, CUdeviceptr, uint32_t, unsigned);
  CUresult (*call)(CUstream, void (*)(void*), void*);
  CUresult (*make_array)(CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
  CUresult (*free_array)(CUarray);

  void load() {
    allocate = symbol<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync");
    free = symbol<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    free_host = symbol<CUresult(void*)>("cuMemFreeHost");
    enlist = symbol<CUresult(void*, size_t, unsigned)>("cuMemHostRegister_v2");
    strike = symbol<CUresult(void*)>("cuMemHostUnregister");
    write = symbol<CUresult(CUstream, CUdeviceptr, uint32_t, unsigned)>("cuStreamWriteValue32_v2");
    wait = symbol<CUresult(CUstream, CUdeviceptr, uint32_t, unsigned)>("cuStreamWaitValue32_v2");
    call = symbol<CUresult(CUstream, void (*)(void*), void*)>("cuLaunchHostFunc");
    make_array = symbol<CUresult(CUarray*, const CUDA_ARRAY_DESCRIPTOR*)>("cuArrayCreate_v2");
    free_array = symbol<CUresult(CUarray)>("cuArrayDestroy");
  }
} more;

// Where a thread stands: for the watchdog.
struct Place {
  std::atomic<uint64_t> done{0};  // operations
  std::atomic<const char*> call{"nothing yet"};
};
Place places[kThreadsMost];
thread_local Place* place = &places[0];

void done(const char* call, CUresult result) {
  place->call = "none";
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cu.cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define DO(what) (place->call = #what, done(#what, what))

CUdeviceptr address(void* at) { return reinterpret_cast<CUdeviceptr>(at); }

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
  bool waits_for_words() const { return (bits & 2) != 0; }
  bool frees() const { return (bits & 4) != 0; }
  // From the first of these on nothing of it may be held.
  bool calls_host() const { return bits == 7; }
  bool writes_words() const { return bits == 15; }
  unsigned bits;
};

class Worker {
 public:
  Worker(uint64_t seed, Habits habits) : random_(seed), habits_(habits) {}

  bool run(uint64_t operations) {
    begin();
    for (uint64_t i = 0; i < operations; ++i) {
      operate();
      ++place->done;
    }
    settle();
    for (size_t i = 0; i < kCells; ++i) {
      uint64_t found = 0;
      DO(cu.cuMemcpyDtoH_v2(&found, at(i), sizeof found));
      compare(found, cells_[i].value, "a word");
    }
    return right_;
  }
  uint64_t digest() const { return digest_; }
  uint64_t launches() const { return launches_; }

 private:
  struct Cell {
    uint64_t value = 0;
    size_t stream = 0;  // that used it last
  };
  struct Read {
    size_t pinned;
    uint64_t value;
  };

  uint32_t draw(size_t below) { return static_cast<uint32_t>(random_() % below); }
  CUdeviceptr at(size_t cell) const { return words_ + cell * sizeof(uint64_t); }
  CUdeviceptr flag(size_t stream) { return address(&flags_[flag_of_[stream]]); }

  void begin() {
    DO(cu.cuMemAlloc_v2(&words_, kCells * sizeof(uint64_t)));
    DO(cu.cuMemsetD8_v2(words_, 0, kCells * sizeof(uint64_t)));
    void* pinned = nullptr;
    DO(cu.cuMemHostAlloc(&pinned, kPinned * sizeof(uint64_t), 0));
    pinned_ = static_cast<uint64_t*>(pinned);
    void* const page = mmap(nullptr, kFlags * sizeof *flags_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    flags_ = static_cast<std::atomic<uint32_t>*>(page);
    DO(more.enlist(page, kFlags * sizeof *flags_, kHostRegisterPortable | kHostRegisterDeviceMap));
    DO(cu.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    streams_[kCreated] = CU_STREAM_LEGACY;
    streams_[kCreated + 1] = CU_STREAM_PER_THREAD;
    for (size_t i = 0; i < kCreated; ++i) create(i);
    for (size_t i = 0; i < kStreams; ++i) flag_of_[i] = next_flag_++;
    DO(cu.cuStreamCreate(&capturing_, CU_STREAM_NON_BLOCKING));
    DO(cu.cuStreamCreate(&branch_, CU_STREAM_NON_BLOCKING));
    for (Executable& e : graphs_) make(e);
  }

  void create(size_t i) {
    blocking_[i] = draw(2) == 0;
    DO(cu.cuStreamCreateWithPriority(&streams_[i], blocking_[i] ? 0 : 1,
                                     -static_cast<int>(draw(3))));
  }

  void compare(uint64_t found, uint64_t expected, const char* what) {
    digest_ = digest_ * kStateFactor + found;
    if (found == expected) return;
    right_ = false;
    fprintf(stderr, "operation %llu: %s is %016llx, not %016llx\n",
            static_cast<unsigned long long>(place->done.load()), what,
            static_cast<unsigned long long>(found), static_cast<unsigned long long>(expected));
  }

  // All is done, and what was read is looked at.
  void settle() {
    DO(cu.cuCtxSynchronize());
    for (const Read& read : reads_) compare(pinned_[read.pinned], read.value, "what was read");
    reads_.clear();
    next_pinned_ = 0;
  }
  size_t pinned(size_t count) {
    if (next_pinned_ + count > kPinned) settle();
    next_pinned_ += count;
    return next_pinned_ - count;
  }

  // ---- order ----

  bool in_order_anyhow(size_t one, size_t other) const {
    constexpr size_t kLegacy = kCreated;
    const auto blocks = [&](size_t i) { return i > kLegacy || blocking_[i]; };
    return (one == kLegacy && blocks(other)) || (other == kLegacy && blocks(one));
  }

  // What `to` gets from now on comes after all that `from` has.
  void follow(size_t from, size_t to) {
    if (from == to || (in_order_anyhow(from, to) && draw(2) == 0)) return;
    switch (draw(12)) {
      case 0:
        DO(cu.cuStreamSynchronize(streams_[from]));
        return;
      case 1:
        DO(cu.cuEventRecord(event_, streams_[from]));
        DO(cu.cuEventSynchronize(event_));
        return;
      case 2:
        while (cu.cuStreamQuery(streams_[from]) == CUDA_ERROR_NOT_READY) {
          place->call = "cuStreamQuery";
          usleep(50);
        }
        return;
      case 3:
        if (!habits_.writes_words()) break;
        DO(more.write(streams_[from], flag(from), ++passed_[from], 0));
        DO(more.wait(streams_[to], flag(from), passed_[from], CU_STREAM_WAIT_VALUE_GEQ));
        return;
      default:
        break;
    }
    DO(cu.cuEventRecord(event_, streams_[from]));
    DO(cu.cuStreamWaitEvent(streams_[to], event_, 0));
  }
  void use(size_t cell, size_t stream) {
    follow(cells_[cell].stream, stream);
    cells_[cell].stream = stream;
  }

  // ---- operations ----

  void launch(CUdeviceptr word, uint64_t value, CUstream stream) {
    constexpr unsigned kBlocks[] = {1, 1, 16, 132};
    uint32_t block_ns = 2'000 + draw(40'000);
    void* params[] = {&word, &block_ns, &value};
    DO(cu.cuLaunchKernel(spin, kBlocks[draw(4)], 1, 1, 128, 1, 1, 0, stream, params, nullptr));
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

  // The handle may be another stream's next, and its work goes on.
  void renew(size_t i) {
    const size_t heir = (i + 1) % kStreams;
    DO(cu.cuEventRecord(event_, streams_[i]));
    DO(cu.cuStreamWaitEvent(streams_[heir], event_, 0));
    for (Cell& cell : cells_) cell.stream = cell.stream == i ? heir : cell.stream;
    DO(cu.cuStreamDestroy_v2(streams_[i]));
    create(i);
    passed_[i] = 0;
    if (next_flag_ < kFlags) {
      flag_of_[i] = next_flag_++;
    } else {
      settle();
      flags_[flag_of_[i]] = 0;
    }
  }

  // A thread that launches into its own stream and ends; its work goes on.
  void another_thread() {
    const size_t cell = draw(kCells), heir = draw(kStreams);
    DO(cu.cuStreamSynchronize(streams_[cells_[cell].stream]));
    Place* const mine = place;
    std::vector<uint64_t> values(1 + draw(6));
    std::generate(values.begin(), values.end(), random_);
    std::thread([&] {
      place = mine;
      DO(cu.cuCtxSetCurrent(primary));
      for (const uint64_t value : values) launch(at(cell), value, CU_STREAM_PER_THREAD);
      DO(cu.cuEventRecord(event_, CU_STREAM_PER_THREAD));
    }).join();
    DO(cu.cuStreamWaitEvent(streams_[heir], event_, 0));
    cells_[cell].stream = heir;
    for (const uint64_t v : values) cells_[cell].value = cells_[cell].value * kStateFactor + v;
  }

  // Calls that wait for all that was launched.
  void free_something() {
    switch (draw(5)) {
      case 0: {
        CUdeviceptr memory = 0;
        DO(cu.cuMemAlloc_v2(&memory, 4096));
        DO(cu.cuMemFree_v2(memory));
        return;
      }
      case 1: {
        void* memory = nullptr;
        DO(cu.cuMemHostAlloc(&memory, 4096, 0));
        DO(more.free_host(memory));
        return;
      }
      case 2: {
        CUmodule module = nullptr;
        DO(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx));
        DO(cu.cuModuleUnload(module));
        return;
      }
      case 3: {
        CUarray array = nullptr;
        const CUDA_ARRAY_DESCRIPTOR floats{64, 64, 0x20, 1};
        DO(more.make_array(&array, &floats));
        DO(more.free_array(array));
        return;
      }
      default: {
        void* const memory = aligned_alloc(4096, 4096);
        DO(more.enlist(memory, 4096, 0));
        DO(more.strike(memory));
        free(memory);
      }
    }
  }

  // ---- graphs ----

  // In two branches now and then: the odd steps, if they use no word of the even ones.
  CUgraph capture(const std::vector<Step>& steps) {
    DO(cu.cuStreamBeginCapture_v2(capturing_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const auto meets = [&](size_t i, size_t j) {
      const Step &a = steps[i], &b = steps[j];
      return a.to == b.to || (a.kind == Step::kCopy && a.from == b.to) ||
             (b.kind == Step::kCopy && b.from == a.to);
    };
    bool forks = true;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (size_t j = i + 1; j < steps.size(); j += 2) forks = forks && !meets(i, j);
    }
    if (forks) {
      DO(cu.cuEventRecord(event_, capturing_));
      DO(cu.cuStreamWaitEvent(branch_, event_, 0));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      put(steps[i], forks && i % 2 == 1 ? branch_ : capturing_);
    }
    if (forks) {
      DO(cu.cuEventRecord(event_, branch_));
      DO(cu.cuStreamWaitEvent(capturing_, event_, 0));
    }
    CUgraph graph = nullptr;
    DO(cu.cuStreamEndCapture(capturing_, &graph));
    // An event of a capture is no event of a stream.
    DO(cu.cuEventDestroy_v2(event_));
    DO(cu.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
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

  std::mt19937_64 random_;
  const Habits habits_;
  CUdeviceptr words_ = 0;
  uint64_t* pinned_ = nullptr;
  size_t next_pinned_ = 0;
  std::atomic<uint32_t>* flags_ = nullptr;
  size_t next_flag_ = 1;  // the first is the host's
  size_t flag_of_[kStreams] = {};
  uint32_t passed_[kStreams] = {};  // what a stream's flag gets next, less one
  CUstream streams_[kStreams] = {};
  bool blocking_[kCreated] = {};
  CUstream capturing_ = nullptr, branch_ = nullptr;
  CUevent event_ = nullptr;
  Cell cells_[kCells];
  std::vector<Read> reads_;
  Executable graphs_[kGraphs];
  uint64_t digest_ = 0, launches_ = 0;
  bool right_ = true;
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
    most += page->released[0] % ipc::kGateAhead;
  }
  if (maps != nullptr) fclose(maps);
  return most;
}

int run(const Options& options) {
  cu = Driver::load();
  more.load();
  printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  watch(options.threads, options.patience_s);
  DO(cu.cuInit(0));
  DO(cu.cuDevicePrimaryCtxRetain(&primary, 0));
  DO(cu.cuCtxSetCurrent(primary));
  CUmodule module = nullptr;
  DO(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx));
  DO(cu.cuModuleGetFunction(&spin, module, "heddle_spin"));
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  std::atomic<bool> right{true};
  for (uint64_t i = 0; i < options.threads; ++i) {
    workers.push_back(
        std::make_unique<Worker>(options.seed * kThreadsMost + i, Habits(options.seed)));
    threads.emplace_back([&, i] {
      place = &places[i];
      DO(cu.cuCtxSetCurrent(primary));
      if (!workers[i]->run(options.operations)) right = false;
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
