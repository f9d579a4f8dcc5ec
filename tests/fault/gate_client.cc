// A program that queues launches and does one thing more, as its standard input says:
//
//   warm          its kernel runs until a prediction is known, and all is done
//   warm_long     the same of its long kernel
//   warm_meeting  the same of a kernel that waits for its peers, and of one behind it
//   queue N S     N launches into S streams in turns, by a thread of its own: answered at once
//   posted        how many of them the driver has
//   join NAME     three long launches, by that thread: the last one's stream has the first, and
//                 waits for the second, by one of kJoins; answered at once
//   settle        waits for all; "right" or "wrong"
//   call NAME     one of kWaitingCalls, by this thread; "done" when it returned
//   leave NAME    one of kWays to end, with what is queued
//   lie NAME      one of kLies; "done"
//
// Each command is answered by one line. A stream's word depends on the order of its launches.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ipc/gate.h"
#include "ipc/layout.h"
#include "tests/fault/gate_program.h"

namespace heddle::fault {
namespace {

constexpr size_t kStreams = 16;
constexpr size_t kBlocking = kStreams - 2, kLegacy = kStreams - 1;  // others do not block
// Each is a kernel of its own by its blocks.
struct Length {
  uint32_t ns;
  unsigned blocks;
};
constexpr Length kShort{20'000, 1}, kLong{50'000'000, 2}, kUnit{1'000'000, 3};

struct Words {
  CUdeviceptr at = 0;
  CUstream streams[kStreams] = {};
  uint64_t expected[kStreams] = {};
  uint64_t launches = 0;

  void begin() {
    DO(cu.cuMemAlloc_v2(&at, sizeof expected));
    DO(cu.cuMemsetD8_v2(at, 0, sizeof expected));
    for (CUstream& stream : streams) DO(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cu.cuStreamCreate(&streams[kBlocking], 0));
    streams[kLegacy] = CU_STREAM_LEGACY;
  }
  void launch(size_t i, Length length = kShort) {
    CUdeviceptr word = at + i * sizeof(uint64_t);
    uint32_t block_ns = length.ns;
    uint64_t value = ++launches;
    void* params[] = {&word, &block_ns, &value};
    DO(cu.cuLaunchKernel(spin, length.blocks, 1, 1, 128, 1, 1, 0, streams[i], params, nullptr));
    expected[i] = expected[i] * kStateFactor + value;
  }
  bool right() {
    DO(cu.cuCtxSynchronize());
    uint64_t found[kStreams] = {};
    DO(cu.cuMemcpyDtoH_v2(found, at, sizeof found));
    return memcmp(found, expected, sizeof found) == 0;
  }
} words;

std::thread& queuing = *new std::thread;  // no end of the process is to end it
std::atomic<unsigned> posted{0};

void queue(unsigned launches, unsigned streams) {
  posted = 0;
  queuing = std::thread([=] {
    DO(cu.cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < launches; ++i) {
      words.launch(i % streams);
      ++posted;
    }
  });
}

void warm() {
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 5; ++i) words.launch(0);
    DO(cu.cuStreamSynchronize(words.streams[0]));
  }
}

void warm_long() {
  for (int round = 0; round < 5; ++round) {
    words.launch(0, kLong);
    DO(cu.cuStreamSynchronize(words.streams[0]));
  }
}

// Runs until `ranks` launches of that meeting do. Simulated only.
void meet(size_t stream, uint32_t ranks, uint64_t meeting) {
  static const CUfunction kernel = [] {
    CUmodule module = nullptr;
    CUfunction found = nullptr;
    DO(cu.cuModuleLoadData(&module,
                           ".version 7.0\n.target sm_90\n.address_size 64\n"
                           ".visible .entry heddle_meet(.param .u64 m, .param .u32 r)\n"
                           "{ ret; }\n"));
    DO(cu.cuModuleGetFunction(&found, module, "heddle_meet"));
    return found;
  }();
  void* params[] = {&meeting, &ranks};
  DO(cu.cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, words.streams[stream], params, nullptr));
}

void warm_meeting() {
  for (uint64_t round = 0; round < 10; ++round) {
    meet(0, 1, round);
    words.launch(0, kUnit);
    DO(cu.cuStreamSynchronize(words.streams[0]));
  }
}

// ---- joins ----

void join(void (*how)()) {
  queuing = std::thread([=] {
    DO(cu.cuCtxSetCurrent(primary));
    how();
  });
}
void join_by_event() {
  CUevent event = nullptr;
  DO(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  words.launch(0, kLong);
  words.launch(1, kLong);
  DO(cu.cuEventRecord(event, words.streams[1]));
  DO(cu.cuStreamWaitEvent(words.streams[0], event, 0));
  words.launch(0, kLong);
}
void join_by_value() {
  static std::atomic<uint32_t>* const flag = [] {
    void* const page = aligned_alloc(kPage, kPage);
    DO(more.enlist(page, kPage, kHostRegisterPortable | kHostRegisterDeviceMap));
    return new (page) std::atomic<uint32_t>{0};
  }();
  words.launch(0, kLong);
  DO(more.wait(words.streams[0], address(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  words.launch(1, kLong);
  DO(cu.cuStreamSynchronize(words.streams[1]));
  *flag = 1;
  words.launch(0, kLong);
}
// Of a kernel that runs: what it waits for comes behind another unit of its stream.
void join_by_meeting() {
  static uint64_t meetings = 1000;
  meet(0, 2, ++meetings);
  words.launch(0, kUnit);
  meet(1, 2, meetings);
}
void join_by_rule(size_t one, size_t other) {
  for (const size_t stream : {one, other, one}) words.launch(stream, kLong);
}

// ---- ways to end ----

void fork_and_end(bool launches) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    void* params[] = {nullptr, nullptr, nullptr};
    const bool refused = !launches || cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, params,
                                                        nullptr) != CUDA_SUCCESS;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  queuing.join();
  puts(status == 0 && words.right() ? "right" : "wrong");
}

// A stream's own thread is gone before its work has run.
void end_thread() {
  queuing.join();
  puts(words.right() ? "right" : "wrong");
}

void destroy_context() {
  CUcontext context = nullptr;
  DO(cu.cuCtxCreate_v2(&context, 0, 0));
  CUmodule module = nullptr;
  CUfunction own = nullptr;
  DO(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx));
  DO(cu.cuModuleGetFunction(&own, module, "heddle_spin"));
  CUdeviceptr none = 0;
  uint32_t block_ns = 20'000;
  uint64_t value = 1;
  void* params[] = {&none, &block_ns, &value};
  for (int i = 0; i < 50; ++i) {
    DO(cu.cuLaunchKernel(own, 1, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr));
  }
  DO(cu.cuCtxDestroy_v2(context));
  queuing.join();
  DO(cu.cuCtxSetCurrent(primary));
  puts(words.right() ? "right" : "wrong");
}

void reset() {
  queuing.join();
  DO(symbol<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0));
  puts("right");
}

void execute() {
  execl("/bin/true", "true", nullptr);
  _exit(1);
}

// ---- lies ----

void* mapped(const char* name) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long begin = 0;
  while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr) {
    if (strstr(line, name) != nullptr) sscanf(line, "%lx", &begin);
  }
  fclose(maps);
  return reinterpret_cast<void*>(begin);
}

void break_ring() {
  auto* const memory = static_cast<ipc::ClientMemory*>(mapped("/memfd:heddle-client"));
  memory->threads[0].ring_head += 10 * ipc::kRingRecords;
}

constexpr Named kWays[] = {{"exit", [] { exit(0); }},
                           {"_exit", [] { _exit(0); }},
                           {"destroy_context", destroy_context},
                           {"reset", reset},
                           {"fork", [] { fork_and_end(false); }},
                           {"fork_and_launch", [] { fork_and_end(true); }},
                           {"exec", execute},
                           {"thread", end_thread}};
constexpr Named kJoins[] = {{"event", [] { join(join_by_event); }},
                            {"value", [] { join(join_by_value); }},
                            {"meeting", [] { join(join_by_meeting); }},
                            {"into_legacy", [] { join([] { join_by_rule(kBlocking, kLegacy); }); }},
                            {"of_legacy", [] { join([] { join_by_rule(kLegacy, kBlocking); }); }}};
constexpr Named kLies[] = {{"ring", break_ring}};

template <size_t kCount>
void run(const Named (&all)[kCount], const char* name) {
  for (const Named& one : all) {
    if (strcmp(one.name, name) == 0) return one.run();
  }
  puts("unknown");
}

void obey(const char* line) {
  char name[64] = {};
  unsigned launches = 0, streams = 1;
  if (sscanf(line, "queue %u %u", &launches, &streams) >= 1) {
    queue(launches, streams);
    puts("done");
  } else if (strncmp(line, "warm_long", 9) == 0) {
    warm_long();
    puts("done");
  } else if (strncmp(line, "warm_meeting", 12) == 0) {
    warm_meeting();
    puts("done");
  } else if (strncmp(line, "warm", 4) == 0) {
    warm();
    puts("done");
  } else if (strncmp(line, "posted", 6) == 0) {
    printf("%u\n", posted.load());
  } else if (strncmp(line, "settle", 6) == 0) {
    if (queuing.joinable()) queuing.join();
    puts(words.right() ? "right" : "wrong");
  } else if (sscanf(line, "call %63s", name) == 1) {
    run(kWaitingCalls, name);
    puts("done");
  } else if (sscanf(line, "join %63s", name) == 1) {
    run(kJoins, name);
    puts("done");
  } else if (sscanf(line, "lie %63s", name) == 1) {
    run(kLies, name);
    puts("done");
  } else if (sscanf(line, "leave %63s", name) == 1) {
    run(kWays, name);
  }
}

}  // namespace
}  // namespace heddle::fault

int main() {
  using namespace heddle::fault;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  begin();
  words.begin();
  char line[256];
  while (fgets(line, sizeof line, stdin) != nullptr) obey(line);
  if (queuing.joinable()) queuing.join();
  return 0;
}
