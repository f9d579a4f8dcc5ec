// What a trace says about time: each client's launches, synchronizing calls, waits and gaps. The
// core is not told when the GPU began a launch, so that starts and unmeasured ends are
// reconstructed: a stream runs in order, evidence gives ends, and a launch between two of them
// lasts as long as its kernel did where it was measured.
#pragma once

#include <string>
#include <vector>

#include "daemon/trace/reader.h"

namespace heddle::trace {

struct KernelTrack {
  core::KernelBody body{};
  std::vector<float> measured_us;
  double learned_us = 0;  // how long a core took it for at the end: timed, of the task's profile,
                          // or inferred from when queues ended (core/learning.h)
  uint64_t launches = 0;

  double median_us() const;  // 0 if it was never measured
};

struct LaunchTrack {
  uint32_t kernel = core::kUnknownKernel;
  uint16_t stream = 0, thread = 0;
  core::LaunchKind kind = core::LaunchKind::kKernel;
  core::Admission admission = core::Admission::kLease;
  core::Decider granted_by = core::Decider::kBuiltin;  // if it asked
  uint64_t seq = 0;
  core::TimeNs called = 0;          // the program's call
  core::TimeNs posted = 0;          // let go: the same, unless it asked
  core::TimeNs start = 0, end = 0;  // on the GPU; end 0: the trace ended first
  float measured_us = 0;            // 0: reconstructed
  core::SmSet sm_set{};             // that it was kept to, empty: all
};

struct SyncTrack {
  uint16_t stream = core::kEveryStream;
  core::TimeNs called = 0, returned = 0;  // 0: the trace ended first
};

struct GapTrack {  // nothing of the client was on the GPU, nor on its way there
  core::TimeNs from = 0, to = 0;
  bool synchronized = false;  // a synchronizing call opened it
};

struct ClientTrack {
  uint8_t device = 0;
  core::ClientId id = 0;
  core::AttachedBody who{};
  core::TimeNs attached = 0, detached = 0;  // 0: it stayed
  bool introduced = false;                  // it was there before the trace began
  std::vector<KernelTrack> kernels;         // by index
  std::vector<LaunchTrack> launches;        // in the order of their calls
  std::vector<SyncTrack> syncs;
  std::vector<GapTrack> gaps;

  // Of the executable, with the label where it has one.
  std::string name() const;
  std::string kernel_name(uint32_t index) const;
};

struct Timeline {
  Header header;
  core::TimeNs from = 0, to = 0;
  std::vector<ClientTrack> clients;  // one per client and device
  std::vector<core::Decision> decisions;
  std::vector<PolicyRecord> policies;
  uint64_t records = 0, lost = 0;
};

// Reads the trace to its end.
Result<Timeline> read_timeline(Reader& reader);

// The events of Chrome's trace format, which Perfetto shows: a process per client with a track per
// stream, its waits for grants, gaps and synchronizing calls, decisions as instants, allowances
// as counters. Times are microseconds from the trace's beginning.
nlohmann::json chrome_trace(const Timeline& timeline);

}  // namespace heddle::trace
