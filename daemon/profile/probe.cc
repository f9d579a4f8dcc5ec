#include "daemon/profile/profile.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace heddle::profiles {
namespace {

using core::Channel;

// As bench/interference.py has them: two of each channel's.
struct Levels {
  Channel channel;
  const char *weak, *strong;
};
constexpr Levels kLevels[] = {
    {Channel::kSlots, "sleep,threads=512", "sleep,threads=1024"},
    {Channel::kIssue, "issue,ilp=2", "issue,ilp=4"},
    {Channel::kFp64, "fp64,ilp=2", "fp64,ilp=4"},
    {Channel::kTensor, "tensor,threads=64", "tensor,threads=256"},
    {Channel::kSmem, "smem,ways=2", "smem,ways=8"},
    {Channel::kL1Capacity, "l1,kb=32", "l1,kb=80"},
    {Channel::kL2Capacity, "l2,mb=12,blocks=66", "l2,mb=24,blocks=66"},
    {Channel::kL2, "l2,mb=4,blocks=66", "l2,mb=4,blocks=132"},
    {Channel::kDram, "dram,blocks=66", "dram,blocks=132"},
};

// Instructions a cycle and SM, as bench/interference.py has them.
double nominal_peak(Channel channel) {
  return channel == Channel::kIssue ? 4 : channel == Channel::kFp64 ? 2 : 0;
}

}  // namespace

std::vector<Pressure> pressures(const std::string& channels, std::string& unknown) {
  std::vector<std::string> wanted;
  std::istringstream list(channels);
  for (std::string name; std::getline(list, name, ',');) wanted.push_back(name);
  std::vector<Pressure> all;
  for (const Levels& levels : kLevels) {
    const std::string name(core::kChannelNames[core::index_of(levels.channel)]);
    const auto it = std::find(wanted.begin(), wanted.end(), name);
    if (!channels.empty() && it == wanted.end()) continue;
    if (it != wanted.end()) wanted.erase(it);
    all.push_back({levels.channel, levels.weak});
    all.push_back({levels.channel, levels.strong});
  }
  unknown = wanted.empty() ? "" : wanted[0];
  return all;
}

std::vector<Neighbour> neighbours(const std::vector<Level>& levels) {
  std::map<Channel, double> peaks;
  for (const Level& level : levels) {
    double& peak = peaks[level.of.channel];
    peak = std::max({peak, level.held_alone, nominal_peak(level.of.channel)});
  }
  std::vector<Neighbour> all;
  for (const Level& level : levels) {
    Neighbour n{level.of.channel, level.of.spec, 0, 1, 0};
    // A microbenchmark that only sleeps presses as much, however long its launches take.
    if (n.channel != Channel::kSlots) {
      n.use = level.held_alone / peaks[n.channel];
      n.stretched = level.held_alone / level.held_beside;
    }
    n.slowdown = (level.rate_before + level.rate_after) / 2 / level.rate_beside;
    all.push_back(n);
  }
  return all;
}

}  // namespace heddle::profiles
