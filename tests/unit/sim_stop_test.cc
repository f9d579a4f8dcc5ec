// What the simulated driver asks of its kernel, seen through its import of `ioctl` as the shim sees
// it, and a process's own channels off and on.
#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "bench/sim/wire.h"
#include "shim/driver/import.h"
#include "shim/driver/rm_api.h"
#include "tests/unit/sim_gate_program.h"

namespace heddle::sim {
namespace {

using Ioctl = int (*)(int, unsigned long, void*);

struct Seen {
  rm::Handle handle, parent;
  uint32_t of_class;
  uint32_t engine = 0;
};
Ioctl next_ioctl = nullptr;
std::vector<Seen> seen;
std::vector<rm::Handle> freed;
int descriptor = -1;
rm::Handle client = 0;

int look(int fd, unsigned long request, void* argument) {
  const int result = next_ioctl(fd, request, argument);
  EXPECT_EQ(result, 0);
  // Both sizes begin alike.
  const auto& alloc = *static_cast<const rm::Alloc*>(argument);
  if (_IOC_NR(request) == rm::kAlloc) {
    Seen made{alloc.object, alloc.parent, alloc.of_class};
    if (made.of_class == rm::kRootClient) {
      descriptor = fd;
      client = alloc.object;
    }
    if (made.of_class == rm::kChannelGroup) {
      made.engine = reinterpret_cast<const rm::GroupParameters*>(alloc.parameters)->engine;
    }
    seen.push_back(made);
  }
  if (_IOC_NR(request) == rm::kFree) freed.push_back(static_cast<rm::Free*>(argument)->object);
  return result;
}

size_t count(uint32_t of_class) {
  return static_cast<size_t>(std::count_if(
      seen.begin(), seen.end(), [&](const Seen& made) { return made.of_class == of_class; }));
}
rm::Handle the(uint32_t of_class) {
  const auto found = std::find_if(seen.begin(), seen.end(),
                                  [&](const Seen& made) { return made.of_class == of_class; });
  return found != seen.end() ? found->handle : 0;
}
Seen compute_group() {
  const auto found = std::find_if(seen.begin(), seen.end(), [](const Seen& made) {
    return made.of_class == rm::kChannelGroup && rm::is_compute(made.engine);
  });
  return found != seen.end() ? *found : Seen{};
}
std::vector<rm::Handle> compute_channels() {
  std::vector<rm::Handle> channels;
  for (const Seen& made : seen) {
    if (rm::is_channel(made.of_class) && made.parent == compute_group().handle)
      channels.push_back(made.handle);
  }
  return channels;
}

template <class Parameters>
rm::Control control_of(rm::Handle object, uint32_t command, Parameters& parameters) {
  return {
      client,    object, command, 0, reinterpret_cast<uintptr_t>(&parameters), sizeof parameters,
      0xffffffff};
}
// The status, by the saved entry.
template <class Request>
uint32_t ask(rm::Escape escape, Request request, int fd = descriptor) {
  EXPECT_EQ(next_ioctl(fd, rm::request_of<Request>(escape), &request), 0);
  return request.status;
}
rm::DisableChannels all_channels(bool disable) {
  rm::DisableChannels list{};
  list.disable = disable;
  for (const rm::Handle channel : compute_channels()) {
    list.clients[list.count] = client;
    list.channels[list.count++] = channel;
  }
  return list;
}
uint32_t turn_channels(rm::DisableChannels list) {
  return ask(rm::kControl, control_of(the(rm::kSubdevice), rm::kDisableChannels, list));
}
uint32_t off() { return turn_channels(all_channels(true)); }
uint32_t on() { return turn_channels(all_channels(false)); }

// As the shim does: before the first call of the driver.
void patch() {
  void* driver = dlopen(HEDDLE_SIM_DIR "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  void** places[8];
  const size_t found = shim::find_imports(dlsym(driver, "cuInit"), "ioctl", places, 8);
  ASSERT_GT(found, 0U);
  ASSERT_LE(found, 8U);
  for (size_t i = 0; i < found; ++i) {
    next_ioctl = reinterpret_cast<Ioctl>(*places[i]);
    ASSERT_TRUE(shim::replace_import(places[i], reinterpret_cast<void*>(&look)));
  }
}

void launch_for(Program& program, std::chrono::nanoseconds time) {
  auto state = reinterpret_cast<CUdeviceptr>(&program.done[0]);
  auto block_ns = static_cast<uint32_t>(time.count());
  uint64_t value = 1;
  void* params[] = {&state, &block_ns, &value};
  ASSERT_EQ(program.cu.cuLaunchKernel(program.spin, 132, 1, 1, 1024, 1, 1, 0, program.streams[0],
                                      params, nullptr),
            CUDA_SUCCESS);
}

// One GPU for processes that come one after the other or together.
class SimStopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HEDDLE_SIM_SOCKET", (folder_.path() + "/gpu.sock").c_str(), 1);
    setenv("HEDDLE_SIM_LOG", log_.c_str(), 1);
    setenv("HEDDLE_SIM_MODE", "timeslice", 1);
  }
  void TearDown() override {
    for (const char* name : {"HEDDLE_SIM_SOCKET", "HEDDLE_SIM_LOG", "HEDDLE_SIM_MODE"})
      unsetenv(name);
  }
  pid_t start(const std::function<void(Program&)>& body) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(60);  // of what stands for ever
    patch();
    Program program;
    program.open();
    body(program);
    fflush(stdout);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  static void expect_success(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  // How long the process's kernel was on the GPU, by the model's clock; it is logged at its end.
  double kernel_ms(pid_t pid) {
    double ms = -1;
    soon([&] {
      std::ifstream log(log_);
      for (std::string line; ms < 0 && std::getline(log, line);) {
        const auto number = [&](const char* key) {
          const size_t at = line.find(key);
          return at != std::string::npos ? std::stoll(line.substr(at + strlen(key))) : -1;
        };
        if (log.eof() || number("\"pid\":") != pid || number("\"end_ns\":") < 0) continue;
        ms = static_cast<double>(number("\"end_ns\":") - number("\"start_ns\":")) / 1e6;
      }
      return ms >= 0;
    });
    return ms;
  }

  const TestFolder folder_;
  const std::string log_ = folder_.path() + "/log.json";
};

TEST_F(SimStopTest, AContextMakesTheObjectsOfARealOneAndItsEndFreesThem) {
  expect_success(start([](Program&) {
    EXPECT_EQ(count(rm::kRootClient), 1U);
    EXPECT_EQ(count(rm::kDevice), 1U);
    EXPECT_EQ(count(rm::kSubdevice), 1U);
    EXPECT_EQ(count(rm::kChannelGroup), 4U);
    EXPECT_EQ(count(0xc86f), 20U);
    EXPECT_EQ(compute_channels().size(), 8U);
    rm::Timeslice slice{};
    const rm::Handle group = compute_group().handle;
    EXPECT_EQ(ask(rm::kControl, control_of(group, rm::kGetTimeslice, slice)), 0U);
    EXPECT_EQ(slice.us, 2048U);
    slice.us = 300;
    EXPECT_EQ(ask(rm::kControl, control_of(group, rm::kSetTimeslice, slice)), 0U);
    slice.us = 0;
    EXPECT_EQ(ask(rm::kControl, control_of(group, rm::kGetTimeslice, slice)), 0U);
    EXPECT_EQ(slice.us, 300U);

    CUcontext second = nullptr;
    const auto create = symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    ASSERT_EQ(create(&second, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(count(rm::kRootClient), 1U);
    EXPECT_EQ(count(rm::kChannelGroup), 8U);
    EXPECT_EQ(symbol<CUresult(CUcontext)>("cuCtxDestroy_v2")(second), CUDA_SUCCESS);
    EXPECT_EQ(freed.size(), 4U);
    EXPECT_EQ(off(), 0U);
    EXPECT_EQ(on(), 0U);
    EXPECT_EQ(symbol<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0), CUDA_SUCCESS);
    EXPECT_EQ(off(), 0x57U);  // the channels went with their groups
  }));
}

TEST_F(SimStopTest, TheKernelRefusesWhatARealOneWould) {
  expect_success(start([](Program&) {
    rm::Timeslice slice{};
    const rm::Control get = control_of(compute_group().handle, rm::kGetTimeslice, slice);
    rm::Control request = get;
    request.object = 0x1234;
    EXPECT_EQ(ask(rm::kControl, request), 0x57U);
    request = get;
    request.client = 0x1234;
    EXPECT_NE(ask(rm::kControl, request), 0U);
    request = get;
    request.command = 0xa06c0199;
    EXPECT_EQ(ask(rm::kControl, request), 0x56U);
    EXPECT_NE(ask(rm::kControl, get, open("/dev/null", O_RDWR | O_CLOEXEC)), 0U);
    request = get;
    EXPECT_EQ(next_ioctl(-1, rm::request_of<rm::Control>(rm::kControl), &request), -1);
    rm::DisableChannels list = all_channels(true);
    list.channels[7] = 0x1234;
    EXPECT_EQ(turn_channels(list), 0x57U);
    list = all_channels(true);
    list.clients[7] = client + 1;
    EXPECT_NE(turn_channels(list), 0U);

    // The same request within another.
    request = get;
    rm::Transfer wrapped{rm::kControl, sizeof request, reinterpret_cast<uintptr_t>(&request)};
    EXPECT_EQ(next_ioctl(descriptor, rm::request_of<rm::Transfer>(rm::kTransfer), &wrapped), 0);
    EXPECT_EQ(request.status, 0U);
    EXPECT_EQ(slice.us, 2048U);

    const pid_t child = fork();
    if (child == 0) _exit(static_cast<int>(off()));
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0x1B);
  }));
}

TEST_F(SimStopTest, ADriverWithoutStopsSaysSo) {
  setenv("HEDDLE_SIM_STOPS", "0", 1);
  expect_success(start([](Program&) { EXPECT_EQ(off(), 0x56U); }));
  unsetenv("HEDDLE_SIM_STOPS");
}

TEST_F(SimStopTest, AKernelStandsWhileItsChannelsAreOffAndOthersAreAsIfAlone) {
  int turn[2], back[2];
  ASSERT_EQ(pipe2(turn, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(back, O_CLOEXEC), 0);
  char byte = 0;
  const pid_t high = start([&](Program& program) {
    ASSERT_EQ(read(turn[0], &byte, 1), 1);
    launch_for(program, milliseconds(450));
    EXPECT_EQ(program.cu.cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(program.ran(0, 1));
    ASSERT_EQ(write(back[1], &byte, 1), 1);
  });
  const pid_t low = start([&](Program& program) {
    launch_for(program, milliseconds(400));
    EXPECT_EQ(off(), 0U);
    ASSERT_EQ(write(turn[1], &byte, 1), 1);
    ASSERT_EQ(read(back[0], &byte, 1), 1);
    EXPECT_TRUE(program.ran(0, 0));
    EXPECT_EQ(on(), 0U);
    EXPECT_EQ(program.cu.cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(program.ran(0, 1));
  });
  expect_success(high);
  expect_success(low);
  EXPECT_NEAR(kernel_ms(high), 450, 0.001);
  EXPECT_GT(kernel_ms(low), 400 + 450);
  for (const int fd : {turn[0], turn[1], back[0], back[1]}) close(fd);
}

// The driver's lock is one, whoever calls.
TEST_F(SimStopTest, CallsOfSeveralProcessesFollowEachOther) {
  constexpr int kProcesses = 3, kCalls = 30;
  struct Calls {
    int64_t begin, end;
  };
  int turn[2], back[2];
  ASSERT_EQ(pipe2(turn, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(back, O_CLOEXEC), 0);
  pid_t processes[kProcesses];
  for (pid_t& process : processes) {
    process = start([&](Program&) {
      Calls calls{};
      ASSERT_EQ(write(back[1], &calls, sizeof calls), ssize_t{sizeof calls});
      char byte;
      ASSERT_EQ(read(turn[0], &byte, 1), 1);
      calls.begin = monotonic_ns();
      for (int i = 0; i < kCalls; ++i) EXPECT_EQ(off(), 0U);
      calls.end = monotonic_ns();
      ASSERT_EQ(write(back[1], &calls, sizeof calls), ssize_t{sizeof calls});
    });
  }
  Calls calls{};
  for (int i = 0; i < kProcesses; ++i)
    ASSERT_EQ(read(back[0], &calls, sizeof calls), ssize_t{sizeof calls});
  ASSERT_EQ(write(turn[1], "ooo", kProcesses), kProcesses);
  int64_t begin = INT64_MAX, end = 0;
  for (int i = 0; i < kProcesses; ++i) {
    ASSERT_EQ(read(back[0], &calls, sizeof calls), ssize_t{sizeof calls});
    begin = std::min(begin, calls.begin);
    end = std::max(end, calls.end);
  }
  EXPECT_GE(end - begin, kProcesses * kCalls * facts::kStopCallNs);
  for (const pid_t process : processes) expect_success(process);
  for (const int fd : {turn[0], turn[1], back[0], back[1]}) close(fd);
}

TEST_F(SimStopTest, WhoeverDiesStoppedLeavesTheGpuAsItWas) {
  const pid_t dying = start([](Program& program) {
    launch_for(program, milliseconds(4000));
    EXPECT_EQ(off(), 0U);
    kill(getpid(), SIGKILL);
  });
  int status = -1;
  waitpid(dying, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const pid_t next = start([](Program& program) {
    launch_for(program, milliseconds(10));
    EXPECT_EQ(program.cu.cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(program.ran(0, 1));
  });
  expect_success(next);
  EXPECT_NEAR(kernel_ms(next), 10, 0.001);
}

}  // namespace
}  // namespace heddle::sim
