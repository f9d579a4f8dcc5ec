// What is learned online about a kernel: how long it runs, and how long its client then stays away.
//
// Durations: FIKIT's SK, gaps: its SG (section 3.2), corrected while serving, and per task (label +
// executable + arguments), so that the next process of the same task starts with what the last one
// taught. A task's first runs are its measurement stage (learning.h), whose distributions outlive
// the daemon in a profile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/core/event.h"
#include "daemon/core/shared_places.h"
#include "daemon/model/interference.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// What the measurement stage learns of a duration or a gap: a distribution in constant memory.
// A quantile of a stream of numbers without keeping them: the P-square algorithm (Jain and
// Chlamtac, "The P2 algorithm for dynamic calculation of quantiles and histograms without storing
// observations", CACM 28(10), 1985). Five markers; exact up to five numbers.
class Quantile {
 public:
  explicit Quantile(double share) : share_(static_cast<float>(share)) {}

  void add(double x);
  double value() const;

 private:
  double parabolic(int i, int step) const;

  float share_;
  uint32_t count_ = 0;
  std::array<float, 5> height_{};
  std::array<uint32_t, 5> position_{};  // from 1
};

class Distribution {
 public:
  void add(double us);
  // Instead of what was added; nothing is to be added any more.
  void restore(const Summary& summary) { restored_ = summary; }
  uint32_t count() const { return restored_.count != 0 ? restored_.count : count_; }
  Summary summary() const;

 private:
  double mean_us_ = 0;
  uint32_t count_ = 0;
  Quantile p50_{0.5}, p90_{0.9};
  Summary restored_{};
};

// Mean and mean absolute deviation with a decaying memory of about 16 samples.
class Ewma {
 public:
  void add(double x);
  // As if it had seen what the summary was made of.
  void restore(const Summary& summary);
  double mean() const { return mean_; }
  double deviation() const { return deviation_; }
  uint32_t count() const { return count_; }

 private:
  double mean_ = 0;
  double deviation_ = 0;
  uint32_t count_ = 0;
};

// The four kernels that a client launched last: 16 bits of the ID of each, the latest lowest.
class Context {
 public:
  Context() = default;
  explicit Context(uint64_t last) : last_(last) {}
  uint64_t last() const { return last_; }  // 0: they are not known
  void launched(uint64_t kernel_id) { last_ = last_ << 16 | (kernel_id & 0xffff); }
  void forget() { last_ = 0; }
  bool known() const { return last_ >> 48 != 0; }
  bool operator==(const Context&) const = default;

 private:
  uint64_t last_ = 0;
};

// Execution time alone on the device. A sample taken while another client had work counts only
// until there is an exclusive one: sharing stretches it, so what is kept follows the least of
// those. Until it is timed, it is inferred from when queues with it ended (infer_durations), or
// from how long it takes on fewer SMs.
//
// A kernel ID may stand for work of different lengths: the grid of a convolution is that of its
// output, and how many channels it sums over is among its parameters (fcn_resnet50 on an H200: 455
// and 2 000 µs of one ID). Where exclusive samples differ that much, launches are told apart by
// what their client launched before, as far as a context was timed. (Of a client whose threads
// launch as it comes, no context comes again.)
class DurationEstimate {
 public:
  static constexpr size_t kContextsMax = 16;  // then the first is forgotten

  void add(double us, bool exclusive, Context before);
  void infer(double us) { inferred_us_ = us; }
  void restore(const Summary& summary) { exclusive_.restore(summary); }
  void restore(Context before, const Summary& summary);
  bool timed() const { return exclusive_.count() > 0 || shared_us_ > 0; }
  bool known() const { return timed() || inferred_us_ > 0; }
  double us() const;  // of all; 0 if not known
  double us(Context before) const;
  double longest_us() const;  // in any context
  bool differs() const;
  uint32_t told_apart() const { return told_apart_; }  // samples in contexts that came again
  std::vector<DurationAfter> after() const;

 private:
  struct InContext {
    Context before;
    Ewma us;
    uint32_t samples = 0;
    bool known() const { return samples >= 2; }  // one may be the odd one
  };
  InContext& in(Context before);
  Ewma exclusive_;
  double shared_us_ = 0, inferred_us_ = 0;
  std::vector<InContext> contexts_;
  uint32_t told_apart_ = 0, next_ = 0;
};

// The idle time that follows a kernel. What a filler may rely on is not the mean but a low
// quantile, followed online: a gap shorter than predicted pulls it down at once by more than a
// longer one raises it, so a task whose gaps disappoint is trusted with shorter ones.
class GapEstimate {
 public:
  // Share of gaps that may turn out shorter than predicted. A miss costs the more important client
  // only what is left of the kernel in flight, so that a third of them costs it little (7 % of a
  // kernel where gaps spread by a quarter), and every share below gives up best-effort throughput.
  static constexpr double kMissShare = 0.35;
  static constexpr uint32_t kSamplesMin = 2;  // before that nothing is promised
  // A task may change its ways: another batch size, decoding after the prompt. So many gaps in a
  // row that are all shorter, or all longer, than promised by this factor are taken for that, and
  // what was learned before is forgotten.
  static constexpr int kPhaseGaps = 3;
  static constexpr double kPhaseFactor = 2;

  void add(double us);
  void restore(const Summary& summary);
  bool known() const { return gaps_.count() >= kSamplesMin; }
  double low_us() const { return known() ? low_us_ : 0; }
  double high_us() const;  // the client is hardly ever away for longer

 private:
  bool phase_changed(double us);

  Ewma gaps_;
  double low_us_ = 0;
  int strange_ = 0;  // gaps in a row that may be of a new phase; negative: they are shorter
  double strange_low_us_ = 0;  // least of them
};

struct KernelStats {
  DurationEstimate duration;
  // Two kinds of gap after one and the same kernel: its client goes on launching, or it
  // synchronized first. The second is where the time is, and kernels repeat within an iteration, so
  // that mixed together the short ones would hide the long ones.
  GapEstimate gap_launching;
  GapEstimate gap_synchronized;

  GapEstimate& gap(bool synchronized) { return synchronized ? gap_synchronized : gap_launching; }
  uint64_t launches = 0;
  ipc::KernelMetrics metrics{};

  // The measurement stage: exclusive samples alone. Once `profiled` they stay as they are.
  Distribution durations, gaps_launching, gaps_synchronized;
  uint32_t timed = 0;  // samples of its duration, exclusive or not
  bool profiled = false;
  std::unique_ptr<const Use> use;  // of the GPU's channels; none: nobody measured it
  // The duration that `use` is of; 0: it is of no certain one.
  static constexpr double kUseProfiled = -1;  // that of a profiler's run
  double use_us = 0;
};

// The measurement stage of a task: over after Config::measure_runs runs (FIKIT's T) that took
// Config::measure_us, or at once if there is a profile.
struct TaskStats {
  uint32_t runs = 0;
  double took_us = 0;
  bool profiled = false;
};

// All that is known, by user, task and kernel ID: what one user's clients say is learned for that
// user alone.
struct StatsTable {
  static constexpr size_t kKernelsMax = 1 << 16;  // about 50 MB, and 0.5 KB for each that differs
  static constexpr size_t kTasksMax = 1 << 14;
  static constexpr size_t kShareOfUser = 4;  // of all places, one user has such a part at most

  static constexpr uint64_t key(uint64_t task, uint64_t kernel_id) {
    // Both are hashes already, so mixing them by an odd multiplier keeps them apart.
    return task * 0x9e3779b97f4a7c15u ^ kernel_id;
  }

  SharedPlaces<KernelStats> kernels{kKernelsMax, kKernelsMax / kShareOfUser};
  SharedPlaces<TaskStats> tasks{kTasksMax, kTasksMax / kShareOfUser};
};

}  // namespace heddle::core
