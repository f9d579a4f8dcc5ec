#include "daemon/profile/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "daemon/base/files.h"

namespace heddle::profiles {
namespace {

using core::DurationAfter;
using core::KernelProfile;
using core::Summary;

std::string number(double us) {
  char text[32];
  snprintf(text, sizeof text, "%.2f", us);
  return text;
}

// The length of the UTF-8 character that `text` begins with; 0 if it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80                      ? 1
                        : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                        : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                        : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool beyond = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return overlong || beyond ? 0 : length;
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      out += '?';
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04X", static_cast<unsigned char>(c));
      out += escape;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + '"';
}

std::string hex(uint64_t value) {
  char text[20];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void write(std::ostream& out, const char* key, const Summary& s, bool required = false) {
  if (s.count == 0 && !required) return;
  out << key << " = { mean = " << number(static_cast<double>(s.mean_us))
      << ", p50 = " << number(static_cast<double>(s.p50_us))
      << ", p90 = " << number(static_cast<double>(s.p90_us)) << ", count = " << s.count << " }\n";
}

void write(std::ostream& out, const char* key, const std::vector<DurationAfter>& after) {
  if (after.empty()) return;
  out << key << " = [\n";
  for (const DurationAfter& a : after) {
    out << "  { kernels = \"" << hex(a.before)
        << "\", mean = " << number(static_cast<double>(a.mean_us)) << ", count = " << a.count
        << " },\n";
  }
  out << "]\n";
}

void write(std::ostream& out, const char* key, const ipc::KernelMetrics& metrics) {
  const char* before = "{ ";
  if (metrics.there != 0) out << key << " = ";
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
    if (!metrics.has(i)) continue;
    out << std::exchange(before, ", ") << ipc::kKernelMetrics[i].key << " = "
        << number(metrics.values[i]);
  }
  if (metrics.there != 0) out << " }\n";
}

void write(std::ostream& out, const Probe& probe) {
  out << "\n[probe]\nbusy = " << number(probe.busy) << "\n";
  write(out, "metrics", probe.metrics);
  out << "beside = [\n";
  for (const Neighbour& n : probe.beside) {
    out << "  { channel = \"" << core::kChannelNames[core::index_of(n.channel)]
        << "\", spec = " << toml_string(n.spec) << ", use = " << number(n.use)
        << ", slowdown = " << number(n.slowdown) << ", stretched = " << number(n.stretched)
        << " },\n";
  }
  out << "]\n";
}

uint64_t samples(const std::vector<DurationAfter>& after) {
  uint64_t sum = 0;
  for (const DurationAfter& a : after) sum += a.count;
  return sum;
}

// True if those of more samples are the others.
bool take_more(std::vector<DurationAfter>& mine, const std::vector<DurationAfter>& theirs) {
  if (samples(theirs) <= samples(mine)) return false;
  mine = theirs;
  return true;
}

void sort(core::TaskProfile& task) {
  std::sort(task.kernels.begin(), task.kernels.end(), [](const auto& a, const auto& b) {
    const int order = strcmp(a.facts.name, b.facts.name);
    return order != 0 ? order < 0 : a.facts.id < b.facts.id;
  });
}

template <class Task>
auto by_id(Task& task) {
  std::unordered_map<uint64_t, decltype(task.kernels.data())> all;
  for (auto& k : task.kernels) all.emplace(k.facts.id, &k);
  return all;
}

}  // namespace

std::string format(const Profile& p) {
  std::ostringstream out;
  out << "# A heddle profile; share/doc/heddle/daemon/profile/README.md says what each line "
         "means.\n"
      << "version = " << kVersion << "\n"
      << "gpu = " << toml_string(p.gpu) << "\n"
      << "driver = " << toml_string(p.driver) << "\n\n[task]\n"
      << "key = \"" << hex(p.task.task) << "\"\n"
      << "label = " << toml_string(p.label) << "\n"
      << "command = " << toml_string(p.command) << "\n";
  if (p.uid) out << "uid = " << *p.uid << "\n";
  out << "runs = " << p.task.runs << "\n"
      << "measured = " << toml_string(p.measured) << "\n";
  if (p.probe) write(out, *p.probe);
  for (const KernelProfile& k : p.task.kernels) {
    const ipc::KernelFacts& f = k.facts;
    out << "\n[[kernel]]\n"
        << "id = \"" << hex(f.id) << "\"\n"
        << "name = " << toml_string({f.name, strnlen(f.name, sizeof f.name)}) << "\n";
    for (const ipc::KernelFact& fact : ipc::kKernelFacts) {
      out << fact.key << " = " << f.*fact.member << "\n";
    }
    write(out, "duration_us_after", k.after);
    write(out, "duration_us", k.duration, true);
    write(out, "gap_launching_us", k.gap_launching);
    write(out, "gap_synchronized_us", k.gap_synchronized);
    write(out, "metrics", f.metrics);
  }
  return std::move(out).str();
}

Result<Profile> load(const std::string& path) {
  const auto text = read_file(path, "check the path and its permissions");
  return text ? parse(*text, path) : tl::unexpected<Error>(text.error());
}

Result<void> save(const std::string& path, const Profile& profile) {
  return replace_file(path, format(profile), 0600);
}

std::string file_name(const Profile& p) {
  std::string name = p.label;
  if (name.empty()) {
    const std::string program = p.command.substr(0, p.command.find(' '));
    name = std::filesystem::path(program).filename().string();
  }
  name = name.substr(0, 64);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return isalnum(c) == 0 && c != '.' && c != '_' && c != '-'; }, '_');
  if (name.empty() || name[0] == '.') name.insert(0, "task");
  // FNV-1a: the same on every host and in every version.
  uint64_t key = 0xcbf29ce484222325u ^ p.task.task;
  const std::string user = p.uid ? '\n' + std::to_string(*p.uid) : "";
  for (const char c : p.gpu + '\n' + p.driver + user) {
    key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return name + "-" + hex(key) + ".toml";
}

ipc::KernelMetrics probed_metrics(const Probe& probe, const core::DeviceModel& device) {
  core::Use use;
  const double busy = std::clamp(probe.busy, 0.01, 1.0);
  for (const Neighbour& n : probe.beside) {
    if (n.stretched <= 0 || core::index_of(n.channel) >= core::kChannels) continue;
    const float felt = core::use_from_probe(n.channel, n.use, n.stretched, device);
    if (felt < 0) continue;
    const auto own = static_cast<float>(std::min(1.0, static_cast<double>(felt) / busy));
    use[n.channel] = std::max(use[n.channel], own);
  }
  return core::metrics_of(use, device);
}

core::TaskProfile told(const Profile& profile) {
  core::TaskProfile task = profile.task;
  if (!profile.probe) return task;
  const core::DeviceModel any;
  for (KernelProfile& k : task.kernels) {
    if (core::use_of(k.facts.metrics, any).any_known()) continue;
    k.facts.metrics.merge(profile.probe->metrics);
  }
  return task;
}

void take_probe(Profile& profile, const Probe& probe) {
  profile.probe = probe;
  for (KernelProfile& k : profile.task.kernels) {
    ipc::KernelMetrics& own = k.facts.metrics;
    bool same = true;
    for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
      if (probe.metrics.has(i)) same &= own.get(i) == probe.metrics.get(i);
    }
    if (same) own.there &= ~probe.metrics.there;
  }
}

Result<void> fits(const Profile& p, const std::string& gpu, const std::string& driver) {
  const auto foreign = [&p](uint32_t line, const std::string& theirs, const std::string& ours) {
    return fail(p.file + ":" + std::to_string(line) + ": measured on " + theirs + ", this is " +
                ours + "; measure the task here, or remove the file");
  };
  if (p.gpu != gpu) return foreign(p.gpu_line, p.gpu, gpu);
  if (p.driver != driver) {
    return foreign(p.driver_line, "driver " + p.driver, "driver " + driver);
  }
  return {};
}

bool add_kernels(core::TaskProfile& into, const core::TaskProfile& from) {
  const auto known = by_id(into);
  std::vector<KernelProfile> fresh;
  bool more = false;
  for (const KernelProfile& k : from.kernels) {
    const auto it = known.find(k.facts.id);
    if (it == known.end()) {
      fresh.push_back(k);
    } else if (k.duration.count > 0 && it->second->duration.count == 0) {
      KernelProfile& own = *it->second;  // it ran inside a graph only, so far
      const ipc::KernelMetrics metrics = own.facts.metrics;
      own = k;
      own.facts.metrics.merge(metrics);
      more = true;
    } else {
      more |= take_more(it->second->after, k.after);
    }
  }
  into.runs = std::max(into.runs, from.runs);
  into.kernels.insert(into.kernels.end(), fresh.begin(), fresh.end());
  sort(into);
  return more || !fresh.empty();
}

size_t add_to_curve(core::TaskProfile& into, const core::TaskProfile& on, core::GroupCount groups) {
  const std::string key = groups.get() == 0 ? "us_on_all" : "us_on_" + std::to_string(groups.get());
  const size_t metric = ipc::metric_of(key);
  if (metric == ipc::kKernelMetricCount) return 0;
  std::unordered_map<uint64_t, double> means;
  for (const core::KernelProfile& k : on.kernels) {
    if (k.duration.count > 0) means[k.facts.id] = static_cast<double>(k.duration.mean_us);
  }
  size_t found = 0;
  for (core::KernelProfile& k : into.kernels) {
    const auto mean = means.find(k.facts.id);
    if (mean == means.end()) continue;
    k.facts.metrics.set(metric, mean->second);
    ++found;
  }
  return found;
}

Result<Profile> merge(const Profile& a, const Profile& b) {
  if (Result<void> same = fits(b, a.gpu, a.driver); !same) {
    return tl::unexpected<Error>(std::move(same.error()));
  }
  if (a.task.task != b.task.task) {
    return fail(b.file + ": profiles task " + hex(b.task.task) + ", " + a.file + " task " +
                hex(a.task.task) + "; merge profiles of one task");
  }
  if (a.uid != b.uid) {
    return fail(b.file + ": of another user than " + a.file + "; merge profiles of one user");
  }
  Profile all = a;
  all.measured = std::max(a.measured, b.measured);
  const auto others = by_id(b.task);
  for (KernelProfile& k : all.task.kernels) {
    const auto other = others.find(k.facts.id);
    if (other == others.end()) continue;
    const KernelProfile& o = *other->second;
    const auto more = [](Summary& mine, const Summary& theirs) {
      if (theirs.count > mine.count) mine = theirs;
    };
    more(k.duration, o.duration);
    more(k.gap_launching, o.gap_launching);
    more(k.gap_synchronized, o.gap_synchronized);
    k.facts.metrics.merge(o.facts.metrics);
  }
  add_kernels(all.task, b.task);
  if (b.probe && (!a.probe || b.measured > a.measured)) all.probe = b.probe;
  return all;
}

std::vector<Difference> diff(const Profile& a, const Profile& b, double within, double least_us) {
  std::vector<Difference> all;
  const auto mine = by_id(a.task), theirs = by_id(b.task);
  const auto compare = [&](const KernelProfile& k, const char* what, const Summary& x,
                           const Summary& y) {
    const auto x_us = static_cast<double>(x.mean_us), y_us = static_cast<double>(y.mean_us);
    const double apart = std::abs(x_us - y_us);
    if (x.count == 0 || y.count == 0 || apart <= least_us || apart <= within * std::max(x_us, y_us))
      return;
    all.push_back({k.facts.id, k.facts.name, what, x_us, y_us});
  };
  for (const KernelProfile& k : a.task.kernels) {
    const auto other = theirs.find(k.facts.id);
    if (other == theirs.end()) {
      all.push_back(
          {k.facts.id, k.facts.name, "only in A", static_cast<double>(k.duration.mean_us), 0});
      continue;
    }
    compare(k, "duration", k.duration, other->second->duration);
    compare(k, "gap_launching", k.gap_launching, other->second->gap_launching);
    compare(k, "gap_synchronized", k.gap_synchronized, other->second->gap_synchronized);
  }
  for (const KernelProfile& k : b.task.kernels) {
    if (mine.count(k.facts.id) != 0) continue;
    all.push_back(
        {k.facts.id, k.facts.name, "only in B", 0, static_cast<double>(k.duration.mean_us)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Difference& x, const Difference& y) {
    return std::abs(x.a_us - x.b_us) > std::abs(y.a_us - y.b_us);
  });
  return all;
}

size_t prune(Profile& profile, uint32_t samples) {
  return std::erase_if(profile.task.kernels, [samples](const KernelProfile& k) {
    const bool measured_inside = k.duration.count == 0 && k.facts.metrics.there != 0;
    return k.duration.count < samples && !measured_inside;
  });
}

}  // namespace heddle::profiles
