#include "daemon/model/steady.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace heddle::core {
namespace {

constexpr double kMoment_us = 1e-6;    // what ends within it ends together
constexpr size_t kWarmUp = 2;          // launches of each that are not counted
constexpr size_t kCounted = 8;         // and at least so many that are
constexpr uint32_t kStepsMost = 3000;  // ends of cohorts and launches, in all
constexpr double kEven = 0.03;         // a smaller difference of blocks is none
constexpr double kStretchMost = 100;   // of who never ends beside the other

// One of the two, through its launches.
struct Player {
  Mix mix;
  uint32_t per_sm = 1;  // of its blocks, alone
  bool one_wave = false;
  uint32_t full = 1;      // blocks that are resident at once, alone
  double gap_us = 0;      // from its end until the next launch's blocks can start
  double block_us = 0;    // of a block in its company alone
  uint32_t waiting = 0;   // blocks without a slot
  uint32_t resident = 0;  // blocks with one
  double arrives_us = 0;  // the next launch
  bool arrived = false;   // its launch is here, and has not ended
  uint64_t order = 0;     // among launches
  double slower = 1;      // a launch, with its company, than alone
  double stretch = 1;     // of its blocks now
  double held_up_us = 0;  // what channels added to its launches
  std::array<double, kAllChannels> by_now{}, by_us{};
  std::vector<double> ends_us;
};

// Blocks of one kernel that got their slots in one moment, on each SM of a class.
struct Cohort {
  size_t of;
  uint32_t blocks;
  double left_us;
};

// SMs that hold the same.
struct SmClass {
  SmCount sms;
  bool open[2];  // to whom
  std::vector<Cohort> cohorts;

  uint32_t held(size_t of) const {
    uint32_t blocks = 0;
    for (const Cohort& c : cohorts) blocks += c.of == of ? c.blocks : 0;
    return blocks;
  }
  bool same(const SmClass& other) const {
    return open[0] == other.open[0] && open[1] == other.open[1] &&
           std::equal(cohorts.begin(), cohorts.end(), other.cohorts.begin(), other.cohorts.end(),
                      [](const Cohort& a, const Cohort& b) {
                        return a.of == b.of && a.blocks == b.blocks &&
                               std::abs(a.left_us - b.left_us) < kMoment_us;
                      });
  }
};

class Play {
 public:
  // `beside`: how long a launch of each is thought to take in this company.
  Play(const Mix& first, const Mix& second, const Steady& beside, const DeviceModel& device)
      : device_(device) {
    const Mix* mixes[] = {&first, &second};
    const SmSet all = SmSet::first(GroupCount(device.sm_groups));
    const SmSet sets[] = {first.sm_set.or_if_empty(all), second.sm_set.or_if_empty(all)};
    shared_ = !(sets[0] & sets[1]).empty();
    for (const auto& [a, b] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const SmSet set = (a ? sets[0] : all - sets[0]) & (b ? sets[1] : all - sets[1]);
      const SmCount sms(set.count().get() * device.sm_total / std::max(1U, device.sm_groups));
      if (sms.get() > 0) classes_.push_back({sms, {a, b}, {}});
    }
    for (size_t i = 0; i < 2; ++i) prepare(i, *mixes[i]);
    players_[0].slower = beside.first;
    players_[1].slower = beside.second;
    for (const size_t i : {0UL, 1UL}) calibrate(i);
  }

  Steady run() {
    Steady out;
    for (uint32_t steps = 0; !enough() && out.ended; ++steps) {
      step();
      out.ended = steps < kStepsMost;
    }
    out.first = slowdown(players_[0]);
    out.second = slowdown(players_[1]);
    out.binds_first = binds(players_[0], out.first);
    out.binds_second = binds(players_[1], out.second);
    return out;
  }

 private:
  void prepare(size_t i, const Mix& mix) {
    Player& p = players_[i];
    p.mix = mix;
    p.per_sm = std::max(1U, company(mix.shape, {}, SmCount(device_.sm_total), device_).alone);
    SmCount sms;
    for (const SmClass& c : classes_) sms += c.open[i] ? c.sms : SmCount();
    p.full = std::min(p.mix.shape.blocks, p.per_sm * sms.get());
    p.gap_us = std::min(device_.launch_gap_us, mix.duration_us / 2);
    const double waves = std::ceil(static_cast<double>(p.mix.shape.blocks) / p.full);
    p.one_wave = waves < 2;
    p.block_us = (mix.duration_us - p.gap_us) / waves;
  }

  // Played alone, a launch takes what it was measured to take.
  void calibrate(size_t i) {
    const std::vector<SmClass> empty = classes_;
    const Player other = players_[1 - i], fresh = players_[i];
    players_[1 - i].arrives_us = std::numeric_limits<double>::infinity();
    players_[1 - i].mix.use = {};
    for (uint32_t n = 0; n < kStepsMost && players_[i].ends_us.size() < kWarmUp; ++n) step();
    const Player& played = players_[i];
    double block_us = fresh.block_us;
    if (played.ends_us.size() == kWarmUp) {
      const double us = played.ends_us[1] - played.ends_us[0];
      block_us *=
          (played.mix.duration_us - played.gap_us) / std::max(kMoment_us, us - played.gap_us);
    }
    players_[i] = fresh;
    players_[i].block_us = block_us;
    players_[1 - i] = other;
    classes_ = empty;
    settled_ = {~0U, ~0U};
    now_us_ = 0;
    launches_ = 0;
  }

  bool enough() const {
    return std::all_of(players_.begin(), players_.end(),
                       [](const Player& p) { return p.ends_us.size() >= kWarmUp + kCounted; });
  }

  void step() {
    let_arrive();
    hand_out();
    settle();
    advance();
  }

  void let_arrive() {
    for (Player& p : players_) {
      if (p.arrived || p.arrives_us > now_us_ + kMoment_us) continue;
      p.arrived = true;
      p.waiting = p.mix.shape.blocks;
      p.order = ++launches_;
    }
  }

  // Slots go to the launch that came first; another gets what that leaves once it wants no more.
  void hand_out() {
    const size_t first = players_[0].order <= players_[1].order ? 0 : 1;
    for (const size_t i : {first, 1 - first}) {
      Player& p = players_[i];
      if (!p.arrived) continue;
      const Player& other = players_[1 - i];
      if (i != first && other.arrived && other.waiting > 0 && shared_) continue;
      while (p.waiting > 0 && give_round(i)) {
      }
    }
  }

  bool fits(const SmClass& c, size_t i) const {
    const LaunchShape& other = players_[1 - i].mix.shape;
    const uint32_t held = c.held(i);
    return c.open[i] && held < players_[i].per_sm &&
           room_beside(players_[i].mix.shape, held, other, c.held(1 - i), device_) > 0;
  }

  // One block on each SM of the class that holds least; false: none has room.
  bool give_round(size_t i) {
    size_t least = classes_.size();
    for (size_t c = 0; c < classes_.size(); ++c) {
      if (!fits(classes_[c], i)) continue;
      const auto load = [&](size_t k) { return classes_[k].held(0) + classes_[k].held(1); };
      if (least == classes_.size() || load(c) < load(least)) least = c;
    }
    if (least == classes_.size()) return false;
    const uint32_t blocks = std::min(players_[i].waiting, classes_[least].sms.get());
    // A launch of one wave may end unevenly: a third of its SMs each early, between, and late.
    const double early =
        players_[i].one_wave ? 1 - static_cast<double>(players_[i].mix.use.even) : 0;
    const uint32_t third = early > kEven ? blocks / 3 : 0;
    if (third > 0) {
      give(least, SmCount(third), i, 1 - 2 * early);
      give(least, SmCount(third), i, 1 - early);
    }
    give(least, SmCount(blocks - 2 * third), i, 1);
    return true;
  }

  // A block each to `sms` SMs of a class, which takes that part of the usual time.
  void give(size_t index, SmCount sms, size_t i, double part) {
    if (sms < classes_[index].sms) {
      SmClass given = classes_[index];
      given.sms = sms;
      classes_[index].sms -= sms;
      classes_.push_back(given);
      index = classes_.size() - 1;
    }
    Player& p = players_[i];
    SmClass& c = classes_[index];
    const double left = p.block_us * part;
    const auto same = std::find_if(c.cohorts.begin(), c.cohorts.end(), [&](const Cohort& k) {
      return k.of == i && std::abs(k.left_us - left) < kMoment_us;
    });
    if (same != c.cohorts.end()) {
      ++same->blocks;
    } else {
      c.cohorts.push_back({i, 1, left});
    }
    p.waiting -= sms.get();
    p.resident += sms.get();
  }

  // Who is resident in part uses so much less.
  Mix now(const Player& p) const {
    Mix mix = p.mix;
    mix.shape.threads = 0;        // slots are given out here
    mix.duration_us *= p.slower;  // it takes so long to come back to its data
    mix.whole_us *= p.slower;
    const float part = static_cast<float>(p.resident) / static_cast<float>(p.full);
    for (size_t i = 0; i < kChannels; ++i) {  // working sets stay where they are
      float& use = mix.use.of[i];
      if (use > 0 && static_cast<Channel>(i) != Channel::kL2Capacity) use *= part;
    }
    if (mix.use.dram_cold > 0) mix.use.dram_cold *= part;
    return mix;
  }

  void settle() {
    const std::array<uint32_t, 2> resident = {players_[0].resident, players_[1].resident};
    if (resident == settled_) return;
    settled_ = resident;
    const Mix both[] = {now(players_[0]), now(players_[1])};
    for (size_t i = 0; i < 2; ++i) {
      Player& p = players_[i];
      p.by_now = {};
      p.stretch = 1;
      if (p.resident == 0) continue;
      const double own = pressed(both[i], device_) / pressed(p.mix, device_);
      const Prediction beside = predict(both, i, device_);
      p.stretch = own * beside.slowdown;
      p.by_now = beside.by;
    }
  }

  void advance() {
    double step = std::numeric_limits<double>::infinity();
    for (const Player& p : players_) {
      if (!p.arrived) step = std::min(step, std::max(0.0, p.arrives_us - now_us_));
    }
    for (const SmClass& c : classes_) {
      for (const Cohort& k : c.cohorts) step = std::min(step, k.left_us * players_[k.of].stretch);
    }
    now_us_ += step;
    for (Player& p : players_) {
      if (p.resident == 0) continue;
      p.held_up_us += step * std::max(0.0, 1 - 1 / p.stretch);
      for (size_t i = 0; i < kAllChannels; ++i) p.by_us[i] += step * std::max(0.0, p.by_now[i] - 1);
    }
    for (SmClass& c : classes_) {
      std::erase_if(c.cohorts, [&](Cohort& k) {
        k.left_us -= step / players_[k.of].stretch;
        const bool ended = k.left_us < kMoment_us;
        if (ended) players_[k.of].resident -= k.blocks * c.sms.get();
        return ended;
      });
    }
    unite();
    for (Player& p : players_) {
      if (!p.arrived || p.waiting > 0 || p.resident > 0) continue;
      p.ends_us.push_back(now_us_);
      p.arrived = false;
      p.arrives_us = now_us_ + p.gap_us;
    }
  }

  // Classes that have become the same.
  void unite() {
    for (size_t i = 0; i < classes_.size(); ++i) {
      for (size_t j = classes_.size() - 1; j > i; --j) {
        if (!classes_[i].same(classes_[j])) continue;
        classes_[i].sms += classes_[j].sms;
        classes_.erase(classes_.begin() + static_cast<std::ptrdiff_t>(j));
      }
    }
  }

  static double slowdown(const Player& p) {
    if (p.ends_us.size() <= kWarmUp) return kStretchMost;
    const double span = p.ends_us.back() - p.ends_us[kWarmUp - 1];
    return span / static_cast<double>(p.ends_us.size() - kWarmUp) / p.mix.duration_us;
  }

  // What added more: waiting for slots, or the channel that added most while its blocks ran.
  static Channel binds(const Player& p, double slowdown) {
    const double launches = static_cast<double>(p.ends_us.size());
    const double added_us = (slowdown - 1) * p.mix.duration_us * launches;
    if (added_us > 2 * p.held_up_us) return Channel::kSlots;
    const auto most = std::max_element(p.by_us.begin(), p.by_us.end());
    return static_cast<Channel>(most - p.by_us.begin());
  }

  const DeviceModel& device_;
  std::array<Player, 2> players_;
  std::vector<SmClass> classes_;
  bool shared_ = true;
  std::array<uint32_t, 2> settled_{~0U, ~0U};  // what stretches are of
  double now_us_ = 0;
  uint64_t launches_ = 0;
};

// Its launch is known, and an SM of its set holds one of its blocks.
bool can_be_played(const Mix& m, const DeviceModel& device) {
  const SmSet all = SmSet::first(GroupCount(device.sm_groups));
  return m.shape.threads > 0 && m.shape.blocks > 0 && m.duration_us > 0 &&
         !(m.sm_set.or_if_empty(all) & all).empty() &&
         room_beside(m.shape, 0, m.shape, 0, device) > 0;
}

}  // namespace

Steady steady(const Mix& first, const Mix& second, const DeviceModel& device) {
  if (!can_be_played(first, device) || !can_be_played(second, device)) return {};
  const Steady once = Play(first, second, {}, device).run();
  return Play(first, second, once, device).run();
}

}  // namespace heddle::core
