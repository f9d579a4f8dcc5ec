// Launches through the installed shim beside direct ones, in one process: shim and simulated driver
// are both loaded by path, and calls alternate between them. The daemon is a process of its own.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <thread>

#include "bench/micro.h"
#include "ipc/socket.h"
#include "shim/driver/driver_api.h"

namespace heddle::bench {
namespace {

constexpr const char* kPtx =
    ".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry heddle_null()\n{ ret; }\n";

constexpr int kCrowd = 16;        // gated clients at once
constexpr uint32_t kBatch = 64;   // launches between two synchronizations: far below a ring
constexpr uint32_t kDepth = 512;  // the same, where synchronizations cost below one percent

[[noreturn]] void give_up(const std::string& what) { throw std::runtime_error(what); }

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) give_up(std::string(call) + " failed: " + std::to_string(result));
}

// The few entry points that are measured, of one object.
struct Driver {
  explicit Driver(const std::string& path) : object(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (object == nullptr) give_up(std::string(dlerror()) + "; run from an installed tree (dist/)");
    load(init, "cuInit");
    load(device_get, "cuDeviceGet");
    load(context_create, "cuCtxCreate_v2");
    load(module_load, "cuModuleLoadData");
    load(get_function, "cuModuleGetFunction");
    load(launch, "cuLaunchKernel");
    load(synchronize, "cuCtxSynchronize");
    load(context_current, "cuCtxGetCurrent");
    load(context_set, "cuCtxSetCurrent");
    load(stream_create, "cuStreamCreate");
    load(stream_synchronize, "cuStreamSynchronize");
    load(stream_destroy, "cuStreamDestroy_v2");
  }

  template <class F>
  void load(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(object, name));
    if (function == nullptr) give_up(std::string(name) + ": not in the driver");
  }

  CUfunction prepare() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    check(init(0), "cuInit");
    check(device_get(&device, 0), "cuDeviceGet");
    check(context_create(&context, 0, device), "cuCtxCreate");
    check(module_load(&module, kPtx), "cuModuleLoadData");
    check(get_function(&kernel, module, "heddle_null"), "cuModuleGetFunction");
    return kernel;
  }

  void launch_null(CUfunction kernel, CUstream stream = nullptr) const {
    check(launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
  }

  void* object;
  CUresult (*init)(unsigned);
  CUresult (*device_get)(CUdevice*, int);
  CUresult (*context_create)(CUcontext*, unsigned, CUdevice);
  CUresult (*module_load)(CUmodule*, const void*);
  CUresult (*get_function)(CUfunction*, CUmodule, const char*);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void**, void**);
  CUresult (*synchronize)();
  CUresult (*context_current)(CUcontext*);
  CUresult (*context_set)(CUcontext);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_synchronize)(CUstream);
  CUresult (*stream_destroy)(CUstream);
};

template <class Body>
double time_ns(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

// `shim - direct` per call, over rounds that take turns in who is first.
template <class Shim, class Direct, class Between>
std::vector<double> alternate(uint32_t rounds, uint32_t batch, Shim&& shim, Direct&& direct,
                              Between&& between) {
  std::vector<double> differences;
  const auto many = [&](auto& call) {
    const double ns = time_ns([&] {
      for (uint32_t i = 0; i < batch; ++i) call();
    });
    between();
    return ns / batch;
  };
  for (uint32_t round = 0; round < rounds; ++round) {
    const bool shim_first = round % 2 == 0;
    const double first = shim_first ? many(shim) : many(direct);
    const double second = shim_first ? many(direct) : many(shim);
    differences.push_back(shim_first ? first - second : second - first);
  }
  return differences;
}

// heddled with the policy above, and the simulated GPU's socket, in a folder that goes with it.
class Daemon {
 public:
  // `report`: "each", or which records a client is spared.
  Daemon(const std::string& driver, const std::string& report) {
    char name[] = "/tmp/heddle-bench-XXXXXX";
    if (mkdtemp(name) == nullptr) give_up("/tmp: cannot be written");
    folder_ = name;
    socket_ = folder_ + "/heddled";
    std::ofstream(folder_ + "/gate.lua") << kGatePolicy;
    std::ofstream(folder_ + "/heddled.toml")
        << "[daemon]\nsocket = \"" << socket_ << "\"\nlog_level = \"error\"\n"
        << "report = \"" << report << "\"\n[policy]\nname = \"gate\"\ndirectory = \"" << folder_
        << "\"\n[profiles]\nkeep = false\n";
    setenv(ipc::kSocketEnv, socket_.c_str(), 1);
    setenv("HEDDLE_SIM_SOCKET", (folder_ + "/gpu").c_str(), 1);
    setenv("HEDDLE_SIM_MODE", "mps", 1);
    setenv("HEDDLE_REAL_LIBCUDA", driver.c_str(), 1);
    start();
  }
  ~Daemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // This process, as `heddle ps` shows it; null if it is not attached.
  static nlohmann::json client() {
    FILE* pipe = popen((dist() + "/bin/heddle ps --json").c_str(), "r");
    if (pipe == nullptr) give_up("heddle ps: cannot be started");
    std::string text;
    char part[4096];
    while (size_t got = fread(part, 1, sizeof part, pipe)) text.append(part, got);
    pclose(pipe);
    const auto answer = nlohmann::json::parse(text, nullptr, false);
    if (!answer.is_object()) give_up("heddle ps: " + text);
    for (const nlohmann::json& client : answer["clients"]) {
      if (client["pid"] == getpid()) return client;
    }
    return nullptr;
  }

 private:
  void start() {
    const std::string program = dist() + "/bin/heddled", config = folder_ + "/heddled.toml";
    pid_ = fork();
    if (pid_ == 0) {
      execl(program.c_str(), program.c_str(), "--config", config.c_str(), nullptr);
      _exit(127);
    }
    for (int tries = 0; tries < 500; ++tries) {
      const int connection = ipc::connect_socket(socket_.c_str(), 0);
      if (connection >= 0) {
        close(connection);
        return;
      }
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    give_up(program + ": did not start; try it with --config " + config);
  }

  std::string folder_, socket_;
  pid_t pid_ = -1;
};

// Shim and driver in this process.
struct Pair {
  Pair()
      : shim(dist() + "/lib/heddle/libcuda.so.1"),
        direct(getenv("HEDDLE_REAL_LIBCUDA")),
        kernel(shim.prepare()) {
    // Warm: the client is attached, the kernel known, the ring in use.
    for (uint32_t i = 0; i < 10 * kBatch; ++i) {
      shim.launch_null(kernel);
      if (i % kBatch == 0) shim.synchronize();
    }
  }
  // Attached to the daemon at `priority`.
  static Pair attached(const char* priority) {
    setenv("HEDDLE_PRIORITY", priority, 1);
    Pair pair;
    for (int tries = 0; tries < 500; ++tries) {
      const nlohmann::json client = Daemon::client();
      if (client.is_object() && client["managed"].get<bool>()) return pair;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    give_up("the shim did not attach to heddled");
  }

  Driver shim, direct;
  CUfunction kernel;
};

// As an eager framework between two launches: work that pushes the launch path out of near caches.
class Application {
 public:
  void works() {
    const auto until = std::chrono::steady_clock::now() + kPace;
    do {
      for (size_t i = 0; i < data_.size(); i += kLine) sum_ = sum_ + ++data_[i];
    } while (std::chrono::steady_clock::now() < until);
  }

 private:
  static constexpr std::chrono::microseconds kPace{10};
  static constexpr size_t kLine = 64;
  std::vector<uint8_t> data_ = std::vector<uint8_t>(2 << 20);  // an L2 cache
  volatile uint64_t sum_ = 0;
};

// Single launches by several threads at once, each into a stream of its own.
std::vector<double> launch_in_threads(const Driver& driver, CUfunction kernel, int threads,
                                      uint32_t launches) {
  CUcontext context;
  check(driver.context_current(&context), "cuCtxGetCurrent");
  std::vector<std::vector<double>> samples(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  std::atomic<int> ready{0};
  for (auto& mine : samples) {
    running.emplace_back([&] {
      CUstream stream;
      check(driver.context_set(context), "cuCtxSetCurrent");
      check(driver.stream_create(&stream, 1), "cuStreamCreate");
      driver.launch_null(kernel, stream);
      for (++ready; ready < threads;) std::this_thread::yield();
      for (uint32_t i = 1; i <= launches; ++i) {
        mine.push_back(time_ns([&] { driver.launch_null(kernel, stream); }));
        if (i % kDepth == 0) check(driver.stream_synchronize(stream), "cuStreamSynchronize");
      }
      check(driver.stream_destroy(stream), "cuStreamDestroy");
    });
  }
  for (std::thread& thread : running) thread.join();
  std::vector<double> all;
  for (const auto& mine : samples) all.insert(all.end(), mine.begin(), mine.end());
  return all;
}

// What a launch through the shim takes longer than a direct one; `between` ends a batch.
template <class Between>
std::vector<double> launch_in_turn(const MicroOptions& options, Pair& pair, Between&& between) {
  return alternate(
      scaled(options, 5000), kBatch, [&] { pair.shim.launch_null(pair.kernel); },
      [&] { pair.direct.launch_null(pair.kernel); }, between);
}

void measure_without_daemon(const MicroOptions& options, LaunchSamples& out) {
  setenv(ipc::kSocketEnv, "/nonexistent/heddled", 1);
  Pair pair;
  out.nodaemon = launch_in_turn(options, pair, [&] { pair.shim.synchronize(); });
}

// Single launches with the shim's bypass word set or not, drawn anew after each `together` and
// a silence: those without it, minus the median of those with it.
void measure_paced(const MicroOptions& options, Pair& pair, std::vector<double>& out,
                   uint32_t together = 1, std::chrono::milliseconds silence = {}) {
  auto* bypass = static_cast<uint32_t*>(dlsym(pair.shim.object, "heddle_shim_bypass"));
  if (bypass == nullptr) give_up("heddle_shim_bypass: not in the shim");
  std::mt19937 draw(1);
  Application application;
  std::vector<double> bypassed;
  bool on = true;
  for (uint32_t i = 0; i < scaled(options, silence.count() > 0 ? 4'000 : 40'000); ++i) {
    if (i % together == 0) {
      on = draw() % 2 == 0;
      std::this_thread::sleep_for(silence);
    }
    *bypass = on ? 0 : 1;
    application.works();
    (on ? out : bypassed).push_back(time_ns([&] { pair.shim.launch_null(pair.kernel); }));
    *bypass = 0;
    if (i % kBatch == kBatch - 1) pair.shim.synchronize();
  }
  const double without = percentile(bypassed, 0.5);
  for (double& ns : out) ns -= without;
}

// The measurement stage is over, and the client alone, for long enough.
void measure_spared(const MicroOptions& options, const char* how, std::vector<double>& out) {
  Pair pair = Pair::attached("0");
  for (int tries = 0; !Daemon::client()[how].get<bool>(); ++tries) {
    if (tries == 1'000) give_up(std::string("a client that is alone at work did not go ") + how);
    for (int i = 0; i < 2'000; ++i) {
      pair.shim.launch_null(pair.kernel);
      if (i % 8 == 0) pair.shim.synchronize();
    }
  }
  measure_paced(options, pair, out, kBatch);  // rows are longer than one launch
}

void measure_leased(const MicroOptions& options, LaunchSamples& out) {
  Pair pair = Pair::attached("0");
  CUdevice device;
  out.passthrough = alternate(
      scaled(options, 5000), 1000, [&] { pair.shim.device_get(&device, 0); },
      [&] { pair.direct.device_get(&device, 0); }, [] {});
  // An empty kernel is launched 30 times as fast as on a GPU: on a busy machine the daemon may not
  // keep up, and a launch that drops its record costs less.
  constexpr int kTries = 5;
  for (int tries = 1;; ++tries) {
    const nlohmann::json before = Daemon::client()["counters"]["dropped"];
    out.lease = launch_in_turn(options, pair, [&] {
      pair.shim.synchronize();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
    if (Daemon::client()["counters"]["dropped"] == before) break;
    if (tries == kTries) give_up("lease_ns: records were dropped; try on a less busy machine");
  }
  measure_paced(options, pair, out.paced);
  measure_paced(options, pair, out.silent, kBatch, std::chrono::milliseconds(100));
  // Rounds of an equal number of launches, one thread and eight in turn.
  constexpr int kThreads = 8;
  constexpr uint32_t kLaunches = 16 * 1024;
  const auto p99 = [&](const Driver& driver, int threads) {
    return percentile(
        launch_in_threads(driver, pair.kernel, threads, kLaunches / static_cast<uint32_t>(threads)),
        0.99);
  };
  for (uint32_t i = 0; i < scaled(options, 100); ++i) {
    const double one = p99(pair.shim, 1), one_direct = p99(pair.direct, 1);
    out.threads.push_back(p99(pair.shim, kThreads) / one);
    out.threads_direct.push_back(p99(pair.direct, kThreads) / one_direct);
  }
}

// A zeroed T that forked processes share.
template <class T>
class Shared {
 public:
  Shared()
      : memory_(
            mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) give_up("mmap: no memory left");
  }
  ~Shared() { munmap(memory_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *static_cast<T*>(memory_); }

 private:
  void* memory_;
};

// A gated client of `clients`, which begin together: `begun` counts them and is shared.
void measure_gated(const MicroOptions& options, int clients, std::atomic<int>& begun,
                   std::vector<double>& out) {
  Pair pair = Pair::attached("9");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (++begun; begun < clients;) {
    if (std::chrono::steady_clock::now() > until) give_up("the other gated clients did not begin");
    std::this_thread::yield();
  }
  std::vector<double> direct;
  for (uint32_t i = 0; i < scaled(options, 40'000) / static_cast<uint32_t>(clients); ++i) {
    out.push_back(time_ns([&] { pair.shim.launch_null(pair.kernel); }));
    direct.push_back(time_ns([&] { pair.direct.launch_null(pair.kernel); }));
    // So that the simulated GPU is idle at each ask: its owner wants a core of its own.
    pair.shim.synchronize();
  }
  const double launch = percentile(direct, 0.5);
  for (double& ns : out) ns -= launch;
}

auto members_of(LaunchSamples& samples) {
  return std::array{&samples.passthrough, &samples.nodaemon, &samples.lease,
                    &samples.paced,       &samples.silent,   &samples.sparse,
                    &samples.unobserved,  &samples.threads,  &samples.threads_direct,
                    &samples.gated,       &samples.crowd};
}

// In the child: its exit status.
template <class Measure>
int sample_into(FILE* file, const MicroOptions& options, Measure&& measure) {
  try {
    LaunchSamples mine;
    measure(options, mine);
    for (const auto* samples : members_of(mine)) {
      const size_t count = samples->size();
      fwrite(&count, sizeof count, 1, file);
      fwrite(samples->data(), sizeof(double), count, file);
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "heddle-bench: %s\n", error.what());
    return 1;
  }
  return fclose(file) == 0 ? 0 : 1;
}

void take_over(FILE* file, LaunchSamples& out) {
  for (auto* samples : members_of(out)) {
    size_t count = 0;
    if (fread(&count, sizeof count, 1, file) != 1) break;
    const size_t before = samples->size();
    samples->resize(before + count);
    if (fread(samples->data() + before, sizeof(double), count, file) != count) break;
  }
  fclose(file);
}

// Runs `measure` in `count` processes of their own at once, because a process attaches once, and
// takes over what each has sampled.
template <class Measure>
void in_children(const MicroOptions& options, int count, LaunchSamples& out, Measure&& measure) {
  struct Child {
    pid_t pid;
    FILE* samples;
  };
  std::vector<Child> children;
  for (int i = 0; i < count; ++i) {
    int ends[2];
    if (pipe(ends) != 0) give_up("pipe: no descriptors left");
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      _exit(sample_into(fdopen(ends[1], "w"), options, measure));
    }
    close(ends[1]);
    children.push_back({child, fdopen(ends[0], "r")});
  }
  bool whole = true;
  for (const Child& child : children) {
    take_over(child.samples, out);
    int status = 0;
    waitpid(child.pid, &status, 0);
    whole = whole && status == 0;
  }
  if (!whole) give_up("a measuring process failed");
}

void measure_gate(const MicroOptions& options, int clients, LaunchSamples& out,
                  std::vector<double> LaunchSamples::*samples) {
  const Shared<std::atomic<int>> begun;
  in_children(options, clients, out, [&](const MicroOptions& mine, LaunchSamples& sampled) {
    measure_gated(mine, clients, *begun, sampled.*samples);
  });
}

}  // namespace

LaunchSamples measure_launches(const MicroOptions& options) {
  const std::string driver =
      options.driver.empty() ? dist() + "/lib/heddle/sim/libcuda.so.1" : options.driver;
  LaunchSamples samples;
  {
    const Daemon daemon(driver, "each");
    in_children(options, 1, samples, measure_without_daemon);
    in_children(options, 1, samples, measure_leased);
    measure_gate(options, 1, samples, &LaunchSamples::gated);
    measure_gate(options, kCrowd, samples, &LaunchSamples::crowd);
  }
  const auto spared = [&](const char* how, std::vector<double> LaunchSamples::*paced) {
    const bool alone = paced == &LaunchSamples::unobserved;
    const Daemon daemon(driver, alone ? "samples" : "rows");
    in_children(options, 1, samples, [&](const MicroOptions& mine, LaunchSamples& sampled) {
      measure_spared(mine, how, sampled.*paced);
    });
  };
  spared("sparse", &LaunchSamples::sparse);
  spared("unobserved", &LaunchSamples::unobserved);
  return samples;
}

int launch_loop(uint32_t count) {
  Driver driver("libcuda.so.1");
  const CUfunction kernel = driver.prepare();
  for (uint32_t i = 0; i < count; ++i) {
    driver.launch_null(kernel);
    if (i % kBatch == kBatch - 1) check(driver.synchronize(), "cuCtxSynchronize");
  }
  check(driver.synchronize(), "cuCtxSynchronize");
  return 0;
}

}  // namespace heddle::bench
