#include "daemon/model/interference.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace heddle::core {
namespace {

// How much being bound elsewhere spares a kernel the queues of L2 and DRAM: 1, wholly, as it does
// microbenchmarks; 0, not at all: it waits for its loads whatever binds it. Fitted to
// 870 pairs of kernels on an H100 (bench/SIZES_AND_BUDGETS.md).
constexpr double kElsewhere = 0.4;
// Of two kernels that take turns, the part of the shorter one that the longer one's last wave has
// no slots for, at the least. Fitted to the same pairs.
constexpr double kInTurn = 0.5;
// How suddenly kernels of models lose their data once an L2 is full. Copies, which go through it in
// order, lose all at once ([limit] l2_capacity). Fitted to the same pairs.
constexpr double kLostSharpness = 12;
// A neighbour that leaves a kernel some slots, and stays for so many of its launches, slows it by
// nobody knows how much: of pairs that the constants were fitted to, the worst by far.
constexpr double kLongStay = 4;
constexpr double kRounding = 1e-9;       // of a sum of shares
constexpr uint32_t kRegisterUnit = 256;  // of a warp's registers
constexpr uint32_t kWarp = 32;
// A kernel of fewer waves than that ends when its slowest SM does; of more, its blocks go where
// there is room.
constexpr double kFewWaves = 2;
// Nothing is stretched further by one channel: the others end, or are taken for stuck.
constexpr double kStretchMax = 100;

bool is_capacity(Channel c) { return c == Channel::kL1Capacity || c == Channel::kL2Capacity; }
bool is_of_device(Channel c) {
  return c == Channel::kL2Capacity || c == Channel::kL2 || c == Channel::kDram;
}

double smooth_max(double x, double sharpness) {
  if (x <= 0) return 1;
  const double log = sharpness * std::log(x);
  if (log > 200) return x;
  return std::pow(1 + std::exp(log), 1 / sharpness);
}

double known(float use) { return std::max(0.0, static_cast<double>(use)); }

// How far a channel binds the kernel alone, as a part of what binds it most.
double boundness(const Use& use, Channel channel, const DeviceModel& device) {
  double most = 0;
  for (size_t i = 0; i < kChannels; ++i) {
    if (is_capacity(static_cast<Channel>(i))) continue;
    most = std::max(most, known(use.of[i]) / device.limits[i].capacity);
  }
  const size_t own = index_of(channel);
  return most > 0 ? known(use.of[own]) / device.limits[own].capacity / most : 0;
}

// Its part of a channel that more is asked of than there is. Issue slots and pipelines go to who is
// ready: a kernel that waits for memory is ready seldom, and loses to one that never waits
// (Measuring, Table 3, S5). The shared memory pipeline takes requests in turn, each as long as it
// has conflicts (SoCC 4.4.1).
double weight(const Use& use, Channel channel, const DeviceModel& device) {
  if (channel == Channel::kSmem) return static_cast<double>(use.smem_ways);
  const double bound = boundness(use, channel, device);
  return known(use[channel]) * bound * bound;
}

struct Others {
  double use = 0, weight = 0;
  double shared = 0;  // the largest part of the victim's SMs that one of them may use
  bool known = false;
};

// What the kernel would take by this channel alone, in parts of its time.
double bandwidth_time(const Use& use, Channel channel, const Others& others,
                      const DeviceModel& device) {
  const double own = known(use[channel]);
  const double capacity = device.limits[index_of(channel)].capacity;
  if (own <= 0) return 0;
  if (is_of_device(channel)) {  // all requests are in one queue
    const double elsewhere = use.dram_cold >= 0 ? kElsewhere : 1;
    return std::pow(boundness(use, channel, device), elsewhere) * (own + others.use) / capacity;
  }
  const double w = weight(use, channel, device);
  const double in_turn = others.weight > 0 ? capacity * w / (w + others.weight) : capacity;
  const double left = capacity - others.use;
  return own / std::max({left, in_turn, own / kStretchMax});
}

// Time over the time of all hits. Programs go through their data again and again: what does not fit
// is gone when it is wanted, so hits end soon after the working sets exceed the cache.
double capacity_time(double filled, double reuse, double miss_cost, double sharpness) {
  const double kept = filled <= 0 ? 1 : 1 / (1 + std::pow(filled, sharpness));
  return 1 + reuse * (miss_cost - 1) * (1 - kept);
}

// The part of a kernel's data that is gone from the L2 when it wants it, where `filled` is all that
// its users go through over what it holds.
double missing(double filled, const DeviceModel& device) {
  const double capacity = device.limits[index_of(Channel::kL2Capacity)].capacity;
  if (filled <= 0) return 0;
  return 1 - 1 / (1 + std::pow(filled / capacity, kLostSharpness));
}

// What goes through the L2 from one use of a kernel's data to the next, over the L2's size: its
// own, and of the others' as much as they go through in the time of one of its launches.
double filled_between(std::span<const Mix> mixes, size_t kernel) {
  double filled = 0;
  for (const Mix& m : mixes) {
    const bool timed = m.duration_us > 0 && mixes[kernel].duration_us > 0;
    const double part = timed ? std::min(1.0, mixes[kernel].duration_us / m.duration_us) : 1;
    filled += part * known(m.use[Channel::kL2Capacity]);
  }
  return filled;
}

// Its use where the L2 is filled so far.
Use use_in_l2(const Use& use, double filled, const DeviceModel& device) {
  Use now = use;
  if (use.dram_cold < 0) return now;
  now[Channel::kDram] = use.dram_cold * static_cast<float>(missing(filled, device));
  return now;
}

double stretch(const Use& alone, const Use& use, Channel channel, const Others& others,
               const DeviceModel& device) {
  const DeviceModel::Limit& limit = device.limits[index_of(channel)];
  if (is_capacity(channel)) {
    const bool l1 = channel == Channel::kL1Capacity;
    const auto reuse = static_cast<double>(l1 ? use.l1_reuse : use.l2_reuse);
    const double miss_cost = l1 ? device.l1_miss_cost : device.l2_miss_cost;
    const double own = known(use[channel]) / limit.capacity;
    const double all = own + others.use / limit.capacity;
    return capacity_time(all, reuse, miss_cost, limit.sharpness) /
           capacity_time(own, reuse, miss_cost, limit.sharpness);
  }
  const double with = bandwidth_time(use, channel, others, device);
  const double without = bandwidth_time(alone, channel, {}, device);
  return smooth_max(with, limit.sharpness) / smooth_max(without, limit.sharpness);
}

// ---- block slots ------------------------------------------------------------------------------

struct Room {
  double threads, registers, smem, blocks;
};

Room needs(const LaunchShape& s, const DeviceModel& device) {
  const uint32_t warps = (s.threads + kWarp - 1) / kWarp;
  const uint32_t by_warp =
      (s.registers * kWarp + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  return {static_cast<double>(warps * kWarp), static_cast<double>(warps * by_warp),
          static_cast<double>(s.smem_bytes + device.smem_bytes_reserved), 1};
}

Room room_of(const DeviceModel& d) {
  return {static_cast<double>(d.threads_per_sm), static_cast<double>(d.registers_per_sm),
          static_cast<double>(d.smem_bytes_per_sm), static_cast<double>(d.blocks_per_sm)};
}

uint32_t blocks_in(const Room& room, const LaunchShape& shape, const DeviceModel& device,
                   SlotLimit& limit) {
  const Room n = needs(shape, device);
  double blocks = room.blocks;
  limit = SlotLimit::kBlocks;
  const auto at_most = [&](double have, double need, SlotLimit by) {
    const double fit = need > 0 ? std::floor(have / need) : blocks;
    if (fit < blocks) blocks = fit, limit = by;
  };
  at_most(room.threads, n.threads, SlotLimit::kThreads);
  at_most(room.registers, n.registers, SlotLimit::kRegisters);
  at_most(room.smem, n.smem, SlotLimit::kSmem);
  return static_cast<uint32_t>(std::max(0.0, blocks));
}

uint32_t blocks_alone(const LaunchShape& s, const DeviceModel& device, SlotLimit& limit) {
  const uint32_t fit = blocks_in(room_of(device), s, device, limit);
  return s.blocks_per_sm != 0 ? std::min(fit, s.blocks_per_sm) : fit;
}

// Blocks of the launch on an SM at once.
uint32_t blocks_held(const LaunchShape& s, SmCount sms, const DeviceModel& device) {
  SlotLimit limit;
  const uint32_t asked = (s.blocks + sms.get() - 1) / std::max(1U, sms.get());
  return std::min(blocks_alone(s, device, limit), asked);
}

Room left_by(const LaunchShape& s, uint32_t held, const DeviceModel& device) {
  const Room n = needs(s, device);
  Room room = room_of(device);
  room.threads -= n.threads * held;
  room.registers -= n.registers * held;
  room.smem -= n.smem * held;
  room.blocks -= held;
  return room;
}

// Groups are taken for equal.
SmCount sms_of(const Mix& m, const DeviceModel& device) {
  if (m.sm_set.empty()) return SmCount(device.sm_total);
  return SmCount(
      std::max(1U, m.sm_set.count().get() * device.sm_total / std::max(1U, device.sm_groups)));
}

// The part of `m`'s SMs that the other may use as well.
double overlap(const Mix& m, const Mix& other, const DeviceModel& device) {
  if (other.sm_set.empty()) return 1;
  const auto groups = static_cast<double>(std::max(1U, device.sm_groups));
  if (m.sm_set.empty()) return other.sm_set.count().get() / groups;
  const double shared = (m.sm_set & other.sm_set).count().get();
  return shared / m.sm_set.count().get();
}

// Its use while it runs alone on its SMs: what was measured on all of them is done by fewer.
Use use_on_its_sms(const Mix& m, const DeviceModel& device) {
  Use use = m.use;
  if (m.sm_set.empty()) return use;
  const uint32_t blocks = m.shape.blocks != 0 ? m.shape.blocks : device.sm_total;
  const uint32_t before = std::min(blocks, device.sm_total);
  const uint32_t now = std::min(blocks, sms_of(m, device).get());
  const bool timed = m.whole_us > 0 && m.duration_us > 0;
  const auto slower = static_cast<float>(timed ? m.whole_us / m.duration_us : 1);
  const auto more = static_cast<float>(before) / static_cast<float>(now) * slower;
  if (use.dram_cold > 0) use.dram_cold *= slower;
  for (size_t i = 0; i < kChannels; ++i) {
    if (is_capacity(static_cast<Channel>(i))) continue;
    if (is_of_device(static_cast<Channel>(i))) {
      if (use.of[i] > 0) use.of[i] *= slower;
      continue;
    }
    const auto most = static_cast<float>(device.limits[i].capacity);
    if (use.of[i] <= 0) continue;
    use.of[i] = timed ? use.of[i] * more : std::max(use.of[i], std::min(most, use.of[i] * more));
  }
  return use;
}

// A launch as the block scheduler has it: rounds of blocks that fill its slots.
struct Waves {
  double count, block_us, gap_us;

  Waves(const Mix& m, double us, uint32_t per_sm, const DeviceModel& device)
      : count(m.shape.blocks / (std::max(1.0, 1.0 * per_sm) * sms_of(m, device).get())),
        gap_us(std::min(device.launch_gap_us, m.duration_us / 2)) {
    block_us = (us - gap_us) / std::max(1.0, std::ceil(count));
  }
  // Of a launch that has this part of the slots.
  double us_in(double slots) const {
    return std::max(std::ceil(count), count / slots) * block_us + gap_us;
  }
};

struct Slots {
  double stretch = 1, waits_for_us = 0;
  double beside = 1;  // the part of its slots that it has beside the other; 0: they take turns
  bool known = true;
};

// How long a launch of the kernel takes if all data of the other goes through the L2 before it.
double us_after(const Mix& other, const Mix& kernel, const DeviceModel& device) {
  const Use use = use_on_its_sms(kernel, device);
  const double own = known(use[Channel::kL2Capacity]);
  const double both = own + known(other.use[Channel::kL2Capacity]);
  return kernel.duration_us * stretch(use_in_l2(use, own, device), use_in_l2(use, both, device),
                                      Channel::kDram, {}, device);
}

// The part of the kernel's slots that the other's launch takes.
double taken_by(const Mix& other, const Mix& kernel, const Company& c, const DeviceModel& device) {
  const double on = static_cast<double>(other.shape.blocks) / sms_of(other, device).get();
  return overlap(kernel, other, device) * std::min(1.0, on) *
         (1 - static_cast<double>(c.beside) / std::max(1U, c.alone));
}

// The part of a launch of one wave in which a block of it runs, a half at the least.
double even(const Mix& m, const Waves& waves, const DeviceModel& device) {
  const double on = std::min(m.shape.blocks, sms_of(m, device).get());
  const double active_us = static_cast<double>(m.use.active) * m.duration_us * device.sm_total / on;
  return m.use.active >= 0 && active_us < waves.block_us ? std::max(0.5, active_us / waves.block_us)
                                                         : 1;
}

// Launches that end in the slots that a launch of one wave leaves them. That one may end unevenly:
// on a third of its SMs each early, between, and late.
double ended_beside(const Waves& kernel, double left, double its_us, double even) {
  double ended = 0;
  for (int third = 0; third < 3; ++third) {
    const double part = third == 0 ? 2 * even - 1 : 1 - even;
    ended += part * its_us / kernel.us_in(left + (1 - left) * third / 3);
  }
  return std::floor(ended);
}

// A launch without all of its slots keeps later launches out. So two kernels whose blocks do not
// all fit take turns, and have one period: in it the slots are filled by both, each after the other
// has gone through the L2. A kernel of one wave is resident as a whole. If it leaves no slot, the
// victim waits for its end; else the victim may run in what is left, in more waves, or end
// launches there before the one that has its turn.
Slots slots_beside(const Mix& victim, const Mix& other, const DeviceModel& device) {
  Slots out;
  if (victim.shape.threads == 0 || other.shape.threads == 0) return out;
  const Company c = company(victim.shape, other.shape, sms_of(other, device), device);
  const Company its_c = company(other.shape, victim.shape, sms_of(victim, device), device);
  const double taken = taken_by(other, victim, c, device), left = 1 - taken;
  const double own_us = us_after(other, victim, device), its_us = us_after(victim, other, device);
  const Waves own(victim, own_us, c.alone, device), its(other, its_us, its_c.alone, device);
  if (taken <= 0 || own.count <= left + kRounding) return out;
  out.beside = 0;
  if (left <= 0) out.waits_for_us = its_us;
  const double filled_us = own.count * own.block_us + its.count * its.block_us;
  const auto [shorter_us, longer_us] = std::minmax(own_us, its_us);
  double period_us = std::max(filled_us, longer_us + kInTurn * shorter_us);
  if (its.count <= 1 && left <= 0) {  // blocks of one run in the gap of the other's stream
    period_us = std::max(filled_us, own_us + its_us - own.gap_us - its.gap_us);
  } else if (its.count <= 1) {
    const Waves again(victim, victim.duration_us, c.alone, device);  // nobody emptied the L2
    if (again.us_in(left) <= period_us) out.beside = left;
    const double launches = 1 + ended_beside(again, left, its_us, even(other, its, device));
    period_us = std::min({period_us, own.us_in(left), (own_us + its_us) / launches});
    out.known =
        overlap(victim, other, device) < 1 || other.duration_us < kLongStay * victim.duration_us;
  }
  // Who is resident as a whole has launches of the other beside it.
  if (own.count <= 1 && own_us > its_us) {
    out.beside = std::max(out.beside, 1 - taken_by(victim, other, its_c, device));
  }
  out.stretch = std::max(1.0, period_us / std::max(victim.duration_us, 1.0));
  return out;
}

// What those that share each channel with the victim ask of it together. Who takes turns with
// another is not beside it.
using AllOthers = std::array<Others, kChannels>;
void add_beside(AllOthers& others, std::span<const Mix> mixes, size_t victim, size_t other,
                double part_beside, const DeviceModel& device) {
  const Mix& m = mixes[other];
  const double overlapping = overlap(mixes[victim], m, device);
  const Use use = use_in_l2(use_on_its_sms(m, device), filled_between(mixes, other), device);
  for (size_t i = 0; i < kChannels; ++i) {
    const auto channel = static_cast<Channel>(i);
    const double part = is_of_device(channel) ? 1 : overlapping;
    if (m.use.of[i] < 0 || part <= 0 || part_beside <= 0) continue;
    Others& o = others[i];
    o.use += known(use.of[i]) * part_beside;
    o.weight += use.of[i] > 0 ? weight(use, channel, device) * part_beside : 0;
    o.known = true;
    o.shared = std::max(o.shared, part);
  }
}

}  // namespace

Company company(const LaunchShape& kernel, const LaunchShape& resident, SmCount sms,
                const DeviceModel& device) {
  Company out;
  SlotLimit limit;
  out.alone = blocks_alone(kernel, device, limit);
  const Room room = left_by(resident, blocks_held(resident, sms, device), device);
  out.beside = std::min(out.alone, blocks_in(room, kernel, device, limit));
  if (out.beside < out.alone) out.limit = limit;
  return out;
}

SlotLimit forbids_company(const LaunchShape& kernel, const DeviceModel& device) {
  if (kernel.threads == 0) return SlotLimit::kNone;
  const Company c = company(kModestBlock, kernel, SmCount(device.sm_total), device);
  return c.beside == 0 ? c.limit : SlotLimit::kNone;
}

Prediction predict(std::span<const Mix> mixes, size_t victim, const DeviceModel& device) {
  Prediction out;
  const Mix& v = mixes[victim];
  AllOthers all_others;
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (i == victim) continue;
    const Slots s = slots_beside(v, mixes[i], device);
    out.by[index_of(Channel::kSlots)] += s.stretch - 1;
    out.waits_for_us += s.waits_for_us;
    out.known = out.known && s.known;
    add_beside(all_others, mixes, victim, i, s.beside, device);
  }
  SlotLimit limit;
  const double fit = std::max(1U, v.shape.threads != 0 ? blocks_alone(v.shape, device, limit) : 1);
  const bool few_waves = v.shape.blocks <= kFewWaves * fit * sms_of(v, device).get();
  const double filled = filled_between(mixes, victim);
  const Use own = use_on_its_sms(v, device);
  const Use alone = use_in_l2(own, known(own[Channel::kL2Capacity]), device);
  const Use crowded = use_in_l2(own, filled, device);
  for (size_t i = 0; i < kChannels; ++i) {
    const auto channel = static_cast<Channel>(i);
    if (crowded.of[i] < 0 || (channel == Channel::kL2Capacity && own.dram_cold >= 0)) continue;
    const Others& others = all_others[i];
    if (!others.known) continue;
    double by = std::min(kStretchMax, stretch(alone, crowded, channel, others, device));
    if (channel == Channel::kDram && crowded.of[i] > alone.of[i]) {
      const double kept = stretch(alone, alone, channel, others, device);
      if (by / kept > kept) {  // what was evicted costs more than who else is there
        out.by[index_of(Channel::kL2Capacity)] = by;
        continue;
      }
    }
    if (others.shared < 1 && !few_waves) by = 1 / (1 - others.shared + others.shared / by);
    out.by[i] = by;
  }
  double sum = 0;
  for (size_t i = 0; i < kAllChannels; ++i) {
    if (out.by[i] > out.by[index_of(out.binds)]) out.binds = static_cast<Channel>(i);
    if (i < kChannels) sum += std::pow(std::max(0.0, out.by[i] - 1), device.together);
  }
  out.slowdown = out.by[index_of(Channel::kSlots)] + std::pow(sum, 1 / device.together);
  return out;
}

float use_from_probe(Channel channel, double neighbour_use, double stretched,
                     const DeviceModel& device) {
  if (is_capacity(channel) || channel == Channel::kSlots || neighbour_use <= 0) return kUnknown;
  Use neighbour;
  neighbour[channel] = static_cast<float>(neighbour_use);
  const auto at = [&](double use) {
    Use u;
    u[channel] = static_cast<float>(use);
    return stretch(neighbour, neighbour, channel, {use, weight(u, channel, device), 1, true},
                   device);
  };
  double low = 0, high = 1;
  if (stretched >= at(high)) return 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (at(middle) < stretched ? low : high) = middle;
  }
  return static_cast<float>(low);
}

}  // namespace heddle::core
