// heddle-synthetic: a job of the protocol (share/doc/heddle/bench/METHOD.md) whose iterations are
// drawn, not computed: so many kernels of chosen durations, host time between them, a synchronize,
// a pause. Driver API alone, so it runs on the simulated GPU and on a real one, with heddle or
// without.
//
//   heddle-synthetic --kernels N --kernel-us MEDIAN[:SIGMA] [--gap-us ...] [--pause-us ...]
//                    [--tokens N] [--blocks N] [--syncs N] [--memory-mib N] [--seed N]
//                    [--launches US/BLOCKS,...]
//   heddle-synthetic --trace FILE [--job NAME] [--tokens N] [--memory-mib N]
//
// --launches: the same ones in every iteration, instead of drawn ones of --blocks each. --syncs:
// synchronizing calls of an iteration, spread evenly; the last one ends it. --trace: what a client
// of a recording did, the one called --job if it has several (daemon/sim/script.h): as long
// launches, of as many blocks and threads, with its host time between them. With --tokens an
// iteration of it is a token.
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "bench/workloads/driver.h"
#include "daemon/sim/script.h"

namespace heddle::workloads {
namespace {

constexpr unsigned kBlockThreads = 1024;
constexpr double kShortGaps = 0.8872983346207417;  // of bench/scenario/scenario.h, which says why
constexpr double kSpinS = 200e-6;                  // shorter waits are spun: a sleep is that late

struct Distribution {
  double median_us = 0, sigma = 0;

  double draw_s(std::mt19937_64& random) const {
    if (median_us <= 0) return 0;
    std::normal_distribution<double> normal(0, sigma);
    return median_us * 1e-6 * (sigma > 0 ? std::exp(normal(random)) : 1);
  }
};

struct Options {
  unsigned tokens = 0;  // an iteration, each of `kernels` launches and a synchronize; 0: it is one
  struct Launch {
    double us;
    unsigned blocks;
  };
  std::vector<Launch> launches;
  unsigned kernels = 1, syncs = 1, blocks = 264;
  Distribution kernel, gap, pause;
  size_t memory_mib = 0;
  uint64_t seed = 1;
  std::string trace, job;
  sim::TraceScript script;  // of the trace; no iterations: there is none
};

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

unsigned whole_us(double seconds) { return static_cast<unsigned>(std::lround(seconds * 1e6)); }

void wait_until(double at_s) {
  if (at_s - now_s() > kSpinS) {
    const double whole = std::floor(at_s);
    const timespec at{static_cast<time_t>(whole), static_cast<long>((at_s - whole) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
  }
  while (now_s() < at_s) {
  }
}

// When requests come, from `begin_s` on; "closed" has none. The words are the protocol's.
class Arrivals {
 public:
  Arrivals(std::istringstream& words, double begin_s) : next_s_(begin_s), base_s_(begin_s) {
    uint64_t seed = 0;
    if (!(words >> kind_)) kind_ = "closed";
    if (kind_ == "recorded") {
      std::string path;
      std::getline(words >> std::ws, path);
      std::ifstream file(path);
      for (double at; file >> at;) recorded_.push_back(at);
      if (recorded_.empty() || recorded_.back() <= 0) kind_ = "closed";
    } else if (kind_ == "burst") {
      words >> burst_ >> rate_;
    } else if (words >> rate_ >> seed) {
      random_.seed(seed);
    }
    if (kind_ == "recorded") next_s_ = base_s_ + recorded_[0];
  }

  bool closed() const { return kind_ == "closed"; }
  double next_s() const { return next_s_; }
  void advance() {
    if (kind_ == "recorded") {
      ++count_;
      const size_t size = recorded_.size();
      next_s_ = base_s_ + static_cast<double>(count_ / size) * recorded_.back() +
                recorded_[count_ % size];
    } else if (kind_ == "poisson") {
      next_s_ += std::exponential_distribution<double>(rate_)(random_);
    } else if (kind_ == "onoff") {
      const double kind =
          std::bernoulli_distribution(kShortGaps)(random_) ? kShortGaps : 1 - kShortGaps;
      next_s_ += std::exponential_distribution<double>(2 * kind * rate_)(random_);
    } else {
      next_s_ = base_s_ + static_cast<double>(++count_ / burst_) / rate_;
    }
  }

 private:
  std::string kind_;
  double next_s_, base_s_, rate_ = 1;
  size_t count_ = 0, burst_ = 1;
  std::vector<double> recorded_;
  std::mt19937_64 random_;
};

class Synthetic {
 public:
  explicit Synthetic(const Options& options)
      : options_(options), driver_(Driver::load()), random_(options.seed) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    check(driver_.cuInit(0), "cuInit");
    check(driver_.cuDeviceGet(&device, 0), "cuDeviceGet");
    check(driver_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(driver_.cuDeviceGetName(device_, sizeof device_, device), "cuDeviceGetName");
    check(driver_.cuModuleLoadData(&module, heddle_demo_ptx), "cuModuleLoadData");
    check(driver_.cuModuleGetFunction(&spin_, module, "heddle_spin"), "cuModuleGetFunction");
    check(driver_.cuMemAlloc_v2(&state_, sizeof(uint64_t)), "cuMemAlloc");
    CUdeviceptr pressure;
    if (options.memory_mib > 0) {
      check(driver_.cuMemAlloc_v2(&pressure, options.memory_mib << 20), "cuMemAlloc (memory_mib)");
    }
    check(driver_.cuStreamCreate(&stream_, 1), "cuStreamCreate");
    check(driver_.cuDeviceGetAttribute(&sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
          "cuDeviceGetAttribute");
    iterate(random_);  // whatever is loaded late is loaded now
  }

  // Commands until `quit` or the end of the file.
  void serve() {
    printf(
        "{\"ready\":true,\"pid\":%d,\"gpu\":\"%s\",\"can\":[\"arrivals\",\"hash\",\"profile\"]}\n",
        getpid(), device_);
    fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      if (command == "quit") break;
      if (command == "go") {
        go(words);
      } else if (command == "hash") {
        hash(words);
      } else if (command == "profile") {
        profile(words);
      } else {
        printf("{\"error\":\"unknown command\"}\n");
      }
      fflush(stdout);
    }
  }

 private:
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    driver_.cuGetErrorName(result, &name);
    fprintf(stderr, "heddle-synthetic: %s: %s (%d)\n", what, name == nullptr ? "?" : name, result);
    exit(1);
  }

  bool replays() const { return !options_.script.iterations.empty(); }

  // All tokens, or the one step. Returns the kernel time that was asked for, in seconds; `tokens_s`
  // gets when each token was there.
  double iterate(std::mt19937_64& random, std::vector<double>* tokens_s = nullptr) {
    double kernel_s = 0;
    for (unsigned token = 0; token < std::max(1U, options_.tokens); ++token) {
      kernel_s += replays() ? replay(token == 0, random) : step(random);
      if (tokens_s != nullptr) tokens_s->push_back(now_s());
    }
    return kernel_s;
  }

  double step(std::mt19937_64& random) {
    double kernel_s = 0;
    for (unsigned i = 0; i < options_.kernels; ++i) {
      const auto [us, blocks] =
          options_.launches.empty()
              ? Options::Launch{options_.kernel.draw_s(random) * 1e6, options_.blocks}
              : options_.launches[i];
      kernel_s += launch(us, blocks, kBlockThreads, random);
      if (options_.gap.median_us > 0) wait_until(now_s() + options_.gap.draw_s(random));
      const uint64_t syncs = options_.syncs, kernels = options_.kernels;
      if ((i + 1) * syncs / kernels == i * syncs / kernels) continue;
      check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    }
    return kernel_s;
  }

  // The next iteration of the script. What the host did before it is pause()'s, but for tokens.
  double replay(bool paused, std::mt19937_64& random) {
    const auto& calls = options_.script.iterations[next_];
    next_ = (next_ + 1) % options_.script.iterations.size();
    double kernel_s = 0;
    for (const auto& call : calls) {
      const bool first = &call == calls.data();
      if (!first || !paused) wait_until(now_s() + static_cast<double>(call.think_us) * 1e-6);
      if (call.synchronize) {
        check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
        continue;
      }
      const sim::LaunchSpec& kernel = options_.script.kernels[call.kernel];
      const auto& measured = options_.script.measured_us[call.kernel];
      const float us = call.us > 0 ? call.us : measured[random() % measured.size()];
      kernel_s += launch(static_cast<double>(us), kernel.blocks, kernel.threads, random);
    }
    return kernel_s;
  }

  // Blocks that all spin for their share of `us`, so that it takes as long where nobody else is.
  double launch(double us, unsigned blocks, unsigned threads, std::mt19937_64& random) {
    const unsigned wave = wave_of(threads), waves = (blocks + wave - 1) / wave;
    auto block_ns = static_cast<uint32_t>(std::max(1.0, us * 1e3 / waves));
    uint64_t value = random();
    void* params[] = {&state_, &block_ns, &value};
    check(driver_.cuLaunchKernel(spin_, blocks, 1, 1, threads, 1, 1, 0, stream_, params, nullptr),
          "cuLaunchKernel");
    ++launches_;
    return us * 1e-6;
  }

  // Blocks of so many threads that the GPU holds at once.
  unsigned wave_of(unsigned threads) {
    unsigned& wave = waves_[threads];
    if (wave != 0) return wave;
    int per_sm = 0;
    check(driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, spin_,
                                                              static_cast<int>(threads), 0),
          "cuOccupancy");
    return wave = static_cast<unsigned>(std::max(1, sms_ * per_sm));
  }

  void pause() {
    if (replays()) {
      const auto& first = options_.script.iterations[next_].front();
      wait_until(now_s() + static_cast<double>(first.think_us) * 1e-6);
    } else if (options_.pause.median_us > 0) {
      wait_until(now_s() + options_.pause.draw_s(random_));
    }
  }

  void go(std::istringstream& words) {
    double start = 0, seconds = 0, lead = 0, tail = 0;
    words >> start >> seconds >> lead >> tail;
    const double end = start + seconds;
    std::vector<unsigned> us, ttft_us, tbt_us;
    std::vector<double> tokens_s;
    double first = 0, last = 0;
    unsigned unserved = 0;
    wait_until(start - lead);
    Arrivals arrivals(words, start - lead);
    const auto counts = [&](double at) { return at >= start && at < end; };
    for (;;) {
      double due = now_s();
      if (!arrivals.closed()) {
        due = arrivals.next_s();
        if (due < end + tail) wait_until(due);
      }
      if (std::max(due, now_s()) >= end + tail) break;
      if (!arrivals.closed()) arrivals.advance();
      tokens_s.clear();
      iterate(random_, options_.tokens > 0 ? &tokens_s : nullptr);
      if (counts(due)) {
        if (!tokens_s.empty()) ttft_us.push_back(whole_us(tokens_s[0] - due));
        for (size_t i = 1; i < tokens_s.size(); ++i) {
          tbt_us.push_back(whole_us(tokens_s[i] - tokens_s[i - 1]));
        }
        last = now_s();
        if (us.empty()) first = due;
        us.push_back(whole_us(last - due));
      }
      if (arrivals.closed() || !replays()) pause();  // in a trace it was the wait for a request
    }
    for (; !arrivals.closed() && arrivals.next_s() < end; arrivals.advance()) {
      unserved += counts(arrivals.next_s()) ? 1 : 0;
    }
    print("{\"us\":", us);
    if (!ttft_us.empty()) print(",\"ttft_us\":", ttft_us);
    if (!tbt_us.empty()) print(",\"tbt_us\":", tbt_us);
    printf(",\"span_s\":%.6f,\"unserved\":%u}\n", last - first, unserved);
  }

  static void print(const char* key, const std::vector<unsigned>& values) {
    printf("%s[", key);
    for (size_t i = 0; i < values.size(); ++i) printf("%s%u", i == 0 ? "" : ",", values[i]);
    printf("]");
  }

  // A lost, doubled or reordered launch gives another word.
  void hash(std::istringstream& words) {
    unsigned count = 0;
    words >> count;
    printf("{\"sha256\":[");
    for (unsigned i = 0; i < count; ++i) {
      std::mt19937_64 random(i + 1);
      next_ = 0;
      check(driver_.cuMemsetD8_v2(state_, 0, sizeof(uint64_t)), "cuMemsetD8");
      iterate(random);
      uint64_t result = 0;
      check(driver_.cuMemcpyDtoH_v2(&result, state_, sizeof result), "cuMemcpyDtoH");
      printf("%s\"%016" PRIx64 "\"", i == 0 ? "" : ",", result);
    }
    printf("]}\n");
  }

  // Kernel time as drawn, against wall time.
  void profile(std::istringstream& words) {
    double seconds = 0, kernel_s = 0;
    words >> seconds;
    unsigned iterations = 0;
    const uint64_t before = launches_;
    const double begin = now_s();
    while (now_s() < begin + seconds) {
      kernel_s += iterate(random_);
      pause();
      ++iterations;
    }
    printf("{\"wall_s\":%.6f,\"kernel_s\":%.6f,\"kernels\":%" PRIu64 ",\"iterations\":%u}\n",
           now_s() - begin, kernel_s, launches_ - before, iterations);
  }

  const Options options_;
  Driver driver_;
  std::mt19937_64 random_;
  char device_[128] = {};
  CUfunction spin_ = nullptr;
  CUdeviceptr state_ = 0;
  CUstream stream_ = nullptr;
  int sms_ = 0;
  std::map<unsigned, unsigned> waves_;  // by threads of a block
  uint64_t launches_ = 0;
  size_t next_ = 0;  // iteration of the script
};

[[noreturn]] void usage(const std::string& what) {
  fprintf(
      stderr,
      "heddle-synthetic: %s\nusage: heddle-synthetic --kernels N --kernel-us MEDIAN[:SIGMA]\n"
      "       [--gap-us M[:S]] [--pause-us M[:S]] [--tokens N] [--blocks N] [--syncs N]\n"
      "       [--memory-mib N] [--seed N] [--launches US/BLOCKS,...]\n"
      "or:    heddle-synthetic --trace FILE [--job NAME] [--tokens N] [--memory-mib N]\n"
      "then commands of the job protocol on standard input (share/doc/heddle/bench/METHOD.md)\n",
      what.c_str());
  exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) usage(name + " needs a value");
    std::istringstream value(argv[i + 1]);
    const auto distribution = [&](Distribution& out) {
      value >> out.median_us;
      if (!value.eof() && value.peek() == ':') value.ignore() >> out.sigma;
    };
    if (name == "--kernels") {
      value >> options.kernels;
    } else if (name == "--tokens") {
      value >> options.tokens;
    } else if (name == "--blocks") {
      value >> options.blocks;
    } else if (name == "--syncs") {
      value >> options.syncs;
    } else if (name == "--launches") {
      for (char slash = ',', comma = ','; comma == ',' && value.good();) {
        Options::Launch& launch = options.launches.emplace_back();
        value >> launch.us >> slash >> launch.blocks;
        if (value.fail() || slash != '/' || launch.blocks == 0) usage("--launches US/BLOCKS,...");
        if (!(value >> comma)) value.clear(std::ios::eofbit);
      }
    } else if (name == "--trace") {
      options.trace = argv[i + 1];
    } else if (name == "--job") {
      options.job = argv[i + 1];
    } else if (name == "--memory-mib") {
      value >> options.memory_mib;
    } else if (name == "--seed") {
      value >> options.seed;
    } else if (name == "--kernel-us") {
      distribution(options.kernel);
    } else if (name == "--gap-us") {
      distribution(options.gap);
    } else if (name == "--pause-us") {
      distribution(options.pause);
    } else {
      usage("unknown option " + name);
    }
    if (value.fail()) usage(name + ": '" + argv[i + 1] + "' is no number");
  }
  if (!options.trace.empty()) {
    auto script = sim::load_script(options.trace, options.job);
    if (!script) usage(script.error().message);
    options.script = std::move(*script);
    return options;
  }
  if (options.kernel.median_us <= 0) usage("--kernel-us is missing");
  if (!options.launches.empty()) options.kernels = static_cast<unsigned>(options.launches.size());
  if (options.kernels == 0 || options.blocks == 0) usage("--kernels and --blocks are at least 1");
  if (options.syncs == 0 || options.syncs > options.kernels) usage("--syncs is 1 to --kernels");
  return options;
}

}  // namespace
}  // namespace heddle::workloads

int main(int argc, char** argv) {
  using namespace heddle::workloads;
  prctl(PR_SET_TIMERSLACK, 1);  // the default slack alone is 50 µs
  Synthetic(parse(argc, argv)).serve();
}
