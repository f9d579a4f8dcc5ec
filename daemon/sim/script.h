// A client of a recorded trace as a program: virtual time plays it (`heddle replay --virtual`,
// bench/virtual/program.h), and on a GPU the
// workload "replay" does (bench/workloads/synthetic.cc).
#pragma once

#include <string>
#include <vector>

#include "daemon/sim/virtual.h"
#include "daemon/trace/timeline.h"

namespace heddle::sim {

// A client of a trace, ready to be played: iterations of launches with the host time before each,
// and synchronizing calls. Shared by all programs that play it.
struct TraceScript {
  struct Launch {
    uint32_t kernel = 0;       // index into `kernels`
    float us = 0;              // measured; 0: one of its kernel's measured ones is drawn
    float think_us = 0;        // host time since the call before it was over
    bool synchronize = false;  // not a launch: a synchronizing call
  };
  std::vector<LaunchSpec> kernels;              // us: the median
  std::vector<std::vector<float>> measured_us;  // by kernel, never empty
  std::vector<std::vector<Launch>> iterations;  // each ends with a synchronizing call
};

// Of the trace's only client, or of the one called `job`. A launch that was not measured lasts as
// long as others of its kernel did or, if those are few, as a core took its kernel for by the end
// of the trace, which infers what it is not told from when queues ended. An iteration is the
// shortest run of calls between synchronizing calls that repeats. Times of the recording are host
// time only: how long a call waited then, for a grant or a synchronize, plays no part. One thread,
// one stream: a client of several plays in the order of its calls.
// The error is one line that names file and remedy.
Result<TraceScript> script_of(const trace::Timeline& timeline, const std::string& file,
                              const std::string& job);
// The same of a client. `file` is what errors name.
Result<TraceScript> script_of(const trace::ClientTrack& client, const std::string& file);
// The same of a file.
Result<TraceScript> load_script(const std::string& path, const std::string& job);

}  // namespace heddle::sim
