#include "daemon/core/promises.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace heddle::core {
namespace {

// The slowdown if the use of the kernel or of the client is unknown: each has half of the GPU.
constexpr double kUnknownSlowdown = 2;
// The slowdown if the estimator cannot tell: such a launch fits beside no client. If it goes all
// the same (by the starvation bound), it costs all of its time.
constexpr double kAnySlowdown = std::numeric_limits<double>::infinity();
// A kernel's use is computed anew once its duration has changed by this part.
constexpr double kUseApart = 0.1;
constexpr size_t kMixesMax = 16;  // clients at work whose mixes count

// The kernel's shape; a graph's is unknown.
LaunchShape shape_of(const Kernel& k) {
  const ipc::KernelFacts& f = k.facts;
  if (k.is_graph()) return {};
  return {f.grid_blocks, f.block_threads, f.registers, f.dynamic_smem_bytes + f.static_smem_bytes,
          f.max_blocks_per_sm};
}

bool same(const ipc::KernelMetrics& a, const ipc::KernelMetrics& b) {
  return a.there == b.there && std::equal(std::begin(a.values), std::end(a.values), b.values);
}

}  // namespace

void Promises::promise(Client& c, const SlowdownMax& slowdown_max) {
  forget(c);
  c.promise.account.promise(static_cast<double>(slowdown_max.mean));
  c.promise.tail.promise(static_cast<double>(slowdown_max.p99));
  promised_ += c.promise.account.promised() ? 1 : 0;
}

void Promises::forget(const Client& c) { promised_ -= c.promise.account.promised() ? 1 : 0; }

// What work of others in flight leaves of the victim's gap. `own_us` of that work does not count.
double Promises::gap_for(const Client& victim, double own_us) const {
  double left_us = victim.gap_left_us(now_.clock);
  if (left_us <= 0) return 0;
  left_us += own_us;
  for (const Client* c : roster_.active()) {
    if (c != &victim) left_us -= c->remaining_us(now_.clock);
  }
  return std::max(0.0, left_us);
}

// The time that the victim loses while a launch of `us` runs beside it. The part that fits its gap
// costs nothing. Time-sliced, all of the rest counts, and the switch.
Price Promises::price(const Client& victim, const Client& by, uint32_t kernel, double us, SmSet set,
                      double gap_us) {
  const double beside_us = std::max(0.0, us - gap_us);
  if (beside_us <= 0) return {0, Channel::kSlots, us, true};
  if (!now_.config.mps) return {beside_us + now_.config.switch_us, Channel::kSlots, beside_us};
  const SmSet victims = victim.runs_on();
  const PriceCache::Key key{victim.id, by.id, kernel, victim.promise.mix.version(), set, victims};
  PriceCache::Entry& entry = prices_.at(key);
  if (entry.key != key) {
    entry = {key, kUnknownSlowdown, Channel::kSlots};
    const Kernel* k = by.kernel(kernel);
    Mix mixes[] = {victim.promise.mix.mix(), {}};
    mixes[0].sm_set = victims;
    mixes[1].sm_set = set.or_if_empty(by.place.sm_set);
    mixes[1].duration_us = us;
    if (k != nullptr) {
      mixes[1].shape = shape_of(*k);
      if (const Use* use = use_here(*k, us)) mixes[1].use = *use;
    }
    const Prediction p = predict(mixes, 0, model_);
    const bool blocked = p.binds == Channel::kSlots && p.waits_for_us > 0;
    if (blocked || (mixes[0].use.any_known() && mixes[1].use.any_known())) {
      const double unknown = !blocked && k != nullptr ? k->unknown() : 0;
      entry.slowdown = p.slowdown + unknown * (kUnknownSlowdown - p.slowdown);
      if (!p.known) entry.slowdown = kAnySlowdown;
      entry.channel = p.binds;
    }
  }
  const bool known = entry.slowdown != kAnySlowdown;
  return {beside_us * (1 - 1 / entry.slowdown), entry.channel, beside_us, false, known};
}

void Promises::charge(Client& c, const Work& work) {
  if (promised_ == 0) return;
  const Kernel* k = c.kernel(work.kernel);
  if (k != nullptr) {
    c.promise.mix.add(use_here(*k, work.predicted_us), shape_of(*k), work.predicted_us);
  }
  for (Client* victim : roster_.active()) {
    if (victim->rule.priority >= c.rule.priority || !victim->promise.account.promised()) continue;
    const double gap_us = gap_for(*victim, work.predicted_us);
    const Price p = price(*victim, c, work.kernel, work.stop_us, c.set_of(work), gap_us);
    victim->promise.account.charge(c.id, p);
  }
}

void Promises::pass(double us) {
  if (promised_ == 0) return;
  for (Client* c : roster_.active()) {
    if (c->at_work && c->promise.account.promised())
      c->promise.account.at_work(us, gpu_time_.residents() > 1);
  }
}

BudgetVerdict Promises::afford(const Client& by, uint32_t kernel, double us, SmSet set) {
  if (promised_ == 0) return {};
  for (const Client* victim : roster_.above(by.rule.priority)) {
    if (!victim->promise.account.promised()) continue;
    const Price p = price(*victim, by, kernel, us, set, gap_for(*victim, 0));
    const Account& account = victim->promise.account;
    if (p.known && account.affords(account.corrected(by.id, p))) continue;
    return {false, victim->id, p.channel, p.known};
  }
  return {};
}

double Promises::slowdown(const Client& victim) const {
  std::array<Mix, kMixesMax> mixes;
  size_t count = 0;
  mixes[count] = victim.promise.mix.mix();
  mixes[count++].sm_set = victim.runs_on();
  for (const Client* c : roster_.active()) {
    if (c == &victim || !c->at_work || count == mixes.size()) continue;
    mixes[count] = c->promise.mix.mix();
    mixes[count++].sm_set = c->runs_on();
  }
  const Prediction p = predict({mixes.data(), count}, 0, model_);
  if (!p.known) return kAnySlowdown;
  return p.slowdown;
}

double Promises::channel_left(Channel channel) const {
  double left = model_.limits[index_of(channel)].capacity;
  for (const Client* c : roster_.active()) {
    if (c->at_work) left -= std::max(0.0, static_cast<double>(c->promise.mix.mix().use[channel]));
  }
  return std::max(0.0, left);
}

void Promises::learn_use(KernelStats& stats, const ipc::KernelMetrics& metrics) {
  if (metrics.there == 0) return;
  const ipc::KernelMetrics before = stats.metrics;
  stats.metrics.merge(metrics);
  if (!same(before, stats.metrics)) ++uses_;
  const Use use = use_of(stats.metrics, model_);
  if (!use.any_known()) return;
  stats.use = std::make_unique<Use>(use);
  stats.use_us = stats.metrics.get("us_profiled") ? KernelStats::kUseProfiled : 0;
  prices_ = {};
}

// A profiler's run takes longer than a real one, so the use is computed for the time here.
const Use* Promises::use_here(const Kernel& k, double us) {
  if (k.by_nodes) return k.by_nodes->use.any_known() ? &k.by_nodes->use : nullptr;
  KernelStats& s = *k.stats;
  const bool apart = s.use_us != 0 && std::abs(us - s.use_us) > kUseApart * us;
  if (apart && us > 0 && k.facts.block_threads != 0) {
    s.use = std::make_unique<Use>(use_of(s.metrics, us, model_));
    s.use_us = us;
  }
  return s.use.get();
}

// A probe measures a graph as a whole. That counts until each of its kernels was measured.
bool Promises::learn_nodes(Kernel& graph, std::span<const GraphPart> parts) {
  const ipc::KernelMetrics before = graph.metrics();
  graph.uses = uses_;
  graph.by_nodes.reset();
  prices_ = {};
  GraphUse use = graph_use(parts, model_);
  const bool whole = use.unknown <= 0 && use.use.any_known();
  if (whole || graph.stats->use == nullptr) {
    ipc::KernelMetrics metrics = graph.stats->metrics;
    metrics.merge(use.metrics);
    use.metrics = metrics;
    graph.by_nodes = std::make_unique<GraphUse>(use);
  }
  return !same(before, graph.metrics());
}

void Promises::set_use(KernelStats& stats, const Use& use) {
  stats.use = std::make_unique<Use>(use);
  stats.use_us = 0;
  prices_ = {};
  ++uses_;
}

void Ceilings::limit(Client& c, const ChannelMax& max) {
  forget(c);
  c.ceiling.limit(max);
  limited_ += c.ceiling.any() ? 1 : 0;
}

void Ceilings::forget(const Client& c) { limited_ -= c.ceiling.any() ? 1 : 0; }

bool Ceilings::beside(const Client& c) const {
  const auto& active = roster_.active();
  return active.size() > 1 || (active.size() == 1 && active.front() != &c);
}

void Ceilings::pass(double us) {
  if (!any()) return;
  for (const auto& [id, c] : roster_.all()) {
    if (c->ceiling.any()) c->ceiling.pass(us, beside(*c));
  }
}

void Ceilings::spend(Client& c, const Work& work) {
  // A graph that was stopped inside pays only for the rest.
  spend(c, work.kernel, std::max(0.0, c.predict_us(work.kernel) - work.ran_us));
}

void Ceilings::give_back(Client& c, const Work& work, double ran_us) {
  spend(c, work.kernel, std::min(0.0, work.ran_us + ran_us - c.predict_us(work.kernel)));
}

void Ceilings::spend(Client& c, uint32_t kernel, double us) {
  if (!limits(c)) return;
  const Kernel* k = c.kernel(kernel);
  if (k == nullptr) return c.ceiling.spend(nullptr, us);
  c.ceiling.spend(promises_.use_here(*k, c.predict_us(kernel)), us * (1 - k->unknown()));
  c.ceiling.spend(nullptr, us * k->unknown());
}

}  // namespace heddle::core
