#include "daemon/core/budget.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// Of a kernel, or beside a client, of which nothing is known: both have half of the GPU.
constexpr double kUnknownSlowdown = 2;
// A refund or a charge by one run, in parts of what it takes alone, or as long as others were at
// work in it: the rest held it up for other reasons.
constexpr double kRunMost = 1;
// Whose launches were thought to be free shares in what is added all the same.
constexpr double kShareLeast = 1 / 16.0;
// A kernel's use is computed anew once its duration has moved by that part.
constexpr double kUseApart = 0.1;

}  // namespace

void RecentMix::add(const Use* use, const LaunchShape& shape, double us) {
  if (us <= 0) return;
  const double weight = std::min(1.0, us / kMemoryUs);
  mix_.duration_us += (us - mix_.duration_us) * (mix_.duration_us > 0 ? weight : 1);
  shape_us_ *= 1 - weight;
  if (us >= shape_us_) {
    shape_us_ = us;
    mix_.shape = shape;
  }
  if (use != nullptr) {
    const auto add = [&](float& mean, float now) {
      if (now >= 0) mean = mean < 0 ? now : mean + (now - mean) * static_cast<float>(weight);
    };
    for (size_t i = 0; i < kChannels; ++i) add(mix_.use.of[i], use->of[i]);
    add(mix_.use.dram_cold, use->dram_cold);
    add(mix_.use.l1_reuse, use->l1_reuse);
    add(mix_.use.l2_reuse, use->l2_reuse);
    mix_.use.smem_ways = use->smem_ways;
  }
  since_us_ += us;
  if (version_ == 0 || since_us_ >= kMemoryUs) {
    since_us_ = 0;
    ++version_;
  }
}

void Account::promise(double slowdown_max) {
  if (slowdown_max == slowdown_max_) return;
  *this = {};
  slowdown_max_ = slowdown_max > 1 ? slowdown_max : 0;
  last_.slowdown_max = slowdown_max_;
}

void Account::at_work(double us, bool beside) {
  if (beside) beside_us_ += us;
  balance_us_ = std::min(most_us(), balance_us_ + kAim * (slowdown_max_ - 1) * us);
}

double LearnedCost::base_us(const Price& predicted) {
  return std::max(predicted.us, kLeast * predicted.time_us);
}

void LearnedCost::add(double base, double cost) {
  const double keep = kMemory / (kMemory + base);
  base_ = base_ * keep + base;
  cost_ = std::max(0.0, cost_ * keep + cost);
  prior_ *= keep;
}

double LearnedCost::corrected_us(const Price& predicted) const {
  return (cost_ * base_us(predicted) + prior_ * predicted.us) / (base_ + prior_);
}

Price Account::corrected(ClientId neighbour, Price price) const {
  for (const Neighbour& n : neighbours_) {
    if (n.id != neighbour || n.in_gaps != price.fits_gap) continue;
    price.us = n.cost.corrected_us(price);
  }
  return price;
}

bool Account::affords(const Price& price) const {
  if (price.fits_gap && price.us <= kNil * price.time_us) return true;
  return std::min(price.us, most_us()) <= balance_us_;
}

void Account::charge(ClientId neighbour, const Price& predicted) {
  const double us = corrected(neighbour, predicted).us;
  const double before_us = balance_us_;
  balance_us_ -= us;
  dearest_us_ = std::max(dearest_us_, us);
  keep_within();
  charged_us_ += before_us - balance_us_;
  charged_by_[index_of(predicted.channel)] += us;
  Neighbour* place = &neighbours_[0];
  for (Neighbour& n : neighbours_) {
    if (n.id == neighbour && n.in_gaps == predicted.fits_gap) {
      place = &n;
      break;
    }
    if (n.used < place->used) place = &n;
  }
  if (place->id != neighbour || place->in_gaps != predicted.fits_gap) {
    *place = {};
    place->id = neighbour;
    place->in_gaps = predicted.fits_gap;
  }
  place->used = ++uses_;
  place->base_us += LearnedCost::base_us(predicted);
  place->charged_us += us;
}

// Who is to blame for what is added to this run: those whose launches went in it; else those of the
// run before, whose launches it may have found on the GPU.
void Account::share_out(bool beside) {
  const auto weight = [](const Neighbour& n) { return n.charged_us + kShareLeast * n.base_us; };
  double all = 0;
  for (const Neighbour& n : neighbours_) all += weight(n);
  for (Neighbour& n : neighbours_) {
    if (all > 0) n.share = weight(n) / all;
    if (all <= 0 && !beside) n.share = 0;
  }
}

void Account::correct(double took_us, double alone_us, bool beside) {
  const double most = kRunMost * alone_us;
  const double added_us = std::clamp(took_us - alone_us, -most, std::max(most, beside_us_));
  share_out(beside);
  for (Neighbour& n : neighbours_) {
    if (n.share > 0) n.cost.add(n.base_us / alone_us, n.share * added_us / alone_us);
  }
  run_us_ = alone_us;
  balance_us_ += charged_us_ - added_us;
  keep_within();
}

void Account::end_run(double took_us, double alone_us, bool beside) {
  if (!promised()) return;
  if (alone_us > 0) {
    correct(took_us, alone_us, beside);
    took_us_ += took_us;
    alone_us_ += alone_us;
    ++runs_;
    if (took_us_ >= kBlockUs && runs_ >= kBlockRuns) end_block();
  }
  charged_us_ = beside_us_ = 0;
  for (Neighbour& n : neighbours_) n.base_us = n.charged_us = 0;
}

void Account::end_block() {
  ++last_.blocks;
  last_.slowdown = took_us_ / alone_us_;
  if (last_.slowdown > slowdown_max_) {
    ++last_.broken;
    const auto most = std::max_element(charged_by_.begin(), charged_by_.end());
    last_.channel.reset();
    if (*most > 0) last_.channel = static_cast<Channel>(most - charged_by_.begin());
  }
  dearest_before_us_ = std::exchange(dearest_us_, 0);
  took_us_ = alone_us_ = 0;
  runs_ = 0;
  charged_by_ = {};
}

PromiseStatus Account::status() const {
  PromiseStatus status = last_;
  status.balance_us = balance_us_;
  return status;
}

PriceCache::Entry& PriceCache::at(const Key& key) {
  uint64_t hash = key.victim * 0x9e3779b97f4a7c15u;
  hash = (hash ^ key.neighbour ^ uint64_t{key.kernel} << 32 ^ key.set.bits()) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ key.victims.bits()) * 0x9e3779b97f4a7c15u;
  return entries_[hash >> 55];
}

// ---- in the scheduler -------------------------------------------------------------------------

LaunchShape Scheduler::State::shape_of(const Kernel& k) {
  const ipc::KernelFacts& f = k.facts;
  return {f.grid_blocks, f.block_threads, f.registers, f.dynamic_smem_bytes + f.static_smem_bytes,
          f.max_blocks_per_sm};
}

// What is left of the victim's gap by work of others that is in flight, less `own_us` of it.
double Scheduler::State::gap_for(const Client& victim, double own_us) const {
  double left_us = victim.gap_left_us(clock);
  if (left_us <= 0) return 0;
  left_us += own_us;
  for (const Client* c : active) {
    if (c != &victim) left_us -= c->remaining_us(clock);
  }
  return std::max(0.0, left_us);
}

// What the victim loses while a launch of `us` runs beside it. What fits its gap costs nothing.
// Time-sliced all of it does, and the way there and back.
Price Scheduler::State::price(const Client& victim, const Client& by, uint32_t kernel, double us,
                              SmSet set, double gap_us) {
  const double beside_us = std::max(0.0, us - gap_us);
  if (beside_us <= 0) return {0, Channel::kSlots, us, true};
  if (!config.mps) return {beside_us + config.switch_us, Channel::kSlots, beside_us};
  const SmSet victims = runs_on(victim);
  const PriceCache::Key key{victim.id, by.id, kernel, victim.mix.version(), set, victims};
  PriceCache::Entry& entry = prices.at(key);
  if (entry.key != key) {
    entry = {key, kUnknownSlowdown, Channel::kSlots};
    const Kernel* k = by.kernel(kernel);
    Mix mixes[] = {victim.mix.mix(), {}};
    mixes[0].sm_set = victims;
    mixes[1].sm_set = set.or_if_empty(by.sm_set);
    mixes[1].duration_us = us;
    if (k != nullptr) {
      mixes[1].shape = k->facts.block_threads != 0 ? shape_of(*k) : LaunchShape{};
      if (const Use* use = use_here(*k, us)) mixes[1].use = *use;
    }
    const Prediction p = core::predict(mixes, 0, model);
    const bool blocked = p.binds == Channel::kSlots && p.waits_for_us > 0;
    if (blocked || (mixes[0].use.any_known() && mixes[1].use.any_known())) {
      entry.slowdown = p.slowdown;
      entry.channel = p.binds;
    }
  }
  return {beside_us * (1 - 1 / entry.slowdown), entry.channel, beside_us};
}

// Work of the client goes to the GPU.
void Scheduler::State::charge_promises(Client& c, const Work& work) {
  if (promises == 0) return;
  const Kernel* k = c.kernel(work.kernel);
  if (k != nullptr) {
    c.mix.add(use_here(*k, work.predicted_us),
              k->facts.block_threads != 0 ? shape_of(*k) : LaunchShape{}, work.predicted_us);
  }
  for (Client* victim : active) {
    if (victim->priority >= c.priority || !victim->account.promised()) continue;
    const double gap_us = gap_for(*victim, work.predicted_us);
    const Price p = price(*victim, c, work.kernel, work.predicted_us, work.sm_set, gap_us);
    victim->account.charge(c.id, p);
  }
}

void Scheduler::State::refill_accounts(double us) {
  for (Client* c : active) {
    if (c->at_work && c->account.promised()) c->account.at_work(us, residents > 1);
  }
}

// Whether all promises above the client can afford a launch of it that is predicted to take `us`.
BudgetVerdict Scheduler::State::promises_afford(const Client& by, uint32_t kernel, double us,
                                                SmSet set) {
  if (promises == 0) return {};
  for (const Client* victim : active_above(by.priority)) {
    if (!victim->account.promised()) continue;
    const Price p = price(*victim, by, kernel, us, set, gap_for(*victim, 0));
    if (victim->account.affords(victim->account.corrected(by.id, p))) continue;
    return {false, victim->id, p.channel};
  }
  return {};
}

BudgetVerdict Scheduler::State::budget_fits(LaunchId id, SmCount sm) {
  const uint32_t slot = slot_of(id);
  if (slot == kNoSlot || promises == 0) return {};
  const Waiting& w = waiting[slot];
  Work work;
  work.kernel = w.kernel;
  work.kind = w.kind;
  const bool own_size = sm.get() == 0 && w.movable();
  work.sm_set = own_size ? set_of(*w.client, w.kernel) : peek_set(*w.client, w, sm);
  predict(*w.client, work);
  return promises_afford(*w.client, w.kernel, work.predicted_us, work.sm_set);
}

// The SMs of what the client has in flight, or else of what it launched last.
SmSet Scheduler::State::runs_on(const Client& c) const {
  const SmSet set = c.outstanding.empty() ? set_of(c, c.last_kernel) : c.outstanding.sm_set();
  return set.or_if_empty(c.sm_set);
}

// By the mixes of all that are at work.
double Scheduler::State::slowdown(ClientId id) {
  const Client* victim = find(id);
  if (victim == nullptr) return 1;
  std::array<Mix, kMixesMax> mixes;
  size_t count = 0;
  mixes[count] = victim->mix.mix();
  mixes[count++].sm_set = runs_on(*victim);
  for (const Client* c : active) {
    if (c == victim || !c->at_work || count == mixes.size()) continue;
    mixes[count] = c->mix.mix();
    mixes[count++].sm_set = runs_on(*c);
  }
  return core::predict({mixes.data(), count}, 0, model).slowdown;
}

double Scheduler::State::channel_left(Channel channel) const {
  double left = model.limits[index_of(channel)].capacity;
  for (const Client* c : active) {
    if (c->at_work) left -= std::max(0.0, static_cast<double>(c->mix.mix().use[channel]));
  }
  return std::max(0.0, left);
}

void Scheduler::set_device_model(const DeviceModel& model) { state_->model = model; }

// What was measured of a kernel, and so what it uses of each channel.
void Scheduler::State::learn_use(KernelStats& stats, const ipc::KernelMetrics& metrics) {
  if (metrics.there == 0) return;
  stats.metrics.merge(metrics);
  const Use use = use_of(stats.metrics, model);
  if (!use.any_known()) return;
  stats.use = std::make_unique<Use>(use);
  stats.use_us = stats.metrics.get("us_profiled") ? KernelStats::kUseProfiled : 0;
  prices = {};
}

// What it uses, taking `us` here: a profiler's run is longer. nullptr: nobody measured it.
const Use* Scheduler::State::use_here(const Kernel& k, double us) {
  KernelStats& s = *k.stats;
  const bool apart = s.use_us != 0 && std::abs(us - s.use_us) > kUseApart * us;
  if (apart && us > 0 && k.facts.block_threads != 0) {
    s.use = std::make_unique<Use>(use_of(s.metrics, us, model));
    s.use_us = us;
  }
  return s.use.get();
}

void Scheduler::set_use(uint32_t uid, uint64_t task, uint64_t kernel_id, const Use& use) {
  State& s = *state_;
  KernelStats* stats = s.table.kernels.peek(uid, StatsTable::key(task, kernel_id));
  if (stats == nullptr) return;
  stats->use = std::make_unique<Use>(use);
  stats->use_us = 0;
  s.prices = {};
}

}  // namespace heddle::core
