#include "daemon/core/client/outstanding.h"

#include <algorithm>

namespace heddle::core {
namespace {

struct Candidate {
  SmSet set;
  uint32_t kernels = 0;
  GroupCount overlapped;  // groups that have kernels
};

Candidate candidate(const GroupLoad& load, SmSet set) {
  Candidate c{set, 0, {}};
  set.for_each([&](uint32_t group) {
    c.kernels += load[group];
    if (load[group] > 0) ++c.overlapped;
  });
  return c;
}

}  // namespace

double Outstanding::longest_hold_us() const {
  double longest = 0;
  for (uint32_t n = head_; n != kNone; n = nodes_[n].next) {
    const Work& work = nodes_[n].work;
    if (work.sm_set.empty()) longest = std::max(longest, std::min(work.hold_us, work.stop_us));
  }
  return longest;
}

double Outstanding::until_stopped_us() const {
  double sum_us = 0;
  for (uint32_t n = head_; n != kNone; n = nodes_[n].next) sum_us += nodes_[n].work.stop_us;
  return sum_us;
}

void Outstanding::all_stopped(double stood_us) {
  for (uint32_t n = head_; n != kNone; n = nodes_[n].next) nodes_[n].work.stopped = true;
  for (const Stream& s : streams_) {
    if (s.head != kNone) nodes_[s.head].work.stood_us += stood_us;
  }
}

bool Outstanding::add(const Work& work, Work& dropped) {
  bool made_room = false;
  if (free_ == kNone) {
    if (nodes_.size() < kWorkMax) {
      nodes_.emplace_back();
      free_ = static_cast<uint32_t>(nodes_.size() - 1);
    } else {
      dropped = remove(head_);
      made_room = true;
    }
  }
  if (work.stream >= streams_.size()) streams_.resize(work.stream + 1u);
  const uint32_t n = free_;
  free_ = nodes_[n].next;
  nodes_[n] = {work, tail_, kNone, kNone};
  (tail_ == kNone ? head_ : nodes_[tail_].next) = n;
  tail_ = n;
  Stream& s = streams_[work.stream];
  if (s.head == kNone) ++busy_streams_;
  if (!s.used) ++used_streams_;
  s.used = true;
  (s.tail == kNone ? s.head : nodes_[s.tail].stream_next) = n;
  s.tail = n;
  ++launches_;
  predicted_us_ += work.predicted_us;
  if (!work.sm_set.empty()) {
    on_sets_us_ += work.predicted_us;
    sm_set_ |= work.sm_set;
    ++on_sets_;
    count_groups(work.sm_set, 1);
  }
  return made_room;
}

// `before_in_stream`: the node before this one in its stream; kNone: it is the head, as the oldest
// node of all always is.
Work Outstanding::remove(uint32_t n, uint32_t before_in_stream) {
  Node& node = nodes_[n];
  Stream& s = streams_[node.work.stream];
  (before_in_stream == kNone ? s.head : nodes_[before_in_stream].stream_next) = node.stream_next;
  if (s.tail == n) s.tail = before_in_stream;
  if (s.head == kNone) --busy_streams_;
  (node.prev == kNone ? head_ : nodes_[node.prev].next) = node.next;
  (node.next == kNone ? tail_ : nodes_[node.next].prev) = node.prev;
  node.next = free_;
  free_ = n;
  --launches_;
  predicted_us_ = head_ == kNone ? 0 : predicted_us_ - node.work.predicted_us;
  leave_set(node.work);
  return node.work;
}

void Outstanding::leave_set(const Work& work) {
  if (work.sm_set.empty()) return;
  on_sets_us_ -= work.predicted_us;
  count_groups(work.sm_set, ~0U);
  if (--on_sets_ == 0) on_sets_us_ = 0, sm_set_ = {};
}

void Outstanding::count_groups(SmSet set, uint32_t by) {
  set.for_each([&](uint32_t group) { load_[group] += by; });
}

bool Outstanding::take(uint16_t stream, uint64_t seq, Work& out) {
  if (stream >= streams_.size()) return false;
  const uint32_t n = streams_[stream].head;
  if (n == kNone || nodes_[n].work.seq > seq) return false;
  out = remove(n);
  return true;
}

uint32_t Outstanding::find(uint16_t stream, uint64_t seq, uint32_t& before) const {
  before = kNone;
  uint32_t n = stream < streams_.size() ? streams_[stream].head : kNone;
  for (; n != kNone && nodes_[n].work.seq != seq; n = nodes_[n].stream_next) before = n;
  return n;
}

bool Outstanding::drop(uint16_t stream, uint64_t seq, Work& out) {
  uint32_t before;
  const uint32_t n = find(stream, seq, before);
  if (n == kNone) return false;
  out = remove(n, before);
  return true;
}

bool Outstanding::take_oldest(TimeNs until, Work& out) {
  if (head_ == kNone || !covers(until, nodes_[head_].work)) return false;
  out = remove(head_);
  return true;
}

const Work* Undated::find(uint16_t stream, uint64_t seq) {
  const Work& work = at(seq);
  return seq != 0 && work.seq == seq && work.stream == stream ? &work : nullptr;
}

void Undated::forget(uint16_t stream) {
  for (Work& work : launches_) {
    if (work.stream == stream) work = {};
  }
}

// In the paper's Algorithm 1, lines 2 to 9 choose where, and lines 12 to 21 how much. Its mask
// drops the units beyond the limit one by one. Sets are made beforehand here, so a smaller one is
// taken.
SmSet resource_mask(const GroupLoad& load, const SmFamily& family, ipc::SmRing ring,
                    GroupCount wanted, SmSet within, GroupCount count) {
  Candidate best;
  for (GroupCount n = wanted; n.get() > 0; --n) {
    if (n != wanted && !family.sizes.has(n)) continue;
    best = candidate(load, ipc::ring_groups(n, ring, 0, within, count));
    for (uint32_t p = 1; p < ring.positions; ++p) {
      const Candidate c = candidate(load, ipc::ring_groups(n, ring, p, within, count));
      if (c.kernels < best.kernels) best = c;
    }
    if (best.overlapped <= family.overlap) break;
  }
  return best.set;
}

GroupCount overlapped(const GroupLoad& load, SmSet set) { return candidate(load, set).overlapped; }

uint8_t far_anchor(std::span<const uint8_t> taken, GroupCount of) {
  const uint32_t count = of.get();
  uint8_t best = 1;
  uint32_t best_far = 0;
  for (uint32_t at = 1; at <= count; ++at) {
    uint32_t far = count;
    for (const uint8_t other : taken) {
      const uint32_t apart = other > at ? other - at : at - other;
      far = std::min({far, apart, count - apart});
    }
    if (far > best_far) best_far = far, best = static_cast<uint8_t>(at);
  }
  return best;
}

GroupCount room_at(uint8_t anchor, std::span<const uint8_t> others, GroupCount of) {
  const uint32_t count = of.get();
  uint32_t room = count;
  for (const uint8_t other : others) {
    if (other == 0 || other == anchor) continue;
    room = std::min(room, (other + count - anchor) % count);
  }
  return GroupCount(room);
}

}  // namespace heddle::core
