#include "daemon/core/budget.h"

#include <algorithm>
#include <utility>

namespace heddle::core {
namespace {

// The most that one run refunds or charges, as a part of what it takes alone; or the time that
// others were at work in it, if that is longer. Any further delay had other causes.
constexpr double kRunMost = 1;
// A neighbour whose launches had a price of 0 gets this part of its base time as weight in the
// blame.
constexpr double kShareLeast = 1 / 16.0;

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

// Shares the blame for the time added to this run among the neighbours whose launches went in it.
// If there were none, the shares of the run before stay: its launches may still have been on the
// GPU.
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
  last_.broken_now = last_.slowdown > slowdown_max_;
  if (last_.broken_now) {
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

}  // namespace heddle::core
