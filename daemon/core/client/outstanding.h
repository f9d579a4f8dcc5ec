// Launches of one client that are on the device, or were not long ago.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/core/estimator.h"
#include "daemon/core/event.h"
#include "daemon/model/sm_groups.h"

namespace heddle::core {

// Placement on the ring of groups: pure functions.
//
// KRISP (section 4.3) counts the kernels on each compute unit, and gives a kernel the least loaded
// units. Here a unit is a group of SMs. A process has only the sets that it made when it started:
// runs of neighbouring groups on the ring. On an H100 neighbours belong to different GPCs
// (bench/results/groups.json), so only one of KRISP's distributions over shader engines exists
// here: "distributed".

// Kernels in flight by group: Algorithm 1's CU_Kernel_Counters.
using GroupLoad = std::array<uint32_t, kSmGroups>;

// KRISP's Algorithm 1 for the sets of a family. Of the sets of size `wanted`: the one whose groups
// have the fewest kernels. If more than `family.overlap` of its groups have kernels, the same for
// the next smaller size. The smallest size is taken in any case, so the result is never empty.
// `within`: the groups that the client is kept to; empty: all `count`.
SmSet resource_mask(const GroupLoad& load, const SmFamily& family, ipc::SmRing ring,
                    GroupCount wanted, SmSet within, GroupCount count);

// Groups of the set that have kernels.
GroupCount overlapped(const GroupLoad& load, SmSet set);

// The anchor (1 to count) that is farthest from those taken; 1 if there are none.
uint8_t far_anchor(std::span<const uint8_t> taken, GroupCount count);

// Groups from `anchor` on until the next of `others`; count if there is none.
GroupCount room_at(uint8_t anchor, std::span<const uint8_t> others, GroupCount count);

// One launch that is on the device, or on its way there.
struct Work {
  uint64_t seq = 0;
  TimeNs posted_at = 0;
  double predicted_us = 0;
  double waited_us = 0;
  double hold_us = 0;    // of predicted_us: one wave of its blocks, or a whole graph
  double stop_us = 0;    // of predicted_us: until it can be stopped at a gate inside, or all
  double ran_us = 0;     // a graph's time before it was stopped inside
  Context before;        // of the launches before it
  SmSet sm_set{};        // its SM set; empty: all SMs that its client has
  bool strayed = false;  // it runs on all SMs of the device, whatever its set
  uint32_t kernel = kUnknownKernel;
  uint16_t stream = 0;
  LaunchKind kind = LaunchKind::kKernel;
  bool granted = false;
  bool gated = false;       // stood at a gate: the program launched it before `posted_at`
  bool stopped = false;     // its kernels were stopped (core/stops.h),
  double stood_us = 0;      // for this long
  TimeNs wanted_since = 0;  // when it first asked; a graph with gates inside may ask again

  bool resumed() const { return ran_us > 0 || stopped; }  // its measured time says little
};

// Work of one client in posting order, completed per stream. It is bounded: if a client that never
// synchronizes fills it, the oldest work counts as done.
class Outstanding {
 public:
  static constexpr uint32_t kWorkMax = 4096;  // the driver itself queues about 1 024 launches

  bool empty() const { return head_ == kNone; }
  uint32_t used_streams() const { return used_streams_; }  // streams that ever had work
  // The number of streams with work, and whether this one has any.
  uint32_t busy_streams() const { return busy_streams_; }
  bool is_busy(uint16_t stream) const {
    return stream < streams_.size() && streams_[stream].head != kNone;
  }
  // Whether some work was posted at or before `at`.
  bool any_from(TimeNs at) const { return head_ != kNone && nodes_[head_].work.posted_at <= at; }
  const Work* oldest() const { return empty() ? nullptr : &nodes_[head_].work; }
  double predicted_us() const { return predicted_us_; }
  // The part of that by launches on SM sets; the groups of these sets; and the launches on each.
  double on_sets_us() const { return on_sets_us_; }
  SmSet sm_set() const { return sm_set_; }
  const GroupLoad& load() const { return load_; }
  bool any_on_all() const { return launches_ > on_sets_; }
  double longest_hold_us() const;  // of launches on all SMs
  double until_stopped_us() const;
  // Marks all as stopped. The oldest of each stream stood for that much longer: the others had not
  // begun.
  void all_stopped(double stood_us);

  // Adds work; true: it had to make room, and the oldest work is in `dropped`.
  bool add(const Work& work, Work& dropped);
  // Removes the oldest of `stream` that is at most `seq`; false when there is none.
  bool take(uint16_t stream, uint64_t seq, Work& out);
  // Removes launch `seq` of `stream` alone; false if it is not there.
  bool drop(uint16_t stream, uint64_t seq, Work& out);
  // Removes the oldest work, if it was posted at or before `until`, or stood at a gate.
  bool take_oldest(TimeNs until, Work& out);
  bool any_covered(TimeNs until) const {
    return head_ != kNone && covers(until, nodes_[head_].work);
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Node {
    Work work;
    uint32_t prev = kNone, next = kNone;  // posting order; next also links the free list
    uint32_t stream_next = kNone;
  };
  struct Stream {
    uint32_t head = kNone, tail = kNone;
    bool used = false;
  };
  static bool covers(TimeNs until, const Work& work) {
    return work.gated || work.posted_at <= until;
  }
  Work remove(uint32_t node, uint32_t before_in_stream = kNone);
  // Finds launch `seq` of `stream`, and the one `before` it in the stream; kNone: there is none.
  uint32_t find(uint16_t stream, uint64_t seq, uint32_t& before) const;
  void leave_set(const Work& work);

  std::vector<Node> nodes_;
  std::vector<Stream> streams_;
  uint32_t head_ = kNone, tail_ = kNone, free_ = kNone;
  void count_groups(SmSet set, uint32_t by);

  GroupLoad load_{};
  double predicted_us_ = 0, on_sets_us_ = 0;
  uint32_t launches_ = 0, on_sets_ = 0;
  SmSet sm_set_;
  uint32_t busy_streams_ = 0, used_streams_ = 0;
};

// Launches that were counted as done because their predicted end had passed, kept for their late
// evidence. The measured times of a launch-bound client come later than that, but within some
// dozens of launches: most would be lost otherwise. A direct-mapped table by sequence number.
class Undated {
 public:
  void add(const Work& work) { at(work.seq) = work; }
  // Launch `seq` of `stream`; nullptr: it is not kept any more.
  const Work* find(uint16_t stream, uint64_t seq);
  void forget(const Work& work) { at(work.seq) = {}; }
  void forget(uint16_t stream);  // another stream may take its number

 private:
  static constexpr size_t kPlaces = 64;
  Work& at(uint64_t seq) { return launches_[seq % kPlaces]; }
  std::array<Work, kPlaces> launches_{};
};

}  // namespace heddle::core
