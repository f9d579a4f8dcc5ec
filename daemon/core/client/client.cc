#include "daemon/core/client/client.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "daemon/core/allowances.h"
#include "daemon/model/right_size.h"

namespace heddle::core {
namespace {

// The kernel's duration in that context; `typical_us` if it is unknown. `k` may be nullptr.
double us_of(const Kernel* k, Context before, double typical_us) {
  return k != nullptr && k->stats->duration.known() ? k->stats->duration.us(before) : typical_us;
}

}  // namespace

uint32_t Kernel::waves_on(SmCount sms) const {
  if (is_graph()) return 1;
  const uint32_t resident = std::max(1u, facts.max_blocks_per_sm) * std::max(1u, sms.get());
  return std::max(1u, (facts.grid_blocks + resident - 1) / resident);
}

double Known::predict_us(uint32_t index, Context before) const {
  return us_of(kernel(index), before, typical_us);
}

double OnDevice::remaining_us(TimeNs now, bool believed) const {
  if (now >= busy_deadline(believed)) return 0;
  const double by_clock = std::max(0.0, static_cast<double>(busy_until - now) / 1e3);
  if (believed) return by_clock;
  const double most_us = static_cast<double>(kClaimedNs) / 1e3;
  return std::max(by_clock, std::min(most_us, outstanding.predicted_us()));
}

TimeNs OnDevice::stuck_ns() const {
  const TimeNs ns = to_ns(std::min(outstanding.oldest()->predicted_us, to_us(kClaimedNs)));
  return std::clamp(kStuckTimes * ns, kStuckNs, kClaimedNs);
}

// The oldest launch may also be over without evidence. So this is true only when it is 1, 2, 4, 8
// and so on times stuck_ns() old: ever more rarely. A program gains nothing by delaying evidence:
// it can open its gates itself.
bool OnDevice::stuck_behind(uint16_t stream, TimeNs now) {
  const Work* const work = outstanding.oldest();
  if (work == nullptr || (work->stream == stream && outstanding.used_streams() == 1)) return false;
  if (work->seq != oldest.seq || work->stream != oldest.stream || work->posted_at > oldest.since)
    oldest = {work->seq, work->stream, now};
  return std::has_single_bit(static_cast<uint64_t>((now - oldest.since) / stuck_ns()));
}

void OnDevice::stand() {
  stands = true;
  outstanding.all_stopped(0);
  untimed.clear();
}

void OnDevice::go_on(TimeNs stood, TimeNs now) {
  stands = false;
  outstanding.all_stopped(to_us(stood));  // also launches that came meanwhile
  untimed.clear();
  undated = {};
  set_busy_until(busy_until + stood, now);
  oldest.since += stood;
}

void OnDevice::follow(const Work& work) {
  if (work.posted_at >= busy_until) untimed.clear();
  set_busy_until(std::max(busy_until, work.posted_at) + to_ns(work.predicted_us), work.posted_at);
  longest_us = std::max(longest_us, work.predicted_us);
  longest_hold_us = std::max(longest_hold_us, work.hold_us);
}

Recalled OnDevice::take_recalled(uint16_t stream, uint64_t seq) {
  const auto of_stream = [=](const Recalled& r) { return r.stream == stream; };
  const auto found = std::find_if(recalled.begin(), recalled.end(), of_stream);
  if (found == recalled.end()) return {};
  const Recalled known = *found;
  recalled.erase(found);
  return known.seq == seq ? known : Recalled{};
}

void Run::launched(uint32_t kernel, TimeNs at, double us) {
  if (!going) {
    start = at;
    first = kernel;
    launches = told = 0;
    predicted_us = 0;
    stopped = false;
  }
  last = at;
  predicted_us += us;
  told += us > 0 ? 1 : 0;
  ++launches;
  going = true;
}

double Run::launching_us(TimeNs at) const {
  constexpr uint32_t kQueueFull = 900;  // nearly as many as the driver queues
  const double us = to_us(at - start);
  const double launching_us = std::min(us, to_us(std::max(TimeNs{0}, last - start)));
  const bool full =
      launches >= kQueueFull && (us - launching_us) * told >= kQueueFull * predicted_us;
  return full ? RunComparison::kHeldUp : launching_us;
}

SmSet Client::set_of(uint32_t index) const {
  const Kernel* k = kernel(index);
  if (k == nullptr || k->size.get() == 0) return place.cut_set;
  return place.set_of(k->size);
}

// By the kernel's measured curve. Without one: by the number of waves of its blocks, each as long
// as before; a graph takes as long as on all SMs.
double Client::stretch(const Kernel& k, double whole_us, SmSet set) const {
  if (set.empty()) return 1;
  const double us = us_on_groups(k.stats->metrics, whole_us, place.groups, set.count());
  return us > 0 ? us / whole_us
                : static_cast<double>(k.waves_on(place.groups.sms_of(set))) / k.waves;
}

void Client::predict(Work& launch) const {
  const Kernel* const k = kernel(launch.kernel);
  launch.predicted_us = launch.hold_us = us_of(k, rhythm.context, known.typical_us);
  launch.before = rhythm.context;
  if (k != nullptr) {
    launch.hold_us /= k->waves;
    launch.predicted_us *= stretch(*k, launch.predicted_us, launch.sm_set);
  }
  launch.stop_us = launch.predicted_us;
}

int8_t Client::launch_priority(const Config& config) const {
  return standing.launch_priority != kBuiltinPriority
             ? static_cast<int8_t>(standing.launch_priority)
             : builtin_launch_priority(rule.priority, config);
}

SmSet Client::runs_on() const {
  const SmSet set =
      work.outstanding.empty() ? set_of(rhythm.last_kernel) : work.outstanding.sm_set();
  return set.or_if_empty(place.sm_set);
}

double Client::gap_length_us(TimeNs now) const {
  const GapEstimate* gap = gap_estimate();
  return busy(now) || gap == nullptr ? 0 : gap->low_us();
}

double Client::gap_left_us(TimeNs now) const {
  const double withheld_us = head.withheld && !busy(now) ? ceiling.owes_us() : 0;
  return std::max(withheld_us,
                  gap_length_us(now) - static_cast<double>(now - rhythm.gap_start) / 1e3);
}

double Client::patience_us(double idle_us, double idle_us_max) const {
  const GapEstimate* gap = gap_estimate();
  return std::max(idle_us, std::min(idle_us_max, gap != nullptr ? gap->high_us() : 0));
}

}  // namespace heddle::core
