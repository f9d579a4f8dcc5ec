#include "daemon/trace/timeline.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace heddle::trace {
namespace {

using core::Decision;
using core::Event;
using core::EventKind;
using core::TimeNs;

bool is_launch(core::LaunchKind kind) {
  return kind == core::LaunchKind::kKernel || kind == core::LaunchKind::kGraph;
}

class Builder {
 public:
  Result<Timeline> read(Reader& reader) {
    out_.header = reader.header();
    Record record;
    for (;;) {
      const Result<bool> more = reader.next(record);
      if (!more) return tl::unexpected<Error>(more.error());
      if (!*more) break;
      if (const auto* e = std::get_if<EventRecord>(&record)) {
        note(e->event.at);
        on_event(*e);
        if (const auto core = cores_.find(e->event.device); core != cores_.end()) {
          core->second->step(e->event);
        }
      } else if (const auto* device = std::get_if<DeviceRecord>(&record)) {
        auto& core = cores_[device->config.device];
        if (!core || device->fresh) core = std::make_unique<core::Scheduler>(device->config);
      } else if (const auto* d = std::get_if<Decision>(&record)) {
        note(d->at);
        on_decision(*d);
      } else if (const auto* p = std::get_if<PolicyRecord>(&record)) {
        note(p->at);
        out_.policies.push_back(*p);
      }
    }
    out_.records = reader.records();
    out_.lost = reader.lost();
    for (auto& [key, state] : states_) finish(state);
    return std::move(out_);
  }

 private:
  struct State {  // of one client on one device
    size_t track = 0;
    std::map<uint16_t, std::vector<size_t>> pending;  // launches by stream, oldest first
    std::map<uint16_t, TimeNs> stream_end;
    uint32_t ticket = 0;     // that the core was asked to let go last; 0: none waits
    size_t held = 0;         // its launch
    size_t on_gpu = 0;       // launches
    size_t sync = SIZE_MAX;  // that has not returned
    bool synchronized = false;
    TimeNs idle_from = 0;   // 0: it never had work, or has some
    core::SmSet cut_set{};  // of its launches that do not ask
  };

  void note(TimeNs at) {
    if (!std::exchange(noted_, true)) out_.from = out_.to = at;
    out_.to = std::max(out_.to, at);
  }

  State* find(const Event& e) {
    const auto it = states_.find({e.device, e.client});
    return it != states_.end() ? &it->second : nullptr;
  }
  ClientTrack& track(const State& s) { return out_.clients[s.track]; }

  void on_event(const EventRecord& record) {
    const Event& e = record.event;
    if (e.kind == EventKind::kAttached) {
      State& s = states_[{e.device, e.client}];
      s = {};
      s.track = out_.clients.size();
      ClientTrack& c = out_.clients.emplace_back();
      c.device = e.device;
      c.id = e.client;
      c.who = e.attached;
      c.attached = e.at;
      c.introduced = record.introduced;
      return;
    }
    State* s = find(e);
    if (s == nullptr) return;
    ClientTrack& c = track(*s);
    switch (e.kind) {
      case EventKind::kDetached:
        c.detached = e.at;
        finish(*s);
        states_.erase({e.device, e.client});
        break;
      case EventKind::kKernel:
        if (e.kernel.index >= kKernelsMax) break;
        if (e.kernel.index >= c.kernels.size()) c.kernels.resize(e.kernel.index + 1);
        c.kernels[e.kernel.index].body = e.kernel;
        break;
      case EventKind::kAsked:
        if (s->ticket != e.launch.ask_seq) s->held = called(*s, e);
        s->ticket = e.launch.ask_seq;
        break;
      case EventKind::kPosted:
        on_posted(*s, e);
        break;
      case EventKind::kRecalled:
        on_recalled(*s, e);
        break;
      case EventKind::kWaiting:
        s->sync = c.syncs.size();
        c.syncs.push_back({e.done.stream, e.at, 0});
        break;
      case EventKind::kCompleted:
        on_completed(*s, e);
        break;
      default:
        break;
    }
  }

  size_t called(State& s, const Event& e) {
    ClientTrack& c = track(s);
    LaunchTrack& l = c.launches.emplace_back();
    l.kernel = e.launch.kernel;
    l.stream = e.launch.stream;
    l.thread = e.launch.thread;
    l.kind = e.launch.kind;
    l.admission = e.launch.admission;
    l.seq = e.launch.stream_seq;
    l.called = e.at;
    return c.launches.size() - 1;
  }

  void let_go(State& s, size_t index, TimeNs at) {
    ClientTrack& c = track(s);
    LaunchTrack& l = c.launches[index];
    l.posted = at;
    l.sm_set = l.sm_set.or_if_empty(s.cut_set).or_if_empty(c.who.sm_set);
    if (l.kernel < c.kernels.size()) ++c.kernels[l.kernel].launches;
    if (s.on_gpu++ == 0 && s.idle_from != 0) {
      c.gaps.push_back({s.idle_from, std::max(l.called, s.idle_from), s.synchronized});
    }
    s.idle_from = 0;
    s.synchronized = false;
    s.pending[l.stream].push_back(index);
  }

  void on_posted(State& s, const Event& e) {
    if (!is_launch(e.launch.kind) || e.launch.admission == core::Admission::kSelfCapturing) return;
    const bool asked = e.launch.ask_seq != 0 && s.ticket == e.launch.ask_seq;  // and withdrawn
    if (asked) s.ticket = 0;
    let_go(s, asked ? s.held : called(s, e), e.at);
  }

  // Its rest is another launch in the picture, which asks as any.
  void on_recalled(State& s, const Event& e) {
    ClientTrack& c = track(s);
    auto& pending = s.pending[e.launch.stream];
    if (pending.empty() || c.launches[pending.back()].seq != e.launch.stream_seq) return;
    LaunchTrack& l = c.launches[pending.back()];
    l.start = std::min(std::max(l.posted, s.stream_end[e.launch.stream]), e.at);
    l.end = s.stream_end[e.launch.stream] = e.at;
    pending.pop_back();
    --s.on_gpu;
  }

  void on_decision(const Decision& d) {
    if (d.kind != core::DecisionKind::kHint) out_.decisions.push_back(d);
    const auto it = states_.find({d.device, d.client});
    if (it == states_.end()) return;
    State& s = it->second;
    if (d.kind == core::DecisionKind::kAllowance) s.cut_set = d.sm_set;
    if (d.kind != core::DecisionKind::kGrant) return;
    if (s.ticket == 0 || s.ticket != d.ask_seq) return;
    s.ticket = 0;
    track(s).launches[s.held].granted_by = d.decider;
    track(s).launches[s.held].sm_set = d.sm_set;
    let_go(s, s.held, d.at);
  }

  void on_completed(State& s, const Event& e) {
    ClientTrack& c = track(s);
    if (e.done.evidence == core::Evidence::kFailed) return;
    for (auto& [stream, pending] : s.pending) {
      if (e.done.stream != core::kEveryStream && e.done.stream != stream) continue;
      // Of every stream: what was called before the synchronizing call.
      const TimeNs until = s.sync != SIZE_MAX ? c.syncs[s.sync].called : e.at;
      size_t count = 0;
      while (count < pending.size()) {
        const LaunchTrack& l = c.launches[pending[count]];
        const bool covered =
            e.done.stream == core::kEveryStream ? l.called <= until : l.seq <= e.done.stream_seq;
        if (!covered) break;
        ++count;
      }
      if (count == 0) continue;
      if (e.done.stream != core::kEveryStream && e.done.duration_us > 0) {
        LaunchTrack& last = c.launches[pending[count - 1]];
        if (last.seq == e.done.stream_seq) measure(c, last, e.done.duration_us);
      }
      place(s, c, stream,
            std::vector<size_t>(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(count)),
            e.at);
      pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(count));
      s.on_gpu -= count;
    }
    if (e.done.evidence == core::Evidence::kSynchronized && s.sync != SIZE_MAX) {
      c.syncs[s.sync].returned = e.at;
      s.sync = SIZE_MAX;
    }
    if (s.on_gpu == 0 && s.idle_from == 0 && !c.launches.empty()) {
      s.idle_from = e.at;
      s.synchronized = e.done.evidence == core::Evidence::kSynchronized;
    }
  }

  static void measure(ClientTrack& c, LaunchTrack& l, float us) {
    l.measured_us = us;
    if (l.kernel < c.kernels.size()) c.kernels[l.kernel].measured_us.push_back(us);
  }

  // Launches of one stream that are known to have ended by `at`, the last of them then.
  void place(State& s, ClientTrack& c, uint16_t stream, const std::vector<size_t>& launches,
             TimeNs at) {
    TimeNs& end = s.stream_end[stream];
    for (const size_t index : launches) {
      LaunchTrack& l = c.launches[index];
      double us = static_cast<double>(l.measured_us);
      if (us == 0 && l.kernel < c.kernels.size() && !c.kernels[l.kernel].measured_us.empty()) {
        us = static_cast<double>(c.kernels[l.kernel].measured_us.back());
      }
      l.start = std::min(std::max(l.posted, end), at);
      l.end = std::min(l.start + static_cast<TimeNs>(us * 1e3), at);
      end = l.end;
    }
    LaunchTrack& last = c.launches[launches.back()];
    last.end = at;
    if (last.measured_us > 0) {
      const TimeNs start = at - static_cast<TimeNs>(static_cast<double>(last.measured_us) * 1e3);
      last.start = std::max(last.posted, start);
    }
    end = at;
  }

  void finish(State& s) {
    ClientTrack& c = track(s);
    const TimeNs end = c.detached != 0 ? c.detached : out_.to;
    if (s.idle_from != 0 && s.idle_from < end) {
      c.gaps.push_back({s.idle_from, end, s.synchronized});
    }
    s.idle_from = 0;
    const auto core = cores_.find(c.device);
    for (uint32_t k = 0; k < c.kernels.size() && core != cores_.end(); ++k) {
      c.kernels[k].learned_us = core->second->view().outlook(c.id, end, k).duration_us;
    }
  }

  static constexpr uint32_t kKernelsMax = 1 << 20;

  Timeline out_;
  bool noted_ = false;  // a time; virtual time begins with 0
  std::map<std::pair<uint8_t, core::ClientId>, State> states_;
  std::map<uint8_t, std::unique_ptr<core::Scheduler>> cores_;  // told the same, for what they learn
};

template <size_t N>
std::string text(const char (&chars)[N]) {
  return std::string(chars, strnlen(chars, N));
}

}  // namespace

double KernelTrack::median_us() const {
  if (measured_us.empty()) return 0;
  std::vector<float> sorted = measured_us;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return static_cast<double>(*middle);
}

std::string ClientTrack::name() const {
  const std::string label = text(who.label);
  return label.empty() ? text(who.name) : label;
}

std::string ClientTrack::kernel_name(uint32_t index) const {
  if (index >= kernels.size()) return "launch";
  const std::string name = text(kernels[index].body.name);
  return name.empty() ? "kernel " + std::to_string(index) : name;
}

Result<Timeline> read_timeline(Reader& reader) { return Builder().read(reader); }

}  // namespace heddle::trace
