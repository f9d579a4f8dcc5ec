#include "bench/virtual/program.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::bench {
namespace {

using sim::Step;
using sim::TimeNs;

TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }

class Synthetic final : public JobProgram {
 public:
  Synthetic(const scenario::SimJob& job, Arrivals arrivals, TimeNs from, TimeNs to, HostSpeed host,
            uint64_t seed)
      : JobProgram(std::move(arrivals), from, to, std::move(host)), job_(job), random_(seed) {
    if (job.block.median_us > 0) launches_ = launches_of(job);
  }

  void load(sim::VirtualMachine& machine, size_t client) override {
    sim::LaunchSpec spec{"heddle_spin", job_.kernel.median_us, job_.blocks, 1024};
    spec.saturation = sim::facts::kSaturation;
    if (launches_.empty()) machine.add_kernel(client, spec);
    for (const scenario::SimLaunch& launch : launches_) {
      spec.us = launch.us;
      spec.blocks = launch.blocks;
      machine.add_kernel(client, spec);
    }
  }

  bool next(TimeNs now, Step& step) override {
    if (launched_ == job_.kernels && !sync_due_) {  // its last synchronizing call has returned
      launched_ = 0;
      if (job_.tokens > 0) token(now);
      if (++tokens_ >= job_.tokens) {
        end(now);
        tokens_ = 0;
      }
    }
    step.think_ns = 0;
    if (launched_ == 0 && tokens_ == 0) {
      step.think_ns = begin(now, first_ ? 0 : host_.at(now, draw(job_.pause)));
      first_ = false;
    } else if (launched_ > 0 && (sync_due_ || !synchronized_)) {
      // After each launch, the last before a synchronize too.
      step.think_ns = host_.at(now, draw(job_.gap));
    }
    synchronized_ = sync_due_;
    if (sync_due_) {
      sync_due_ = false;
      step.kind = Step::Kind::kSynchronize;
      return true;
    }
    step.kind = Step::Kind::kLaunch;
    step.kernel = launches_.empty() ? 0 : launched_;
    step.us = launches_.empty() ? static_cast<double>(std::max<TimeNs>(1, draw(job_.kernel))) / 1e3
                                : launches_[launched_].us;
    const auto syncs = [&](uint64_t launches) { return launches * job_.syncs / job_.kernels; };
    ++launched_;
    sync_due_ = syncs(launched_) > syncs(launched_ - 1);
    return true;
  }

 private:
  TimeNs draw(const scenario::Distribution& d) {
    if (d.median_us <= 0) return 0;
    return to_ns(d.sigma > 0 ? d.median_us * std::exp(d.sigma * normal_(random_)) : d.median_us);
  }

  const scenario::SimJob job_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<scenario::SimLaunch> launches_;  // empty: drawn one by one
  uint32_t launched_ = 0;                      // of this token
  uint32_t tokens_ = 0;                        // of this iteration
  bool sync_due_ = false;                      // after the launch before this step
  bool synchronized_ = false;                  // the step before this one did
  bool first_ = true;
};

class Traced final : public JobProgram {
 public:
  Traced(const TraceScript& script, uint32_t tokens, Arrivals arrivals, TimeNs from, TimeNs to,
         HostSpeed host, uint64_t seed)
      : JobProgram(std::move(arrivals), from, to, std::move(host)),
        script_(script),
        tokens_(tokens),
        random_(seed),
        iteration_(random_() % script.iterations.size()) {}

  void load(sim::VirtualMachine& machine, size_t client) override {
    for (const sim::LaunchSpec& kernel : script_.kernels) {
      const uint32_t index = machine.add_kernel(client, kernel);
      if (&kernel == script_.kernels.data()) first_kernel_ = index;
    }
  }

  bool next(TimeNs now, Step& step) override {
    if (position_ == script_.iterations[iteration_].size()) {
      if (tokens_ > 0) token(now);
      if (++token_ >= tokens_) {
        end(now);
        token_ = 0;
      }
      position_ = 0;
      iteration_ = (iteration_ + 1) % script_.iterations.size();
    }
    const TraceScript::Launch& call = script_.iterations[iteration_][position_];
    step.think_ns = host_.at(now, to_ns(static_cast<double>(call.think_us)));
    // What the host did before the first call is the pause between iterations; with requests it was
    // the wait for one.
    if (position_ == 0 && token_ == 0) step.think_ns = begin(now, closed() ? step.think_ns : 0);
    ++position_;
    step.kind = call.synchronize ? Step::Kind::kSynchronize : Step::Kind::kLaunch;
    if (call.synchronize) return true;
    const std::vector<float>& measured = script_.measured_us[call.kernel];
    step.kernel = first_kernel_ + call.kernel;
    step.us = static_cast<double>(call.us > 0 ? call.us : measured[random_() % measured.size()]);
    return true;
  }

 private:
  const TraceScript& script_;
  const uint32_t tokens_;  // of a request, each an iteration of the script; 0: it makes none
  uint32_t token_ = 0;
  std::mt19937_64 random_;
  uint32_t first_kernel_ = 0;
  size_t iteration_;
  size_t position_ = 0;
};

}  // namespace

Arrivals::Arrivals(const scenario::Arrivals& arrivals, std::vector<double> recorded, uint64_t seed,
                   TimeNs settled)
    : kind_(arrivals.kind),
      per_s_(arrivals.per_s),
      burst_(arrivals.burst),
      recorded_(std::move(recorded)),
      seed_(seed),
      settled_(settled) {
  begin();
}

void Arrivals::begin() {
  random_.seed(seed_);
  count_ = 0;
  next_ = kind_ == scenario::ArrivalKind::kRecorded ? to_ns(recorded_[0] * 1e6) : 0;
}

void Arrivals::advance() {
  ++count_;
  if (kind_ == scenario::ArrivalKind::kRecorded) {
    const size_t size = recorded_.size();
    next_ = to_ns(
        (static_cast<double>(count_ / size) * recorded_.back() + recorded_[count_ % size]) * 1e6);
  } else if (kind_ == scenario::ArrivalKind::kPoisson) {
    next_ += to_ns(std::exponential_distribution<double>(per_s_)(random_) * 1e6);
  } else if (kind_ == scenario::ArrivalKind::kOnOff) {
    const double kind = std::bernoulli_distribution(scenario::kShortGaps)(random_)
                            ? scenario::kShortGaps
                            : 1 - scenario::kShortGaps;
    next_ += to_ns(std::exponential_distribution<double>(2 * kind * per_s_)(random_) * 1e6);
  } else {
    next_ = to_ns(static_cast<double>(count_ / burst_) / per_s_ * 1e6);
  }
  if (settled_ == 0 || next_ < settled_) return;
  base_ = std::exchange(settled_, 0);
  begin();
}

TimeNs HostSpeed::at(TimeNs now, TimeNs ns) {
  constexpr double kMeanUs = 330'000;
  for (; noise_ > 0 && now >= until_; slow_ = !slow_) {
    until_ += to_ns(std::exponential_distribution<double>(1 / kMeanUs)(random_));
  }
  return slow_ ? ns + static_cast<TimeNs>(static_cast<double>(ns) * noise_) : ns;
}

JobProgram::JobProgram(Arrivals arrivals, TimeNs from, TimeNs to, HostSpeed host)
    : host_(std::move(host)), arrivals_(std::move(arrivals)), from_(from), to_(to) {}

TimeNs JobProgram::begin(TimeNs now, TimeNs pause) {
  begun_ = true;
  tokens_at_.clear();
  due_ = now + pause;
  if (arrivals_.closed()) return pause;
  const TimeNs ready = due_;
  due_ = arrivals_.next();
  arrivals_.advance();
  return std::max(ready, due_) - now;
}

void JobProgram::token(TimeNs now) { tokens_at_.push_back(now); }

void JobProgram::end(TimeNs now) {
  const auto us = [](TimeNs ns) { return static_cast<uint32_t>((ns + 500) / 1000); };
  begun_ = false;
  ++iterations_;
  if (!counts(due_)) return;
  last_ = now;
  if (samples_.us.empty()) first_ = due_;
  samples_.us.push_back(us(now - due_));
  if (!tokens_at_.empty()) samples_.ttft_us.push_back(us(tokens_at_[0] - due_));
  for (size_t i = 1; i < tokens_at_.size(); ++i) {
    samples_.tbt_us.push_back(us(tokens_at_[i] - tokens_at_[i - 1]));
  }
}

const Samples& JobProgram::samples() {
  if (closed_account_) return samples_;
  closed_account_ = true;
  samples_.span_s = static_cast<double>(last_ - first_) / 1e9;
  if (begun_ && !arrivals_.closed() && counts(due_)) ++samples_.unserved;
  for (; !arrivals_.closed() && arrivals_.next() < to_; arrivals_.advance()) {
    if (counts(arrivals_.next())) ++samples_.unserved;
  }
  return samples_;
}

std::unique_ptr<JobProgram> make_synthetic(const scenario::SimJob& job, Arrivals arrivals,
                                           TimeNs from, TimeNs to, HostSpeed host, uint64_t seed) {
  return std::make_unique<Synthetic>(job, std::move(arrivals), from, to, std::move(host), seed);
}

std::unique_ptr<JobProgram> make_traced(const TraceScript& script, uint32_t tokens,
                                        Arrivals arrivals, TimeNs from, TimeNs to, HostSpeed host,
                                        uint64_t seed) {
  return std::make_unique<Traced>(script, tokens, std::move(arrivals), from, to, std::move(host),
                                  seed);
}

}  // namespace heddle::bench
