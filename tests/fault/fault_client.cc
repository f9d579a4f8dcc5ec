// An application of the campaign: some threads, each with a stream and a word of device memory that
// every kernel steps. A launch that is lost, doubled or out of order leaves a wrong word.
//
//   fault_client INDEX SEED THREADS LAUNCHES MS     (board.h on descriptor kBoardFd)
//
// Then each thread launches for MS more at the pace of a launch-bound program: the GPU is done with
// each kernel before the next comes.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "bench/workloads/driver.h"
#include "tests/fault/board.h"

namespace heddle::fault {
namespace {

using workloads::Driver;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ClientNote* note;
Driver driver;
CUcontext context;
CUfunction spin;
CUdeviceptr words;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "fault_client: %s: error %d\n", what, result);
  _exit(1);
}

// A thread may end inside a launch: then whether that one ran is not known, and both words are
// right.
struct Worker {
  pthread_t thread{};
  uint64_t seed = 0;
  uint64_t index = 0;
  int launches = 0;
  int64_t paced_ns = 0;
  CUdeviceptr word = 0;
  CUstream stream = nullptr;
  uint64_t expected = 0;  // after all launches that returned
  uint64_t possible = 0;  // after the one in hand as well
  bool done = false;
};

void launch(Worker& worker, uint32_t block_ns) {
  ThreadNote& own = note->threads[worker.index];
  uint64_t value = launch_id(worker.index, own.attempted + 1);
  void* params[] = {&worker.word, &block_ns, &value};
  worker.possible = worker.expected * workloads::kStateFactor + value;
  own.attempted.fetch_add(1);
  const int64_t start = now_ns();
  check(driver.cuLaunchKernel(spin, 1, 1, 1, 128, 1, 1, 0, worker.stream, params, nullptr),
        "cuLaunchKernel");
  const int64_t took = now_ns() - start;
  own.launched.fetch_add(1);
  worker.expected = worker.possible;
  for (int64_t seen = note->longest_ns; seen < took;) {
    if (note->longest_ns.compare_exchange_weak(seen, took)) break;
  }
}

// Bursts between waits.
void pace(Worker& worker) {
  constexpr int kBurst = 40;
  constexpr uint32_t kBlockNs = 2'000;
  constexpr int64_t kPaceNs = 12'000;
  for (const int64_t until = now_ns() + worker.paced_ns; now_ns() < until;) {
    for (int i = 0; i < kBurst; ++i) {
      const int64_t next = now_ns() + kPaceNs;
      launch(worker, kBlockNs);
      while (now_ns() < next) {
      }
    }
    check(driver.cuStreamSynchronize(worker.stream), "cuStreamSynchronize");
  }
}

void* work(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  std::mt19937_64 random(worker.seed);
  check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(driver.cuStreamCreate(&worker.stream, 1), "cuStreamCreate");
  for (int i = 0; i < worker.launches; ++i) {
    launch(worker, static_cast<uint32_t>(2'000 + random() % 60'000));
    if (random() % 6 == 0) check(driver.cuStreamSynchronize(worker.stream), "cuStreamSynchronize");
    if (random() % 8 == 0) usleep(static_cast<useconds_t>(random() % 2'000));
  }
  check(driver.cuStreamSynchronize(worker.stream), "cuStreamSynchronize");
  pace(worker);
  if (random() % 2 == 0) check(driver.cuStreamDestroy_v2(worker.stream), "cuStreamDestroy");
  worker.done = true;
  return nullptr;
}

// Forks whenever a fault point asks for it. The child has no CUDA; its launch must neither hang nor
// touch what its parent shares with the daemon.
void* fork_on_demand(void*) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  for (int number; sigwait(&wanted, &number) == 0;) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      void* params[] = {nullptr, nullptr, nullptr};
      const CUresult result =
          driver.cuLaunchKernel(spin, 1, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr);
      _exit(result == CUDA_SUCCESS ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    (WIFEXITED(status) && WEXITSTATUS(status) == 0 ? note->forked : note->fork_hangs).fetch_add(1);
  }
  return nullptr;
}

void start(uint32_t index) {
  void* board = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, kBoardFd, 0);
  if (board == MAP_FAILED || index >= kClients) _exit(2);
  note = &static_cast<Board*>(board)->clients[index];
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  pthread_t forker;
  pthread_create(&forker, nullptr, fork_on_demand, nullptr);
  driver = Driver::load();
  CUdevice device;
  CUmodule module;
  check(driver.cuInit(0), "cuInit");
  check(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
  check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(driver.cuModuleLoadData(&module, workloads::heddle_demo_ptx), "cuModuleLoadData");
  check(driver.cuModuleGetFunction(&spin, module, "heddle_spin"), "cuModuleGetFunction");
}

int run(uint64_t seed, int threads, int launches, int paced_ms) {
  std::vector<Worker> workers(static_cast<size_t>(threads));
  check(driver.cuMemAlloc_v2(&words, workers.size() * sizeof(uint64_t)), "cuMemAlloc");
  check(driver.cuMemsetD8_v2(words, 0, workers.size() * sizeof(uint64_t)), "cuMemset");
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].seed = seed + i;
    workers[i].index = i;
    workers[i].launches = launches;
    workers[i].paced_ns = int64_t{paced_ms} * 1'000'000;
    workers[i].word = words + i * sizeof(uint64_t);
    pthread_create(&workers[i].thread, nullptr, work, &workers[i]);
  }
  for (Worker& worker : workers) pthread_join(worker.thread, nullptr);
  check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  for (const Worker& worker : workers) {
    uint64_t found = 0;
    check(driver.cuMemcpyDtoH_v2(&found, worker.word, sizeof found), "cuMemcpyDtoH");
    if (!worker.done) note->ended.fetch_add(1);
    if (found != worker.expected && (worker.done || found != worker.possible)) {
      fprintf(stderr, "fault_client: a thread's word is %llx, not %llx\n",
              static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(worker.expected));
      note->wrong.fetch_add(1);
    }
  }
  note->finished.fetch_add(1);
  char end;
  (void)!read(STDIN_FILENO, &end, 1);  // stays until it closes
  return 0;
}

}  // namespace
}  // namespace heddle::fault

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  heddle::fault::start(static_cast<uint32_t>(atoi(argv[1])));
  return heddle::fault::run(strtoull(argv[2], nullptr, 10), atoi(argv[3]), atoi(argv[4]),
                            atoi(argv[5]));
}
