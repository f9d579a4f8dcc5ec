#include <algorithm>
#include <set>

#include "daemon/trace/timeline.h"

namespace heddle::trace {
namespace {

using core::TimeNs;
using nlohmann::json;

// Tracks of a client beside those of its streams, which are numbered as they are.
enum Tracks : int { kGaps = 70'000, kSyncs = 70'001, kDecisions = 70'002, kAsks = 70'010 };

class Chrome {
 public:
  explicit Chrome(const Timeline& timeline) : timeline_(timeline) {}

  json build() {
    for (const ClientTrack& c : timeline_.clients) client(c);
    for (const core::Decision& d : timeline_.decisions) decision(d);
    for (const PolicyRecord& p : timeline_.policies) {
      events_.push_back({{"ph", "i"},
                         {"s", "g"},
                         {"name", "policy " + p.name},
                         {"pid", 0},
                         {"tid", 0},
                         {"ts", us(p.at)}});
    }
    const Header& h = timeline_.header;
    return {{"displayTimeUnit", "ns"},
            {"otherData",
             {{"heddle", h.heddle},
              {"gpu", h.gpu},
              {"driver", h.driver},
              {"mode", h.mode},
              {"started", h.started},
              {"lost", timeline_.lost}}},
            {"traceEvents", std::move(events_)}};
  }

 private:
  double us(TimeNs at) const { return static_cast<double>(at - timeline_.from) / 1e3; }

  // Chrome's processes have one number; a client may be on several devices.
  static uint64_t pid(uint8_t device, core::ClientId client) { return client * 100 + device; }

  void name(const char* what, uint64_t pid, int tid, const std::string& text) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", text}}}});
  }

  void slice(uint64_t pid, int tid, const std::string& text, TimeNs from, TimeNs to, json args) {
    events_.push_back({{"ph", "X"},
                       {"name", text},
                       {"pid", pid},
                       {"tid", tid},
                       {"ts", us(from)},
                       {"dur", static_cast<double>(std::max<TimeNs>(0, to - from)) / 1e3},
                       {"args", std::move(args)}});
  }

  void client(const ClientTrack& c) {
    const uint64_t id = pid(c.device, c.id);
    name("process_name", id, 0,
         c.name() + " Q" + std::to_string(c.who.priority) + " gpu " + std::to_string(c.device));
    std::set<int> tracks;
    for (const LaunchTrack& l : c.launches) {
      // A time of 0 is none, but for the first launch of virtual time.
      if (l.posted > l.called || (l.posted == 0 && l.end == 0)) {
        const int tid = kAsks + l.thread;
        if (tracks.insert(tid).second) {
          name("thread_name", id, tid, "waits of thread " + std::to_string(l.thread));
        }
        slice(id, tid, "wait", l.called, l.posted != 0 ? l.posted : timeline_.to,
              {{"kernel", c.kernel_name(l.kernel)}});
      }
      if (l.end == 0) continue;
      if (tracks.insert(l.stream).second) {
        name("thread_name", id, l.stream, "stream " + std::to_string(l.stream));
      }
      slice(id, l.stream, c.kernel_name(l.kernel), l.start, l.end,
            {{"measured_us", l.measured_us},
             {"seq", l.seq},
             {"posted_us", us(l.posted)},
             {"sm_set", l.sm_set.bits()}});
    }
    name("thread_name", id, kGaps, "gaps");
    for (const GapTrack& g : c.gaps) {
      slice(id, kGaps, g.synchronized ? "gap after a synchronize" : "gap", g.from, g.to,
            json::object());
    }
    name("thread_name", id, kSyncs, "synchronizing calls");
    for (const SyncTrack& s : c.syncs) {
      slice(id, kSyncs, "synchronize", s.called, s.returned != 0 ? s.returned : timeline_.to,
            json::object());
    }
    name("thread_name", id, kDecisions, "decisions");
  }

  void decision(const core::Decision& d) {
    constexpr const char* kDeciders[] = {"policy", "built-in", "starvation bound", "bypass"};
    const char* by = kDeciders[static_cast<size_t>(d.decider)];
    const uint64_t id = pid(d.device, d.client);
    if (d.kind == core::DecisionKind::kGrant) {
      events_.push_back({{"ph", "i"},
                         {"s", "t"},
                         {"name", std::string("grant by ") + by},
                         {"pid", id},
                         {"tid", kDecisions},
                         {"ts", us(d.at)},
                         {"args", {{"ask", d.ask_seq}, {"thread", d.thread}}}});
      return;
    }
    if (d.kind == core::DecisionKind::kStop) {
      events_.push_back({{"ph", "i"},
                         {"s", "t"},
                         {"name", d.off ? "what runs stands" : "what runs goes on"},
                         {"pid", id},
                         {"tid", kDecisions},
                         {"ts", us(d.at)},
                         {"args", {{"slice_us", d.slice_us}}}});
      return;
    }
    if (d.kind == core::DecisionKind::kPark) {
      events_.push_back({{"ph", "i"},
                         {"s", "t"},
                         {"name", d.off ? "its memory leaves" : "its memory comes back"},
                         {"pid", id},
                         {"tid", kDecisions},
                         {"ts", us(d.at)}});
      return;
    }
    constexpr const char* kAllowed[] = {"gated", "open", "leased"};
    const auto allowed = static_cast<size_t>(d.allowed);
    events_.push_back({{"ph", "i"},
                       {"s", "t"},
                       {"name", std::string(kAllowed[allowed]) + " by " + by},
                       {"pid", id},
                       {"tid", kDecisions},
                       {"ts", us(d.at)}});
    events_.push_back({{"ph", "C"},
                       {"name", "0 gated, 1 open, 2 leased"},
                       {"pid", id},
                       {"ts", us(d.at)},
                       {"args", {{"allowed", allowed}}}});
  }

  const Timeline& timeline_;
  json events_ = json::array();
};

}  // namespace

json chrome_trace(const Timeline& timeline) { return Chrome(timeline).build(); }

}  // namespace heddle::trace
