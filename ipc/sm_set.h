// Which SMs a client's kernels may use: sets of groups of SMs, counts of groups and of SMs, and the
// text that people write (`sms` of a rule, `heddle run --sms`, HEDDLE_SMS).
//
// SMs are counted in the order in which the driver splits a device into groups, the same in every
// process, and not by %smid. A group belongs to the range that contains its middle, so ranges that
// do not overlap give SM sets that do not overlap. Words of shared memory and of messages are
// integers: .bits(), .get() and the constructors convert.
#pragma once

#include <bit>
#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace heddle::ipc {

inline constexpr uint32_t kSmGroups = 32;  // bits of an SM set

template <class Unit>
class Count {
 public:
  constexpr Count() = default;
  constexpr explicit Count(uint32_t n) : n_(n) {}
  constexpr uint32_t get() const { return n_; }

  constexpr auto operator<=>(const Count&) const = default;
  constexpr Count& operator++() { return ++n_, *this; }
  constexpr Count& operator--() { return --n_, *this; }
  constexpr Count& operator+=(Count other) { return n_ += other.n_, *this; }
  constexpr Count& operator-=(Count other) { return n_ -= other.n_, *this; }

 private:
  uint32_t n_ = 0;
};
using GroupCount = Count<struct Groups>;
using SmCount = Count<struct Sms>;

// A set of groups, a bit each. In fields that say so, the empty set means the whole device.
class SmSet {
 public:
  constexpr SmSet() = default;
  constexpr explicit SmSet(uint32_t bits) : bits_(bits) {}
  constexpr uint32_t bits() const { return bits_; }
  static constexpr SmSet of(uint32_t group) { return SmSet(1U << group); }
  static constexpr SmSet first(GroupCount n) {
    return SmSet(n.get() < kSmGroups ? (1U << n.get()) - 1 : ~0U);
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr GroupCount count() const { return GroupCount(uint32_t(std::popcount(bits_))); }
  constexpr bool has(uint32_t group) const { return (bits_ >> group & 1) != 0; }
  constexpr SmSet or_if_empty(SmSet other) const { return empty() ? other : *this; }
  template <class Visit>
  constexpr void for_each(Visit&& visit) const {
    for (uint32_t left = bits_; left != 0; left &= left - 1)
      visit(uint32_t(std::countr_zero(left)));
  }

  constexpr bool operator==(const SmSet&) const = default;
  constexpr SmSet operator|(SmSet other) const { return SmSet(bits_ | other.bits_); }
  constexpr SmSet operator&(SmSet other) const { return SmSet(bits_ & other.bits_); }
  constexpr SmSet operator-(SmSet other) const { return SmSet(bits_ & ~other.bits_); }
  constexpr SmSet& operator|=(SmSet other) { return *this = *this | other; }

 private:
  uint32_t bits_ = 0;
};

// The sizes in which SM sets exist: bit n - 1 stands for sets of n groups.
class SetSizes {
 public:
  constexpr SetSizes() = default;
  constexpr explicit SetSizes(uint32_t bits) : bits_(bits) {}
  constexpr uint32_t bits() const { return bits_; }
  constexpr bool has(GroupCount n) const { return (bits_ >> (n.get() - 1) & 1) != 0; }
  constexpr uint32_t count() const { return uint32_t(std::popcount(bits_)); }
  constexpr bool operator==(const SetSizes&) const = default;

 private:
  uint32_t bits_ = 0;
};

struct SmRange {
  uint32_t from = 0, to = 0;  // [from, to), in SMs
  bool percent = false;       // in percent of all SMs instead
};

inline constexpr const char* kSmRangeForm =
    "a number of SMs (32: the first 32), a range of them (32-131), or a share (25%, 25%-100%)";

namespace sm_range_detail {

// Takes a number and an optional "%" off the text. False: the text does not begin with a number.
inline bool take(std::string_view& text, uint32_t& number, bool& percent) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number > 10'000) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  percent = text.starts_with('%');
  if (percent) text.remove_prefix(1);
  return true;
}

}  // namespace sm_range_detail

// Empty if `text` does not have the form kSmRangeForm.
inline std::optional<SmRange> parse_sms(std::string_view text) {
  SmRange range;
  if (!sm_range_detail::take(text, range.to, range.percent)) return std::nullopt;
  if (text.starts_with('-')) {
    bool percent = false;
    range.from = range.to;
    text.remove_prefix(1);
    if (!sm_range_detail::take(text, range.to, percent) || percent != range.percent) {
      return std::nullopt;
    }
    if (!percent) ++range.to;  // a range of SMs includes its last one
  }
  const bool sound = text.empty() && range.from < range.to && (!range.percent || range.to <= 100);
  return sound ? std::optional(range) : std::nullopt;
}

// The groups in the range. A range too small for any group gives the nearest one, which other
// ranges may have, too. Empty if the device has no groups. `widths`: SMs of each group.
inline SmSet groups_of(SmRange range, std::span<const uint16_t> widths) {
  uint32_t total = 0;
  for (const uint16_t n : widths) total += n;
  // In 1/200 of an SM, so that percentages and middles are integers.
  const uint64_t unit = range.percent ? 2 * uint64_t{total} : 200;
  const uint64_t from = unit * range.from, to = unit * range.to;
  SmSet set, nearest;
  uint64_t first = 0, nearest_by = UINT64_MAX;
  for (uint32_t i = 0; i < widths.size() && i < kSmGroups; ++i) {
    const uint64_t middle = 200 * first + 100 * uint64_t{widths[i]};
    first += widths[i];
    if (from <= middle && middle < to) set |= SmSet::of(i);
    const uint64_t by = middle < from ? from - middle : middle - from;
    if (by < nearest_by) nearest = SmSet::of(i), nearest_by = by;
  }
  return set.or_if_empty(nearest);
}

// The last `n` groups of `within` (empty: of all `count` groups); fewer if `within` has fewer.
inline SmSet last_groups(GroupCount n, SmSet within, GroupCount count) {
  SmSet set;
  for (uint32_t i = count.get(), left = n.get(); i-- > 0 && left > 0;) {
    if (!within.empty() && !within.has(i)) continue;
    set |= SmSet::of(i);
    --left;
  }
  return set;
}

// Where the SM sets of one process lie on the ring of groups (DeviceTerms::ring).
struct SmRing {
  uint8_t anchor = 0;     // 0: sets of n groups are the last n; a: n from group a - 1 on, cyclic
  uint8_t positions = 1;  // number of sets of each size, spaced evenly from the anchor on

  bool operator==(const SmRing&) const = default;
};
constexpr uint32_t pack_ring(SmRing ring) { return uint32_t{ring.positions} << 8 | ring.anchor; }
constexpr SmRing unpack_ring(uint32_t word) {
  return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8 & 0xff)};
}

// Most SM sets that a process makes of a device.
inline constexpr uint32_t kSetsMost = 12;

// The SM sets that a process made of a device before its first launch. It keeps them until it ends.
struct MadeSets {
  SetSizes sizes;  // empty: the process made no sets yet
  SmRing ring;

  bool any() const { return sizes.bits() != 0; }
  bool operator==(const MadeSets&) const = default;
};
constexpr uint64_t pack_made(MadeSets made) {
  return uint64_t{made.sizes.bits()} << 32 | pack_ring(made.ring);
}
// The word comes from another process: one that describes no possible sets counts as none.
constexpr MadeSets unpack_made(uint64_t word) {
  const MadeSets made{SetSizes(static_cast<uint32_t>(word >> 32)),
                      unpack_ring(static_cast<uint32_t>(word))};
  const uint32_t count = made.sizes.count() * made.ring.positions;
  const bool known = pack_made(made) == word && count >= 1 && count <= kSetsMost;
  return known ? made : MadeSets{};
}

// The set of `n` groups at one of the ring's positions, out of `within` (empty: of all `count`
// groups); fewer if `within` has fewer.
inline SmSet ring_groups(GroupCount n, SmRing ring, uint32_t position, SmSet within,
                         GroupCount count) {
  if (ring.anchor == 0 || count.get() == 0) return last_groups(n, within, count);
  const uint32_t step = ring.positions > 1 ? position * count.get() / ring.positions : 0;
  SmSet set;
  for (uint32_t i = 0, left = n.get(); i < count.get() && left > 0; ++i) {
    const uint32_t group = (ring.anchor - 1U + step + i) % count.get();
    if (!within.empty() && !within.has(group)) continue;
    set |= SmSet::of(group);
    --left;
  }
  return set;
}

// The number of SMs of a set. `widths`: SMs of each group.
inline SmCount sms_of(SmSet set, std::span<const uint16_t> widths) {
  SmCount count;
  for (uint32_t i = 0; i < widths.size() && i < kSmGroups; ++i) {
    if (set.has(i)) count += SmCount(widths[i]);
  }
  return count;
}

}  // namespace heddle::ipc
