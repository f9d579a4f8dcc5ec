// The measurements that steer the shim's hot path: what a launch attribute, a marker, a query and
// a watching thread really cost. bench/README.md has a paragraph on each.
//
//   nvcc -O2 -arch=sm_90 -std=c++17 steer.cu -o steer -lcuda && ./steer steer.json
//
// Every experiment alternates its cases with a control inside this process (samples.h). "host_us"
// is the time of the calls on the launching thread, per launch; "gpu_us" is the time per kernel
// between two timed events around the burst. A burst starts on a drained stream and is far shorter
// than the driver's launch queue, so that host_us never contains a wait for the GPU.
#include <cuda.h>
#include <cuda_runtime.h>
#include <time.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "launching.h"
#include "samples.h"
#include "watch.h"

using heddle::bench::Burst;
using heddle::bench::completion_attribute;
using heddle::bench::dependent_attribute;
using heddle::bench::Experiment;
using heddle::bench::function_of;
using heddle::bench::launch;
using heddle::bench::make_event;
using heddle::bench::make_stream;
using heddle::bench::mapped_word;
using heddle::bench::now_us;
using heddle::bench::Poller;
using heddle::bench::priority_attribute;
using heddle::bench::Recorder;
using heddle::bench::Watcher;

namespace {

constexpr int kEmpty = 0;       // cycles: the launch itself is the bottleneck
constexpr int kSmall = 10'000;  // about 5 µs: the GPU is, so gpu_us shows bubbles
constexpr int kLong = 200'000;  // about 100 µs: outlasts every call made meanwhile

__device__ void spin(int cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {
  }
}

__global__ void work(int cycles) { spin(cycles); }

// Raises a host flag as its last act, so that a polling thread knows when the kernel ended.
__global__ void raise_flag(int cycles, volatile unsigned* flag, unsigned value) {
  spin(cycles);
  *flag = value;
  __threadfence_system();
}

// One link of a dependent chain: the first half needs nothing of its predecessor, the second does.
__global__ void chain_link(int cycles, unsigned* length) {
  cudaTriggerProgrammaticLaunchCompletion();
  spin(cycles);
  cudaGridDependencySynchronize();
  spin(cycles);
  if (blockIdx.x == 0 && threadIdx.x == 0) ++*length;
}

// ---- a: the launch priority attribute ---------------------------------------------------------

std::string launch_priority(CUfunction f, CUstream stream, const char* stream_name, int cycles) {
  static int argument;
  argument = cycles;
  static void* args[] = {&argument};
  Burst burst(stream, 64);
  const std::vector<CUlaunchAttribute> none, high = {priority_attribute(-5)},
                                             low = {priority_attribute(0)};
  Experiment e{std::string("launch_priority_") + stream_name + (cycles ? "_small" : "_empty"),
               "64 launches on the " + std::string(stream_name) + " stream" +
                   (cycles ? ", kernels of about 5 us" : ", empty kernels"),
               {"host_us", "gpu_us"},
               1000,
               {}};
  e.cases = {
      {"cuLaunchKernel",
       [&](Recorder& r) {
         burst.run(r,
                   [&](int) { CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, 0)); });
       }},
      {"cuLaunchKernelEx",
       [&](Recorder& r) { burst.run(r, [&](int) { launch(f, stream, args, none); }); }},
      {"priority -5",
       [&](Recorder& r) { burst.run(r, [&](int) { launch(f, stream, args, high); }); }},
      {"priority -5 and 0 in turn",
       [&](Recorder& r) {
         burst.run(r, [&](int i) { launch(f, stream, args, i % 2 ? high : low); });
       }},
  };
  return heddle::bench::run(e);
}

// ---- b: launches while another thread queries -------------------------------------------------

std::string watched_launches(CUfunction f, CUstream stream, Watcher& watcher) {
  static int argument = kEmpty;
  static void* args[] = {&argument};
  constexpr int kLength = 64;
  std::vector<CUevent> events;
  for (int i = 0; i < kLength; ++i) events.push_back(make_event(CU_EVENT_DISABLE_TIMING));
  static unsigned ticket = 0;
  auto timed = [=, &watcher](Recorder& r, bool mark, Watcher::Mode mode) {
    CHECK(cuStreamSynchronize(stream));
    watcher.set(mode);
    for (int i = 0; i < kLength; ++i) {
      const double start = now_us();
      CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr));
      const double launched = now_us();
      r.add(0, launched - start);
      if (!mark) continue;
      CHECK(cuEventRecord(events[i], stream));
      r.add(1, now_us() - launched);
      watcher.publish(events[i], ++ticket);
    }
    watcher.set(Watcher::kRest);
  };
  Experiment e{"watched_launches",
               "each of 64 launches timed alone, a marker after each, another thread querying it",
               {"host_us", "record_us"},
               1000,
               {}};
  e.cases = {
      {"marker, no watcher", [=](Recorder& r) { timed(r, true, Watcher::kRest); }},
      {"no marker, no watcher", [=](Recorder& r) { timed(r, false, Watcher::kRest); }},
      {"watcher spinning", [=](Recorder& r) { timed(r, true, Watcher::kSpin); }},
      {"watcher every 20 us", [=](Recorder& r) { timed(r, true, Watcher::kEvery20us); }},
  };
  return heddle::bench::run(e);
}

// ---- c: cuCtxRecordEvent ----------------------------------------------------------------------

std::string context_event(CUfunction f, CUstream stream, CUcontext context, int other_streams) {
  using RecordContext = CUresult (*)(CUcontext, CUevent);
  void* symbol = nullptr;
  CUdriverProcAddressQueryResult found;
  CHECK(cuGetProcAddress("cuCtxRecordEvent", &symbol, 12050, 0, &found));
  const auto record_context = reinterpret_cast<RecordContext>(symbol);
  static int argument = kEmpty;
  static void* args[] = {&argument};
  std::vector<CUstream> others;
  for (int i = 0; i < other_streams; ++i) {
    others.push_back(make_stream());
    CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, others.back(), args, nullptr));
  }
  Burst burst(stream, 64);
  const CUevent event = make_event(CU_EVENT_DISABLE_TIMING);
  auto plain = [=] { CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr)); };
  Experiment e{"context_event_" + std::to_string(other_streams) + "_other_streams",
               "an event after each of 64 launches of empty kernels, " +
                   std::to_string(other_streams) + " further streams in the context",
               {"host_us", "gpu_us"},
               1000,
               {}};
  e.cases = {
      {"no event", [&](Recorder& r) { burst.run(r, [&](int) { plain(); }); }},
      {"cuEventRecord",
       [&](Recorder& r) {
         burst.run(r, [&](int) {
           plain();
           CHECK(cuEventRecord(event, stream));
         });
       }},
  };
  if (record_context != nullptr && record_context(context, event) == CUDA_SUCCESS)
    e.cases.push_back({"cuCtxRecordEvent", [&](Recorder& r) {
                         burst.run(r, [&](int) {
                           plain();
                           CHECK(record_context(context, event));
                         });
                       }});
  else
    e.about += "; this driver refuses cuCtxRecordEvent";
  std::string json = heddle::bench::run(e);
  CHECK(cuCtxSynchronize());
  for (CUstream s : others) CHECK(cuStreamDestroy(s));
  return json;
}

// ---- d: markers beside programmatic dependent launches ----------------------------------------

std::string dependent_launches(CUfunction f, CUstream stream) {
  static int cycles = 8'000;  // about 4 µs before and 4 µs after the dependency
  static unsigned* length = nullptr;
  if (length == nullptr) CHECK(cudaMalloc(&length, sizeof *length));
  CHECK(cudaMemset(length, 0, sizeof *length));
  CHECK(cudaDeviceSynchronize());
  static void* args[] = {&cycles, &length};
  static unsigned launched = 0;
  Burst burst(stream, 64);
  const CUevent event = make_event(CU_EVENT_DISABLE_TIMING);
  const CUevent begin = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  auto chain = [&](std::vector<CUlaunchAttribute> attributes, int marker_every, int timed_every) {
    return [&, attributes, marker_every, timed_every](Recorder& r) {
      burst.run(r, [&](int i) {
        const bool timed = timed_every != 0 && i % timed_every == 0;
        if (timed) CHECK(cuEventRecord(begin, stream));
        launch(f, stream, args, attributes, 8);
        if (timed) CHECK(cuEventRecord(end, stream));
        if (marker_every != 0 && i % marker_every == 0) CHECK(cuEventRecord(event, stream));
      });
      launched += 64;
    };
  };
  Experiment e{"dependent_launches",
               "64 dependent kernels; half of each may overlap its predecessor",
               {"host_us", "gpu_us"},
               1000,
               {}};
  e.cases = {
      {"dependent", chain({dependent_attribute()}, 0, 0)},
      {"dependent, marker after every 64th", chain({dependent_attribute()}, 64, 0)},
      {"dependent, marker after every 8th", chain({dependent_attribute()}, 8, 0)},
      {"dependent, marker after each", chain({dependent_attribute()}, 1, 0)},
      {"dependent, timed bracket every 16th", chain({dependent_attribute()}, 0, 16)},
      {"dependent, priority -5", chain({dependent_attribute(), priority_attribute(-5)}, 0, 0)},
      {"plain", chain({}, 0, 0)},
      {"plain, marker after each", chain({}, 1, 0)}};
  std::string json = heddle::bench::run(e);
  unsigned counted = 0;
  CHECK(cudaMemcpy(&counted, length, sizeof counted, cudaMemcpyDeviceToHost));
  CHECK(counted == launched ? 0 : -1);
  return json;
}

// ---- e: sparse markers ------------------------------------------------------------------------

std::string sparse_markers(CUfunction f, CUstream stream, int cycles) {
  static int argument;
  argument = cycles;
  static void* args[] = {&argument};
  Burst burst(stream, 128);
  const CUevent marker = make_event(CU_EVENT_DISABLE_TIMING);
  const CUevent begin = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  auto plain = [=] { CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr)); };
  auto marked = [&burst, plain, stream](CUevent event, int every) {
    return [&burst, plain, stream, event, every](Recorder& r) {
      burst.run(r, [&](int i) {
        plain();
        if (every != 0 && i % every == every - 1) CHECK(cuEventRecord(event, stream));
      });
    };
  };
  auto bracketed = [&burst, plain, stream, begin, end](int every) {
    return [=, &burst](Recorder& r) {
      burst.run(r, [&](int i) {
        const bool measured = i % every == every - 1;
        if (measured) CHECK(cuEventRecord(begin, stream));
        plain();
        if (measured) CHECK(cuEventRecord(end, stream));
      });
    };
  };
  const std::vector<CUlaunchAttribute> completion = {completion_attribute(marker)};
  static const CUdeviceptr word = mapped_word();
  Experiment e{std::string("sparse_markers_") + (cycles ? "small" : "empty"),
               std::string("an event after every n-th of 128 launches, ") +
                   (cycles ? "kernels of about 5 us" : "empty kernels"),
               {"host_us", "gpu_us"},
               1000,
               {}};
  e.cases = {{"none", marked(marker, 0)},
             {"marker every 64", marked(marker, 64)},
             {"marker every 16", marked(marker, 16)},
             {"marker every 4", marked(marker, 4)},
             {"marker every launch", marked(marker, 1)},
             {"timed bracket every 64", bracketed(64)},
             {"timed bracket every 16", bracketed(16)},
             {"timed event every launch", marked(begin, 1)},
             {"completion event every launch",
              [&, stream](Recorder& r) {
                burst.run(r, [&](int) { launch(f, stream, args, completion); });
              }},
             {"stream write every launch", [&, stream](Recorder& r) {
                burst.run(r, [&](int i) {
                  plain();
                  CHECK(cuStreamWriteValue32(stream, word, static_cast<unsigned>(i), 0));
                });
              }}};
  return heddle::bench::run(e);
}

// ---- f: queries, and how soon an end is known -------------------------------------------------

std::string query_costs(CUfunction f, CUstream stream) {
  static int argument = kLong;
  static void* args[] = {&argument};
  const CUevent done = make_event(CU_EVENT_DISABLE_TIMING);
  const CUevent pending = make_event(CU_EVENT_DISABLE_TIMING);
  CHECK(cuEventRecord(done, stream));
  auto timed = [=](bool busy, auto call) {
    return [=](Recorder& r) {
      if (busy) {
        CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr));
        CHECK(cuEventRecord(pending, stream));
      }
      constexpr int kCalls = 64;
      const double start = now_us();
      for (int i = 0; i < kCalls; ++i) call();
      r.add(0, (now_us() - start) * 1e3 / kCalls);
      CHECK(cuStreamSynchronize(stream));
    };
  };
  Experiment e{"query_costs",
               "64 calls in a row; the stream is idle unless said otherwise",
               {"host_ns"},
               2000,
               {}};
  e.cases = {
      {"empty loop", timed(false,
                           [] {
                             asm volatile("" ::: "memory");
                           })},
      {"cuEventQuery, complete", timed(false, [=] { cuEventQuery(done); })},
      {"cuEventQuery, pending", timed(true, [=] { cuEventQuery(pending); })},
      {"cuStreamQuery, idle", timed(false, [=] { cuStreamQuery(stream); })},
      {"cuStreamQuery, busy", timed(true, [=] { cuStreamQuery(stream); })},
      {"cuCtxGetCurrent", timed(false,
                                [] {
                                  CUcontext c;
                                  cuCtxGetCurrent(&c);
                                })},
      {"cuFuncGetName", timed(false,
                              [=] {
                                const char* name;
                                cuFuncGetName(&name, f);
                              })},
      {"cuStreamIsCapturing", timed(false,
                                    [=] {
                                      CUstreamCaptureStatus status;
                                      cuStreamIsCapturing(stream, &status);
                                    })},
  };
  return heddle::bench::run(e);
}

std::string completion_latency(CUfunction f, CUstream stream, Watcher& watcher) {
  static unsigned ticket = 1u << 30;
  Poller poller;
  const CUevent marker = make_event(CU_EVENT_DISABLE_TIMING);
  auto once = [&, stream](Recorder& r, bool synchronize, bool write, Watcher::Mode mode) {
    watcher.set(mode);
    int cycles = kLong;
    CUdeviceptr flag = poller.flag();
    unsigned value = ++ticket;
    void* args[] = {&cycles, &flag, &value};
    poller.arm(value, write);
    CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, args, nullptr));
    CHECK(cuEventRecord(marker, stream));
    watcher.publish(marker, value);
    if (write) CHECK(cuStreamWriteValue32(stream, poller.written(), value, 0));
    double synchronized = 0;
    if (synchronize) {
      CHECK(cuStreamSynchronize(stream));
      synchronized = now_us();
    }
    poller.wait(value);
    if (synchronize) r.add(0, synchronized - poller.flag_at_us);
    if (mode != Watcher::kRest) r.add(1, watcher.wait_seen(value) - poller.flag_at_us);
    if (write) r.add(2, poller.write_at_us - poller.flag_at_us);
    watcher.set(Watcher::kRest);
    CHECK(cuStreamSynchronize(stream));
  };
  Experiment e{"completion_latency",
               "from the last store of a 100 us kernel, seen by a polling thread, until ...",
               {"sync_us", "query_us", "write_us"},
               1500,
               {}};
  e.cases = {
      {"cuStreamSynchronize", [&](Recorder& r) { once(r, true, false, Watcher::kRest); }},
      {"watcher spinning", [&](Recorder& r) { once(r, false, false, Watcher::kSpin); }},
      {"watcher every 20 us", [&](Recorder& r) { once(r, false, false, Watcher::kEvery20us); }},
      {"both, spinning", [&](Recorder& r) { once(r, true, false, Watcher::kSpin); }},
      {"stream write", [&](Recorder& r) { once(r, false, true, Watcher::kRest); }},
  };
  return heddle::bench::run(e);
}

// ---- g: a kernel's duration from two events ----------------------------------------------------

std::string brackets(CUfunction f, CUstream stream) {
  static int argument = kSmall, before = kLong;
  static void *args[] = {&argument}, *long_args[] = {&before};
  const CUevent begin = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  auto run = [=](void** what) { CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, what, 0)); };
  auto elapsed_us = [=] {
    float ms = 0;
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventElapsedTime(&ms, begin, end));
    return ms * 1e3;
  };
  // What the events tell, less the time the GPU waited for the launch if it was idle by then.
  auto bracket = [=](Recorder& r, bool busy, bool ask_first, bool take_off) {
    if (busy) run(long_args);
    CHECK(cuEventRecord(begin, stream));
    const double begun = now_us();
    run(args);
    const double lead = now_us() - begun;
    bool idle = ask_first && cuEventQuery(begin) == CUDA_SUCCESS;
    CHECK(cuEventRecord(end, stream));
    if (!ask_first) idle = cuEventQuery(begin) == CUDA_SUCCESS;
    r.add(0, elapsed_us() - (take_off && idle ? lead : 0));
  };
  Experiment e{
      "brackets", "one kernel of about 5 us between two timed events", {"gpu_us"}, 2000, {}};
  e.cases = {
      {"pace of 64 in a queue",
       [=](Recorder& r) {
         run(long_args);
         CHECK(cuEventRecord(begin, stream));
         for (int i = 0; i < 64; ++i) run(args);
         CHECK(cuEventRecord(end, stream));
         r.add(0, elapsed_us() / 64);
       }},
      {"work before it", [=](Recorder& r) { bracket(r, true, false, true); }},
      {"idle stream", [=](Recorder& r) { bracket(r, false, false, false); }},
      {"idle, less the launch, known before the 2nd event",
       [=](Recorder& r) { bracket(r, false, true, true); }},
      {"idle, less the launch, known after the 2nd event",
       [=](Recorder& r) { bracket(r, false, false, true); }},
  };
  return heddle::bench::run(e);
}

std::string header(const std::string& wanted) {
  const char* commit = getenv("HEDDLE_COMMIT");
  char gpu[128] = "";
  int version = 0;
  CHECK(cuDeviceGetName(gpu, sizeof gpu, 0));
  CHECK(cuDriverGetVersion(&version));
  char date[32];
  const time_t now = time(nullptr);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  return std::string("{\"benchmark\":\"steer\",\"date\":\"") + date + "\",\"commit\":\"" +
         (commit ? commit : "") + "\",\"command\":\"steer FILE " + wanted + "\",\"gpu\":\"" + gpu +
         "\",\"cuda_driver\":" + std::to_string(version) + ",\"experiments\":[\n";
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "steer.json";
  const std::string wanted = argc > 2 ? argv[2] : "";  // an experiment, or all
  CHECK(cuInit(0));
  CHECK(cudaFree(nullptr));
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  const CUstream own = make_stream();
  const CUfunction work_f = function_of(work), signal_f = function_of(raise_flag),
                   link_f = function_of(chain_link);
  Watcher watcher(context);
  const std::pair<const char*, std::function<std::string()>> experiments[] = {
      {"launch_priority", [&] { return launch_priority(work_f, nullptr, "null", kEmpty); }},
      {"launch_priority", [&] { return launch_priority(work_f, own, "own", kEmpty); }},
      {"launch_priority", [&] { return launch_priority(work_f, nullptr, "null", kSmall); }},
      {"watched_launches", [&] { return watched_launches(work_f, own, watcher); }},
      {"context_event", [&] { return context_event(work_f, own, context, 0); }},
      {"context_event", [&] { return context_event(work_f, own, context, 16); }},
      {"dependent_launches", [&] { return dependent_launches(link_f, own); }},
      {"sparse_markers", [&] { return sparse_markers(work_f, own, kEmpty); }},
      {"sparse_markers", [&] { return sparse_markers(work_f, own, kSmall); }},
      {"query_costs", [&] { return query_costs(work_f, own); }},
      {"completion_latency", [&] { return completion_latency(signal_f, own, watcher); }},
      {"brackets", [&] { return brackets(work_f, own); }},
  };
  std::string json = header(wanted);
  const double start = now_us();
  bool first = true;
  for (const auto& [name, experiment] : experiments) {
    if (!wanted.empty() && wanted != name) continue;
    json += (first ? "" : ",\n") + experiment();
    first = false;
    std::fprintf(stderr, "steer: %.1f s\n", (now_us() - start) * 1e-6);
  }
  json += "\n]}\n";
  FILE* out = std::fopen(path, "w");
  CHECK(out == nullptr ? -1 : 0);
  std::fputs(json.c_str(), out);
  CHECK(std::fclose(out));
  return 0;
}
