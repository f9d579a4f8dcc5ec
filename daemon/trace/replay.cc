#include "daemon/trace/replay.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "daemon/trace/encoder.h"

namespace heddle::trace {
namespace {

class Replay {
 public:
  explicit Replay(const PolicySource& policies) : policies_(policies) {}

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

  Replayed out;

 private:
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
    devices_[config.device] = std::make_unique<core::Scheduler>(config);
  }

  Result<void> play_event(const EventRecord& record) {
    flush();
    core::Scheduler* s = scheduler(record.event.device);
    if (s == nullptr) return fail("a device without configuration; record it again");
    out.exact &= !record.introduced;
    ++out.events;
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
    constexpr const char* kNames[] = {"grant", "window", "hint"};
    out.first = std::string(kNames[static_cast<size_t>(d.kind)]) + " to client " +
                std::to_string(d.client) + " at " + std::to_string(d.at) + " ns: " + how;
  }

  const PolicySource& policies_;
  std::map<uint8_t, std::unique_ptr<core::Scheduler>> devices_;
  std::vector<core::Decision> expected_;
  size_t position_ = 0;
  Encoder first_, second_;
};

}  // namespace

Result<Replayed> replay(Reader& reader, const PolicySource& policies) {
  Replay run(policies);
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
  run.flush();
  return run.out;
}

}  // namespace heddle::trace
