#include "daemon/plan/mig.h"

#include <algorithm>
#include <array>
#include <set>

namespace heddle::plan {
namespace {

constexpr uint32_t kAnywhere = 0b1111111, kEven = 0b1010101, kTwo = 0b10101, kHalves = 0b10001;

constexpr std::array<SliceProfile, 6> kA100Small = {{
    {"1g.5gb", 1, 1, 14, 4.75, kAnywhere, false},
    {"1g.10gb", 1, 2, 14, 9.75, kEven, true},
    {"2g.10gb", 2, 2, 28, 9.75, kTwo, false},
    {"3g.20gb", 3, 4, 42, 19.62, kHalves, false},
    {"4g.20gb", 4, 4, 56, 19.62, 1, false},
    {"7g.40gb", 7, 8, 98, 39.25, 1, false},
}};
constexpr std::array<SliceProfile, 6> kA100 = {{
    {"1g.10gb", 1, 1, 14, 9.5, kAnywhere, false},
    {"1g.20gb", 1, 2, 14, 19.5, kEven, true},
    {"2g.20gb", 2, 2, 28, 19.5, kTwo, false},
    {"3g.40gb", 3, 4, 42, 39.25, kHalves, false},
    {"4g.40gb", 4, 4, 56, 39.25, 1, false},
    {"7g.80gb", 7, 8, 98, 78.75, 1, false},
}};
constexpr std::array<SliceProfile, 6> kH100 = {{
    {"1g.10gb", 1, 1, 16, 9.75, kAnywhere, false},
    {"1g.20gb", 1, 2, 26, 19.75, kEven, true},
    {"2g.20gb", 2, 2, 32, 19.75, kTwo, false},
    {"3g.40gb", 3, 4, 60, 39.5, kHalves, false},
    {"4g.40gb", 4, 4, 64, 39.5, 1, false},
    {"7g.80gb", 7, 8, 132, 79, 1, false},
}};
constexpr std::array<GpuModel, 3> kModels = {{
    {"a100-40gb", 108, 39.25, kA100Small},
    {"a100-80gb", 108, 78.75, kA100},
    {"h100-80gb", 132, 79, kH100},
}};

constexpr uint32_t mask(const SliceProfile& profile, uint32_t start) {
  return ((1u << profile.memory) - 1) << start;
}

// All compute slices are seven, though eight memory slices have room for eight of one each.
bool room(const SliceProfile& profile, uint32_t start, uint32_t taken, uint32_t compute) {
  return (profile.starts >> start & 1) != 0 && (mask(profile, start) & taken) == 0 &&
         compute + profile.compute <= kComputeSlices;
}

struct Search {
  std::span<const SliceProfile> profiles;
  Wide wide;
  std::vector<Layout> found;

  bool full(uint32_t taken, uint32_t compute) const {
    for (const SliceProfile& p : profiles) {
      if (p.wide && wide == Wide::kNo) continue;
      for (uint32_t at = 0; at < kMemorySlices; ++at) {
        if (room(p, at, taken, compute)) return false;
      }
    }
    return true;
  }

  void extend(Layout& layout, uint32_t from, uint32_t taken, uint32_t compute) {
    if (full(taken, compute)) found.push_back(layout);
    for (uint32_t at = from; at < kMemorySlices; ++at) {
      for (const SliceProfile& p : profiles) {
        if ((p.wide && wide == Wide::kNo) || !room(p, at, taken, compute)) continue;
        layout.push_back({&p, at});
        extend(layout, at + 1, taken | mask(p, at), compute + p.compute);
        layout.pop_back();
      }
    }
  }
};

bool place_all(const std::vector<const SliceProfile*>& wanted, size_t next, uint32_t taken,
               uint32_t compute, Layout& layout) {
  if (next == wanted.size()) return true;
  for (uint32_t at = 0; at < kMemorySlices; ++at) {
    if (!room(*wanted[next], at, taken, compute)) continue;
    layout.push_back({wanted[next], at});
    if (place_all(wanted, next + 1, taken | mask(*wanted[next], at),
                  compute + wanted[next]->compute, layout)) {
      return true;
    }
    layout.pop_back();
  }
  return false;
}

}  // namespace

const GpuModel* gpu_model(std::string_view name) {
  const auto found = std::find_if(kModels.begin(), kModels.end(),
                                  [&](const GpuModel& m) { return m.name == name; });
  return found == kModels.end() ? nullptr : &*found;
}

std::string gpu_names() {
  std::string names;
  for (const GpuModel& m : kModels) names += (names.empty() ? "" : ", ") + std::string(m.name);
  return names;
}

std::string to_string(const Layout& layout) {
  std::string text;
  for (const Slice& slice : layout) {
    text += (text.empty() ? "" : "+") + std::string(slice.profile->name);
  }
  return text;
}

Result<Layout> place(const GpuModel& gpu, std::string_view text) {
  std::vector<const SliceProfile*> wanted;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto found = std::find_if(gpu.profiles.begin(), gpu.profiles.end(),
                                    [&](const SliceProfile& p) { return p.name == name; });
    if (found == gpu.profiles.end()) {
      std::string names;
      for (const SliceProfile& p : gpu.profiles) names += " " + std::string(p.name);
      return fail("layout: " + std::string(gpu.name) + " has no slice '" + std::string(name) +
                  "'; it has" + names);
    }
    wanted.push_back(&*found);
    begin = end + 1;
  }
  // Large ones have few places.
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](auto* a, auto* b) { return a->compute > b->compute; });
  Layout layout;
  if (!place_all(wanted, 0, 0, 0, layout)) {
    return fail("layout: " + std::string(text) + " does not fit on one " + std::string(gpu.name) +
                "; `heddle plan layouts` lists those that do");
  }
  std::sort(layout.begin(), layout.end(),
            [](const Slice& a, const Slice& b) { return a.start < b.start; });
  return layout;
}

std::vector<Layout> layouts(const GpuModel& gpu, Wide wide) {
  Search search{gpu.profiles, wide, {}};
  Layout layout;
  search.extend(layout, 0, 0, 0);
  return search.found;
}

std::vector<Layout> distinct(std::vector<Layout> layouts) {
  std::set<std::vector<std::string_view>> seen;
  std::erase_if(layouts, [&](const Layout& layout) {
    std::vector<std::string_view> names;
    for (const Slice& slice : layout) names.push_back(slice.profile->name);
    std::sort(names.begin(), names.end());
    return !seen.insert(names).second;
  });
  return layouts;
}

}  // namespace heddle::plan
