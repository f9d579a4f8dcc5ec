// A client of a trace as a script: what it did by itself, without what the GPU and heddle did to
// it.
#include "daemon/sim/script.h"

#include <algorithm>
#include <set>

namespace heddle::sim {
namespace {

// What the host spends in the launch call itself is the virtual machine's to add.
const TimeNs kLaunchNs = HostCosts().launch_ns;

// Fewer say less of a kernel than what the core learned.
constexpr size_t kSamplesMin = 8;

struct Call {
  TimeNs at = 0, over = 0;
  const trace::LaunchTrack* launch = nullptr;  // nullptr: a synchronizing call
};

std::vector<Call> calls_of(const trace::ClientTrack& client) {
  std::vector<Call> calls;
  for (const trace::LaunchTrack& l : client.launches) {
    if (l.posted != 0) calls.push_back({l.called, l.posted + kLaunchNs, &l});
  }
  for (const trace::SyncTrack& s : client.syncs) {
    if (s.returned != 0) calls.push_back({s.called, s.returned, nullptr});
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Call& a, const Call& b) { return a.at < b.at; });
  return calls;
}

// The calls from behind one synchronizing call to the next, that one included. What lies before the
// first and behind the last is cut off: nobody knows where it began or ended.
std::vector<std::vector<TraceScript::Launch>> segments_of(const std::vector<Call>& calls) {
  std::vector<std::vector<TraceScript::Launch>> segments;
  std::vector<TraceScript::Launch> segment;
  bool whole = false;
  TimeNs over = calls.empty() ? 0 : calls.front().at;
  for (const Call& call : calls) {
    TraceScript::Launch next;
    next.think_us =
        static_cast<float>(static_cast<double>(std::max<TimeNs>(0, call.at - over)) / 1e3);
    next.synchronize = call.launch == nullptr;
    if (call.launch != nullptr) {
      next.kernel = call.launch->kernel;
      next.us = call.launch->measured_us;
    }
    // A call that had nothing to wait for is host time of what follows.
    if (next.synchronize && segment.empty() && whole) continue;
    segment.push_back(next);
    over = std::max(over, call.over);
    if (!next.synchronize) continue;
    if (whole) segments.push_back(segment);
    segment.clear();
    whole = true;
  }
  return segments;
}

// The smallest number of segments that an iteration may have: as many as repeat, by how many
// launches they have and which kernel is first, nine times in ten.
size_t period_of(const std::vector<std::vector<TraceScript::Launch>>& segments) {
  const auto alike = [&](size_t a, size_t b) {
    return segments[a].size() == segments[b].size() &&
           segments[a].front().kernel == segments[b].front().kernel;
  };
  for (size_t period = 1; period <= segments.size() / 2; ++period) {
    size_t equal = 0;
    for (size_t i = 0; i + period < segments.size(); ++i) equal += alike(i, i + period) ? 1 : 0;
    if (equal * 10 >= (segments.size() - period) * 9) return period;
  }
  return 1;
}

// By how much kernels that were never measured are shortened: as one queue, all launches between
// the first and the last synchronizing call took no longer than there was between the two.
double shortened(const trace::ClientTrack& client) {
  TimeNs from = 0, to = 0;
  for (const trace::SyncTrack& s : client.syncs) {
    if (from == 0) from = s.returned;
    to = std::max(to, s.returned);
  }
  double room_us = static_cast<double>(to - from) / 1e3, inferred_us = 0;
  for (const trace::LaunchTrack& l : client.launches) {
    if (l.called < from || l.called >= to || l.kernel >= client.kernels.size()) continue;
    const trace::KernelTrack& k = client.kernels[l.kernel];
    if (k.measured_us.empty()) {
      inferred_us += k.learned_us;
    } else {
      room_us -= l.measured_us > 0 ? static_cast<double>(l.measured_us) : k.learned_us;
    }
  }
  return room_us > 0 && inferred_us > room_us ? room_us / inferred_us : 1;
}

// Of all launches, as the core learned them.
double middle_us(const std::vector<trace::KernelTrack>& kernels) {
  std::vector<double> all;
  for (const trace::KernelTrack& k : kernels) {
    all.insert(all.end(), std::max<uint64_t>(1, k.launches), k.learned_us);
  }
  const auto middle = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

const trace::ClientTrack* find_client(const trace::Timeline& timeline, const std::string& job) {
  const trace::ClientTrack* found = nullptr;
  size_t candidates = 0;
  for (const trace::ClientTrack& c : timeline.clients) {
    if (c.launches.empty()) continue;
    if (c.name() == job) return &c;
    ++candidates;
    found = &c;
  }
  return candidates == 1 ? found : nullptr;
}

}  // namespace

Result<TraceScript> script_of(const trace::Timeline& timeline, const std::string& file,
                              const std::string& job) {
  const trace::ClientTrack* client = find_client(timeline, job);
  if (client == nullptr) {
    std::set<std::string> names;
    for (const trace::ClientTrack& c : timeline.clients) names.insert(c.name());
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return fail(file + ": which client is job '" + job + "'? It has " +
                (all.empty() ? "none that launched" : all) +
                "; record one alone, or name the job as its client");
  }
  return script_of(*client, file);
}

Result<TraceScript> script_of(const trace::ClientTrack& client, const std::string& file) {
  TraceScript script;
  const auto segments = segments_of(calls_of(client));
  const size_t period = period_of(segments);
  for (size_t i = 0; i + period <= segments.size(); i += period) {
    auto& iteration = script.iterations.emplace_back();
    for (size_t k = 0; k < period; ++k) {
      iteration.insert(iteration.end(), segments[i + k].begin(), segments[i + k].end());
    }
  }
  if (script.iterations.empty()) {
    return fail(file + ": " + client.name() + " synchronizes less than twice; record for longer");
  }
  const auto known = [](const trace::KernelTrack& k) { return k.learned_us > 0; };
  if (std::none_of(client.kernels.begin(), client.kernels.end(), known)) {
    return fail(file + ": no kernel of " + client.name() + " was measured; record for longer");
  }
  // The last one stands for launches whose kernel the trace does not name.
  std::vector<trace::KernelTrack> kernels = client.kernels;
  kernels.emplace_back().learned_us = middle_us(client.kernels);
  const double share = shortened(client);
  for (uint32_t k = 0; k < kernels.size(); ++k) {
    const core::KernelBody& body = kernels[k].body;
    LaunchSpec spec{client.kernel_name(k), 0, facts::kSmCount, 1024};
    // A graph has no shape of its own: it is taken to fill the GPU once.
    const bool graph = body.block_threads == 0 || client.kernel_name(k).starts_with("graph");
    if (!graph && body.grid_blocks > 0) spec.blocks = body.grid_blocks;
    if (!graph) spec.threads = std::min(body.block_threads, 1024u);
    spec.saturation = facts::kSaturation;
    spec.registers = std::min(body.registers, facts::kRegistersPerSm / spec.threads);
    spec.shared_bytes =
        std::min(body.static_smem_bytes + body.dynamic_smem_bytes, facts::kSharedBytesPerSm);
    auto& measured = script.measured_us.emplace_back(kernels[k].measured_us);
    const double learned_us = kernels[k].learned_us * (measured.empty() ? share : 1);
    if (measured.size() < kSamplesMin) measured = {static_cast<float>(learned_us)};
    spec.us = static_cast<double>(measured[measured.size() / 2]);
    script.kernels.push_back(spec);
  }
  for (auto& iteration : script.iterations) {
    for (TraceScript::Launch& l : iteration) {
      l.kernel = std::min(l.kernel, static_cast<uint32_t>(script.kernels.size() - 1));
    }
  }
  return script;
}

Result<TraceScript> load_script(const std::string& path, const std::string& job) {
  auto reader = trace::Reader::open(path);
  if (!reader) return fail(reader.error().message);
  const auto timeline = trace::read_timeline(*reader);
  if (!timeline) return fail(timeline.error().message);
  return script_of(*timeline, path, job);
}

}  // namespace heddle::sim
