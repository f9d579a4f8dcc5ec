// The kernels of a row as the profiler saw them, for bench/timeline.py. For run.cc.
#pragma once

#include <string>

#include "bench/runner/host.h"

namespace heddle::bench {

// Writes those in a window in the middle of what all jobs recorded, in microseconds from its begin:
//   {"scenario", "row", "window_us", "jobs": [{"name", "role", "names", "spans_us"}]}
// `jobs`: name, role and the job's answer to `profile SECONDS 1`. Throws HostError if one
// recorded none, or the file cannot be written.
void save_timeline(const std::string& path, const std::string& scenario, const std::string& row,
                   const Json& jobs);

}  // namespace heddle::bench
