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

// A distribution of durations or gaps in constant memory, for the measurement stage.
class Distribution {
 public:
  void add(double us);
  // Replaces all samples; none may be added afterwards.
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
  // Starts from a summary of earlier samples.
  void restore(const Summary& summary);
  double mean() const { return mean_; }
  double deviation() const { return deviation_; }
  uint32_t count() const { return count_; }

 private:
  double mean_ = 0;
  double deviation_ = 0;
  uint32_t count_ = 0;
};

// The four kernels that a client launched last: 16 bits of each one's ID, the latest in the lowest.
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

// A kernel's execution time alone on the device. A sample taken while another client had work
// counts only until there is an exclusive one. Sharing stretches such samples, so the estimate
// follows the shortest of them. A kernel that was never timed has an inferred duration: from the
// time when queues with it ended (infer_durations), or from its time on fewer SMs.
//
// A kernel ID may stand for work of different lengths. The grid of a convolution depends on its
// output alone, and the number of input channels is a parameter (fcn_resnet50 on an H200: 455 and 2
// 000 µs of one ID). If exclusive samples differ that much, launches are told apart by the kernels
// that their client launched before, for each context that was timed. (If several threads launch in
// varying order, no context comes again.)
class DurationEstimate {
 public:
  static constexpr size_t kContextsMax = 16;  // beyond that the oldest is replaced

  void add(double us, bool exclusive, Context before);
  void infer(double us) { inferred_us_ = us; }
  void restore(const Summary& summary) { exclusive_.restore(summary); }
  void restore(Context before, const Summary& summary);
  bool timed() const { return exclusive_.count() > 0 || shared_us_ > 0; }
  bool known() const { return timed() || inferred_us_ > 0; }
  double us() const;  // in all contexts; 0: unknown
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
    bool known() const { return samples >= 2; }  // a single sample may be an outlier
  };
  InContext& in(Context before);
  Ewma exclusive_;
  double shared_us_ = 0, inferred_us_ = 0;
  std::vector<InContext> contexts_;
  uint32_t told_apart_ = 0, next_ = 0;
};

// The idle time that follows a kernel. A launch that fills the gap can rely on a low quantile of
// it, not on the mean. The quantile is followed online: a gap shorter than predicted lowers it by
// more than a longer one raises it.
class GapEstimate {
 public:
  // The share of gaps that may turn out shorter than predicted. A miss costs the more important
  // client only the rest of the kernel in flight, so a third of misses costs little (7 % of a
  // kernel if gaps spread by a quarter). A lower share would cost best-effort throughput.
  static constexpr double kMissShare = 0.35;
  static constexpr uint32_t kSamplesMin = 2;  // with fewer, no gap is predicted
  // A task may enter another phase: another batch size, decoding after the prompt. kPhaseGaps gaps
  // in a row that are all shorter, or all longer, than predicted by this factor count as that, and
  // the earlier samples are dropped.
  static constexpr int kPhaseGaps = 3;
  static constexpr double kPhaseFactor = 2;

  void add(double us);
  void restore(const Summary& summary);
  bool known() const { return gaps_.count() >= kSamplesMin; }
  double low_us() const { return known() ? low_us_ : 0; }
  double high_us() const;  // hardly any gap is longer

 private:
  bool phase_changed(double us);

  Ewma gaps_;
  double low_us_ = 0;
  int strange_ = 0;            // gaps in a row that may be of a new phase; negative: shorter ones
  double strange_low_us_ = 0;  // the shortest of them
};

struct KernelStats {
  DurationEstimate duration;
  // The gaps after a kernel are of two kinds: the client goes on launching, or it synchronized
  // first. Most idle time is in the second kind. A kernel may repeat within an iteration, so in one
  // estimate the many short gaps would hide the long ones.
  GapEstimate gap_launching;
  GapEstimate gap_synchronized;

  GapEstimate& gap(bool synchronized) { return synchronized ? gap_synchronized : gap_launching; }
  uint64_t launches = 0;
  ipc::KernelMetrics metrics{};

  // The measurement stage: exclusive samples only. They do not change once `profiled` is set.
  Distribution durations, gaps_launching, gaps_synchronized;
  uint32_t timed = 0;  // samples of its duration, exclusive or not
  bool profiled = false;
  std::unique_ptr<const Use> use;  // of the GPU's channels; null: never measured
  // The duration for which `use` was computed; 0: it depends on none.
  static constexpr double kUseProfiled = -1;  // the duration in the profiler's run
  double use_us = 0;
};

// The measurement stage of a task. It is over after Config::measure_runs runs (FIKIT's T) that took
// at least Config::measure_us, or at once if there is a profile.
struct TaskStats {
  uint32_t runs = 0;
  double took_us = 0;
  bool profiled = false;
};

// All statistics, by user, task and kernel ID. Records of one user's clients affect that user
// alone.
struct StatsTable {
  static constexpr size_t kKernelsMax = 1 << 16;  // about 50 MB, and 0.5 KB for each that differs
  static constexpr size_t kTasksMax = 1 << 14;
  static constexpr size_t kShareOfUser = 4;  // a user has at most a fourth of all places

  static constexpr uint64_t key(uint64_t task, uint64_t kernel_id) {
    // Both are hashes already, so mixing them by an odd multiplier keeps them apart.
    return task * 0x9e3779b97f4a7c15u ^ kernel_id;
  }

  SharedPlaces<KernelStats> kernels{kKernelsMax, kKernelsMax / kShareOfUser};
  SharedPlaces<TaskStats> tasks{kTasksMax, kTasksMax / kShareOfUser};
};

}  // namespace heddle::core
