#include "daemon/trace/replay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "daemon/trace/encoder.h"

namespace heddle::trace {
namespace {

class Replay {
 public:
  Replay(const PolicySource& policies, Candidate* candidate)
      : policies_(policies), candidate_(candidate) {}

  Result<void> play(const Record& record) {
    if (const auto* e = std::get_if<EventRecord>(&record)) return play_event(*e);
    if (const auto* d = std::get_if<core::Decision>(&record)) {
      compare(*d);
    } else if (const auto* device = std::get_if<DeviceRecord>(&record)) {
      play_device(*device);
    } else if (const auto* policy = std::get_if<PolicyRecord>(&record)) {
      return play_policy(*policy);
    } else if (const auto* bypass = std::get_if<BypassRecord>(&record)) {
      flush();
      core::Scheduler* s = scheduler(bypass->device);
      if (s == nullptr) return fail("a device without configuration; record it again");
      expect(s->set_bypass(bypass->on, bypass->at));
    } else {
      out.lost += std::get<LostRecord>(record).count;
      out.exact = false;
    }
    return {};
  }
  // What the core decided and nobody recorded.
  void flush() {
    for (; position_ < expected_.size(); ++position_) {
      differ("made and not recorded", expected_[position_]);
    }
  }

  void end() {
    flush();
    for (auto& [index, scheduler] : devices_) end_candidate(*scheduler);
    note_slice();
  }

  Replayed out;

 private:
  static constexpr core::TimeNs kSliceNs = 10'000'000;

  core::Scheduler* scheduler(uint8_t device) {
    const auto it = devices_.find(device);
    return it != devices_.end() ? it->second.get() : nullptr;
  }

  void play_device(const DeviceRecord& record) {
    flush();
    const core::Config& config = record.config;
    if (core::Scheduler* known = scheduler(config.device); known != nullptr && !record.fresh) {
      if (config.alone != known->config().alone) {
        return expect(known->set_alone(config.alone, record.at));
      }
      return expect(known->set_mode(config.mps, config.switch_us, record.at));
    }
    out.exact &= record.fresh;
    if (core::Scheduler* before = scheduler(config.device)) end_candidate(*before);
    devices_[config.device] = std::make_unique<core::Scheduler>(config);
    unasked_.insert(config.device);
  }

  // Once its policy is known, so that no instance is for nothing.
  Result<void> ask_candidate(core::Scheduler& s, core::TimeNs now) {
    if (candidate_ == nullptr || unasked_.erase(s.config().device) == 0) return {};
    const Result<core::Policy*> made = candidate_->make();
    if (!made) return tl::unexpected<Error>(made.error());
    if (!s.begin_shadow(**made, {}, now)) return fail("the candidate's init failed");
    return {};
  }

  void end_candidate(core::Scheduler& s) {
    if (auto report = s.end_shadow("the trace ends")) {
      candidate_->reports.push_back(std::move(*report));
      unasked_.insert(s.config().device);
    }
  }

  void note_slice() {
    if (candidate_ == nullptr || last_ == 0) return;
    Candidate::Slice slice{last_};
    const auto add = [&](const core::ShadowReport& report) {
      for (const core::ShadowOfClient& one : report.clients) {
        slice.alike += one.counts.alike;
        slice.sooner += one.counts.sooner;
        slice.later += one.counts.later;
      }
    };
    for (const auto& [index, scheduler] : devices_) {
      if (const auto report = scheduler->shadow()) add(*report);
    }
    for (const core::ShadowReport& report : candidate_->reports) add(report);
    candidate_->slices.push_back(slice);
  }

  void count(const EventRecord& record) {
    const core::Event& e = record.event;
    out.exact &= !record.introduced;
    ++out.events;
    out.introduced += record.introduced && e.kind == core::EventKind::kAttached ? 1 : 0;
    if (e.kind == core::EventKind::kRow) out.in_rows += e.untold.launches;
    const bool posted = e.kind == core::EventKind::kPosted;
    out.leased += posted && e.launch.admission == core::Admission::kLease ? 1 : 0;
    if (record.introduced) return;
    if (last_ / kSliceNs != e.at / kSliceNs) note_slice();
    last_ = e.at;
  }

  Result<void> play_event(const EventRecord& record) {
    flush();
    core::Scheduler* s = scheduler(record.event.device);
    if (s == nullptr) return fail("a device without configuration; record it again");
    count(record);
    if (auto asked = ask_candidate(*s, record.event.at); !asked) return asked;
    // The core was told of an introduced client before anybody recorded what it decided then.
    expect(s->step(record.event));
    if (record.introduced) position_ = expected_.size();
    return {};
  }

  Result<void> play_policy(const PolicyRecord& record) {
    flush();
    core::Scheduler* s = scheduler(record.device);
    if (s == nullptr) return fail("a device without configuration; record it again");
    const Result<core::Policy*> policy = policies_(record);
    if (!policy) return tl::unexpected<Error>(policy.error());
    end_candidate(*s);
    bool ok = false;
    expect(s->set_policy(*policy, record.at, ok));
    if (!ok) return fail("policy '" + record.name + "': init failed in the replay");
    return {};
  }

  void expect(std::span<const core::Decision> decisions) {
    expected_.assign(decisions.begin(), decisions.end());
    position_ = 0;
  }

  void compare(const core::Decision& recorded) {
    ++out.decisions;
    if (position_ == expected_.size()) return differ("recorded and not made", recorded);
    const core::Decision& made = expected_[position_++];
    // As encoded: the decisions of a kind differ in the fields that the kind has.
    const auto a = first_.decision(made), b = second_.decision(recorded);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) differ("made otherwise", recorded);
  }

  void differ(const char* how, const core::Decision& d) {
    ++out.differing;
    if (!out.first.empty()) return;
    constexpr const char* kNames[] = {"grant", "allowance", "hint"};
    out.first = std::string(kNames[static_cast<size_t>(d.kind)]) + " to client " +
                std::to_string(d.client) + " at " + std::to_string(d.at) + " ns: " + how;
  }

  const PolicySource& policies_;
  Candidate* const candidate_;
  std::set<uint8_t> unasked_;  // devices without the candidate
  core::TimeNs last_ = 0;
  std::map<uint8_t, std::unique_ptr<core::Scheduler>> devices_;
  std::vector<core::Decision> expected_;
  size_t position_ = 0;
  Encoder first_, second_;
};

}  // namespace

Result<Replayed> replay(Reader& reader, const PolicySource& policies, Candidate* candidate) {
  Replay run(policies, candidate);
  Record record;
  for (;;) {
    const Result<bool> more = reader.next(record);
    if (!more) return tl::unexpected<Error>(more.error());
    if (!*more) break;
    if (Result<void> played = run.play(record); !played) {
      return fail(reader.name() + ": record " + std::to_string(reader.records()) + ": " +
                  played.error().message);
    }
  }
  run.end();
  return run.out;
}

}  // namespace heddle::trace
