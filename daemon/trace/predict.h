// How well the core predicts: plays a trace's events to a fresh core, under the built-in,
// and sets each of its predictions against what the trace then shows, before the core is told of
// it. The core learns from nothing but the events, so that every figure is of something that it had
// not seen ("prequential": Dawid, "Statistical theory: the prequential approach", 1984).
//
// What is set against what, all in µs:
//   durations   what a launch was predicted to take when it was launched, against the timed event
//               pair around it; unknown if its kernel was not timed before.
//   gaps        how long the client was promised to stay away when its gap began, against when it
//               launched again. The beginning of a synchronized gap is known; that of a launching
//               one is itself predicted, by the end of the queue.
//   queue ends  how long the work of a run was predicted to take, from its first launch to the end
//               of the queue, against when a synchronizing call that had to wait for it returned. A
//               call that returned at once says only that the work was over: those which the core
//               thought busy then are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/trace/reader.h"

namespace heddle::trace {

struct Prediction {
  double predicted_us = 0, real_us = 0;
  bool known = true;  // false: nothing was predicted
};

// How far off predictions were: predicted less real.
struct ErrorSummary {
  uint64_t count = 0, known = 0;  // of which the rest is made; NaN if there is none
  double median_us = 0, mean_us = 0;
  double relative_median = 0;  // of the real time
  double bias_us = 0;          // mean of the signed errors
};

struct GapSummary {
  uint64_t count = 0, known = 0;
  double real_us = 0;  // sum of all
  double useful = 0;   // share of it that was promised: sum of min(promised, real) ÷ sum of real
  double missed = 0;   // share of the promised gaps that were shorter than promised
  double overshoot_p50_us = 0, overshoot_p90_us = 0;  // promised less real, of those
};

ErrorSummary errors_of(const std::vector<Prediction>& predictions);
GapSummary gaps_of(const std::vector<Prediction>& gaps);

struct TaskPredictions {
  std::string name;    // of the client, as ClientTrack has it
  double seconds = 0;  // from its first launch to its last
  uint64_t launches = 0;
  std::vector<Prediction> durations, gaps_synchronized, gaps_launching, queue_ends;
  uint64_t prompt_ends = 0;     // synchronizing calls that returned at once
  uint64_t prompt_overrun = 0;  // of them: the core thought that work was left
  // Adds what is known of another task, for sums over all.
  void add(const TaskPredictions& other);
  // Share of its time that the core believed it idle, its gaps beyond idle_us_max apart.
  double idle() const;
};

// Those of each client that launched, in the order of their attaching. One line that names file and
// place if the trace is damaged.
Result<std::vector<TaskPredictions>> score_predictions(Reader& reader);

}  // namespace heddle::trace
