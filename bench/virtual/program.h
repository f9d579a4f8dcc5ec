// The jobs of a scenario as programs for the virtual machine: a synthetic iteration as
// bench/workloads/synthetic.cc plays it, or a recorded trace. Deterministic by seed; each keeps the
// samples of its block as the job protocol reports them (bench/runner/job.h).
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "bench/runner/job.h"
#include "bench/scenario/scenario.h"
#include "daemon/sim/script.h"
#include "daemon/sim/virtual.h"

namespace heddle::bench {

using sim::TraceScript;

// When requests come, in virtual time.
class Arrivals {
 public:
  // `recorded`: seconds, ascending, repeated; of ArrivalKind::kRecorded. After `settled` they come
  // again from the first, so that a block has the requests that one without settling has.
  Arrivals(const scenario::Arrivals& arrivals, std::vector<double> recorded, uint64_t seed,
           sim::TimeNs settled = 0);

  bool closed() const { return kind_ == scenario::ArrivalKind::kClosed; }
  sim::TimeNs next() const { return base_ + next_; }
  void advance();

 private:
  void begin();

  const scenario::ArrivalKind kind_;
  const double per_s_;
  const uint32_t burst_;
  const std::vector<double> recorded_;
  const uint64_t seed_;
  sim::TimeNs settled_;
  std::mt19937_64 random_;
  sim::TimeNs next_ = 0, base_ = 0;
  size_t count_ = 0;
};

// The processor of a program, slower now and then: by `noise` of its host time, half of the time,
// for a third of a second each.
class HostSpeed {
 public:
  HostSpeed(double noise, uint64_t seed) : noise_(noise), random_(seed) {}
  // What takes `ns` takes this long if it begins at `now`, which does not go back.
  sim::TimeNs at(sim::TimeNs now, sim::TimeNs ns);

 private:
  const double noise_;
  std::mt19937_64 random_;
  sim::TimeNs until_ = 0;
  bool slow_ = false;
};

// What all programs share: the block whose samples count, the requests and the host.
class JobProgram : public sim::Program {
 public:
  // Samples are those of iterations due in [from, to).
  JobProgram(Arrivals arrivals, sim::TimeNs from, sim::TimeNs to, HostSpeed host);

  // Registers the kernels with the machine's client.
  virtual void load(sim::VirtualMachine& machine, size_t client) = 0;

  const Samples& samples();
  uint64_t iterations() const { return iterations_; }  // ended, whether or not they count
  // True while an iteration that counts has begun and not ended.
  bool owes() const { return begun_ && counts(due_); }

 protected:
  // Host time until the next iteration begins, which is then due; `pause` as drawn for it.
  sim::TimeNs begin(sim::TimeNs now, sim::TimeNs pause);
  void token(sim::TimeNs now);  // one is there
  void end(sim::TimeNs now);
  bool closed() const { return arrivals_.closed(); }

  HostSpeed host_;

 private:
  bool counts(sim::TimeNs at) const { return at >= from_ && at < to_; }

  Arrivals arrivals_;
  const sim::TimeNs from_, to_;
  bool begun_ = false;
  uint64_t iterations_ = 0;
  sim::TimeNs due_ = 0, first_ = 0, last_ = 0;
  std::vector<sim::TimeNs> tokens_at_;  // of this iteration
  Samples samples_;
  bool closed_account_ = false;
};

std::unique_ptr<JobProgram> make_synthetic(const scenario::SimJob& job, Arrivals arrivals,
                                           sim::TimeNs from, sim::TimeNs to, HostSpeed host,
                                           uint64_t seed);
// `script` must outlive it. With `tokens` an iteration of it is a token, and so many a request.
std::unique_ptr<JobProgram> make_traced(const TraceScript& script, uint32_t tokens,
                                        Arrivals arrivals, sim::TimeNs from, sim::TimeNs to,
                                        HostSpeed host, uint64_t seed);

}  // namespace heddle::bench
