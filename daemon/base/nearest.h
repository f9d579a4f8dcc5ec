// "Did you mean": the known name that is closest to what was written.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Insertions, deletions and replacements between the two.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

// The nearest of `names`, or "" if none is near.
inline std::string nearest(std::string_view word, std::span<const std::string_view> names) {
  std::string_view best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view name : names) {
    const bool begun = word.size() >= 3 && name.substr(0, word.size()) == word;
    const size_t distance = begun ? 0 : edit_distance(word, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return std::string(best);
}

// "; did you mean 'priority'?", or the list of all names when none is near.
inline std::string did_you_mean(std::string_view written, std::span<const std::string_view> known) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, written.size() / 2) + 1;
  for (const std::string_view name : known) {
    // A beginning of the name counts as near: prio, priority.
    const bool begins = written.size() >= 3 && name.starts_with(written);
    const size_t distance = begins ? 1 : edit_distance(written, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  if (!best.empty()) return "; did you mean '" + std::string(best) + "'?";
  std::string all = "; there are:";
  for (const std::string_view name : known) all.append(" ").append(name);
  return all;
}

}  // namespace heddle
