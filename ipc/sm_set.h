// Which SMs a client's kernels may use: the text that people write (`sms` of a rule, `heddle run
// --sms`, HEDDLE_SMS), and the partition that it means.
//
// SMs are counted in the order in which the driver splits a device into groups, the same in every
// process, and not by %smid. A partition is a set of groups, a bit each: ranges that do not overlap
// give partitions that do not, for a group is whose its middle is.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace heddle::ipc {

inline constexpr uint32_t kSmGroups = 32;  // bits of a partition

struct SmRange {
  uint32_t from = 0, to = 0;  // [from, to): SMs, or
  bool percent = false;       // of all
};

inline constexpr const char* kSmRangeForm =
    "a number of SMs (32: the first 32), a range of them (32-131), or a share (25%, 25%-100%)";

namespace partition_detail {

// A number and a "%" if there is one; false if there is no number.
inline bool take(std::string_view& text, uint32_t& number, bool& percent) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number > 10'000) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  percent = text.starts_with('%');
  if (percent) text.remove_prefix(1);
  return true;
}

}  // namespace partition_detail

// Nothing if `text` has not kSmRangeForm.
inline std::optional<SmRange> parse_sms(std::string_view text) {
  SmRange range;
  if (!partition_detail::take(text, range.to, range.percent)) return std::nullopt;
  if (text.starts_with('-')) {
    bool percent = false;
    range.from = range.to;
    text.remove_prefix(1);
    if (!partition_detail::take(text, range.to, percent) || percent != range.percent) {
      return std::nullopt;
    }
    if (!percent) ++range.to;  // the last one of a range of SMs is in it
  }
  const bool sound = text.empty() && range.from < range.to && (!range.percent || range.to <= 100);
  return sound ? std::optional(range) : std::nullopt;
}

// The groups in the range; of one too small for any the nearest, which may be another's too. 0 if
// the device has none. `sms`: of each group.
inline uint32_t groups_of(SmRange range, std::span<const uint16_t> sms) {
  uint32_t total = 0;
  for (const uint16_t n : sms) total += n;
  // In half hundredths of an SM, so that all is whole.
  const uint64_t unit = range.percent ? 2 * uint64_t{total} : 200;
  const uint64_t from = unit * range.from, to = unit * range.to;
  uint32_t groups = 0, nearest = 0;
  uint64_t first = 0, nearest_by = UINT64_MAX;
  for (uint32_t i = 0; i < sms.size() && i < kSmGroups; ++i) {
    const uint64_t middle = 200 * first + 100 * uint64_t{sms[i]};
    first += sms[i];
    if (from <= middle && middle < to) groups |= 1U << i;
    const uint64_t by = middle < from ? from - middle : middle - from;
    if (by < nearest_by) nearest = 1U << i, nearest_by = by;
  }
  return groups != 0 ? groups : nearest;
}

// The last `n` groups of `within` (0: of all `count`); fewer if it has fewer.
inline uint32_t last_groups(uint32_t n, uint32_t within, uint32_t count) {
  uint32_t groups = 0;
  for (uint32_t i = count; i-- > 0 && n > 0;) {
    if (within != 0 && (within >> i & 1) == 0) continue;
    groups |= 1U << i;
    --n;
  }
  return groups;
}

// Where the SM sets of one process lie on the ring of groups (DeviceWindow::ring).
struct SmRing {
  uint8_t anchor = 0;     // a set of n groups is the last n; a: the n from group a - 1 on, around
  uint8_t positions = 1;  // each size is there so many times, spaced evenly from the anchor on

  bool operator==(const SmRing&) const = default;
};
constexpr uint32_t pack_ring(SmRing ring) { return uint32_t{ring.positions} << 8 | ring.anchor; }
constexpr SmRing unpack_ring(uint32_t word) {
  return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8 & 0xff)};
}

// The set of `n` groups at one of the ring's positions, of those in `within` (0: of all `count`);
// fewer if it has fewer.
inline uint32_t ring_groups(uint32_t n, SmRing ring, uint32_t position, uint32_t within,
                            uint32_t count) {
  if (ring.anchor == 0 || count == 0) return last_groups(n, within, count);
  const uint32_t step = ring.positions > 1 ? position * count / ring.positions : 0;
  uint32_t groups = 0;
  for (uint32_t i = 0; i < count && n > 0; ++i) {
    const uint32_t bit = 1U << ((ring.anchor - 1U + step + i) % count);
    if (within != 0 && (within & bit) == 0) continue;
    groups |= bit;
    --n;
  }
  return groups;
}

// SMs of a partition.
inline uint32_t sms_of(uint32_t groups, std::span<const uint16_t> sms) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < sms.size() && i < kSmGroups; ++i) {
    if ((groups >> i & 1) != 0) count += sms[i];
  }
  return count;
}

}  // namespace heddle::ipc
