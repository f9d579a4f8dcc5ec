// Traces: what is written is read again, what is damaged is refused by name and place, and a
// recorded core decides the same when it is asked again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "daemon/policy/lua_policy.h"
#include "daemon/sim/virtual.h"
#include "daemon/trace/replay.h"
#include "daemon/trace/ring.h"
#include "daemon/trace/timeline.h"

namespace heddle::trace {
namespace {

using core::Event;
using core::EventKind;

Header header() {
  Header h;
  h.heddle = "1.2.3";
  h.gpu = "NVIDIA H200";
  h.driver = "580.1";
  h.mode = "mps";
  h.started = "2026-01-01T00:00:00Z";
  return h;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A trace in memory, as `heddle record` would write it.
class Written {
 public:
  void add(std::span<const std::byte> record) {
    encoder.kept();
    bytes += text(record);
    ++records;
  }
  std::string end() { return bytes + text(encoder.end(records, 0)); }

  Encoder encoder;
  std::string bytes = Encoder::header(header());
  uint64_t records = 0;
};

std::vector<Event> every_kind() {
  std::vector<Event> all;
  Event attached(EventKind::kAttached, 1'000'000'000'007, 3);
  attached.attached = {};
  attached.attached.task = ~0ull;
  attached.attached.profile_runs = 100;
  attached.attached.pid = 77;
  attached.attached.share = 0.25f;
  attached.attached.slo_ms = 12.5f;
  attached.attached.compute = {0.25f, 0.5f};
  attached.attached.slowdown_max = {1.125f, 1.25f};
  attached.attached.channel_max = {0.125f, 0.25f, 0.5f};
  attached.attached.fail_closed = true;
  attached.attached.gates = true;
  attached.attached.priority = 9;
  attached.attached.sm_set = core::SmSet(0x8003);
  attached.attached.made_sets = {core::SetSizes(0x80000001), {5, 3}};
  attached.attached.groups = {core::GroupCount(3), {8, 255, 12}};
  std::memset(attached.attached.name, 'n', sizeof attached.attached.name - 1);
  std::strcpy(attached.attached.label, "label");
  all.push_back(attached);
  Event kernel(EventKind::kKernel, 1'000'000'000'009, 3);
  kernel.kernel = {{0xfedcba9876543210, 1u << 31, 1024, 5, 6, 255, 32, "name", {}}, 4095};
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) kernel.kernel.metrics.set(i, 1e300);
  all.push_back(kernel);
  Event nodes(EventKind::kNodes, 1'000'000'000'009, 3);
  nodes.nodes = {4095, core::NodesBody::kMost, 1u << 31, {}};
  for (auto& node : nodes.nodes.nodes) node = {8191, 65535};
  all.push_back(nodes);
  Event profile(EventKind::kProfile, 1'000'000'000'009, 3);
  profile.profile = {0xfedcba9876543210, {1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, ~0u}, ~7ull, {}};
  profile.profile.metrics.set(ipc::kKernelMetricCount - 1, 0.5);
  all.push_back(profile);
  for (const EventKind kind : {EventKind::kPosted, EventKind::kAsked, EventKind::kWithdrawn}) {
    Event launch(kind, 1'000'000'000'001, 3);  // times may go back
    launch.device = 7;
    launch.launch = {1ull << 40,
                     core::kUnknownKernel,
                     3,
                     4,
                     5,
                     core::LaunchKind::kMemset,
                     core::Admission::kUnmanaged,
                     true,
                     0,
                     0};
    all.push_back(launch);
    launch.launch.thread = core::kTicketThreads;
    launch.launch.may_follow = 21;
    launch.launch.unit_us = 149.5f;
    all.push_back(launch);
  }
  Event recalled(EventKind::kRecalled, 1'000'000'000'002, 3);
  recalled.launch.stream_seq = 7;
  recalled.launch.thread = 3;
  recalled.launch.may_follow = 1;
  recalled.launch.admission = core::Admission::kGated;
  all.push_back(recalled);
  all.emplace_back(EventKind::kGatesLeft, 1'000'000'000'003, 3);
  for (const EventKind kind : {EventKind::kWaiting, EventKind::kCompleted, EventKind::kStreamEnd}) {
    Event done(kind, 1'000'000'100'000, 3);
    done.done = {9, 1.5f, core::kEveryStream, core::Evidence::kFailed};
    all.push_back(done);
  }
  Event terms(EventKind::kTerms, 1'000'000'150'000, 3);
  terms.terms = {2.5f, 20, 7, {1.25f, 1.5f}, {0.5f, 0, 1}};
  all.push_back(terms);
  Event stops(EventKind::kStops, 1'000'000'160'000, 3);
  stops.stop = {ipc::kStopYes, true, 626.5f};
  all.push_back(stops);
  Event memory(EventKind::kMemory, 1'000'000'170'000, 3);
  memory.memory = {uint64_t{5} << 30, true};
  all.push_back(memory);
  all.emplace_back(EventKind::kTick, 1'000'000'200'000, 0);
  all.emplace_back(EventKind::kDetached, 1'000'000'200'000, 3);
  return all;
}

std::vector<core::Decision> every_decision() {
  core::Decision grant;
  grant.at = 5;
  grant.client = 3;
  grant.decider = core::Decider::kStarvation;
  grant.ask_seq = 8;
  grant.thread = 9;
  grant.launch_priority = -5;
  grant.sm_set = core::SmSet(10);
  core::Decision window;
  window.kind = core::DecisionKind::kAllowance;
  window.client = 3;
  window.managed = 0;
  window.gates_soon = window.gates_inside = window.kernels_ask = true;
  window.launch_priority = -3;
  window.allowed = core::Allowance::kLeased;
  core::Decision hint;
  hint.kind = core::DecisionKind::kHint;
  hint.client = 3;
  hint.kernel = 6;
  hint.predicted_us = 7.5f;
  hint.measure = 1;
  core::Decision stop;
  stop.kind = core::DecisionKind::kStop;
  stop.client = 3;
  stop.off = true;
  stop.slice_us = 200;
  core::Decision park;
  park.kind = core::DecisionKind::kPark;
  park.client = 3;
  park.off = true;
  return {grant, window, hint, stop, park};
}

Record next(Reader& reader) {
  Record record;
  const Result<bool> more = reader.next(record);
  EXPECT_TRUE(more.has_value()) << more.error().message;
  EXPECT_TRUE(more.value_or(false)) << "the trace ends early";
  return record;
}

TEST(Trace, GivesBackEveryKindOfRecord) {
  Written trace;
  core::Config config;
  config.device = 2;
  config.sm_total = core::SmCount(99);
  config.mps = true;
  config.starvation_us = 123;
  config.alone = true;
  trace.add(trace.encoder.device(config, 5, false));
  trace.add(
      trace.encoder.policy({2, 6, "gapfill", "/p/gapfill.lua", "abc", {{"share_pct", "60"}}}));
  trace.add(trace.encoder.bypass({2, 7, true}));
  for (const Event& e : every_kind()) trace.add(trace.encoder.event(e));
  for (const core::Decision& d : every_decision()) trace.add(trace.encoder.decision(d));
  trace.add(trace.encoder.lost(41));
  Result<Reader> reader = Reader::from_bytes(trace.end(), "t.trace");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->header().gpu, "NVIDIA H200");

  const auto device = std::get<DeviceRecord>(next(*reader));
  EXPECT_EQ(device.config.device, 2);
  EXPECT_EQ(device.config.sm_total.get(), 99u);
  EXPECT_EQ(device.config.starvation_us, 123);
  EXPECT_TRUE(device.config.alone);
  EXPECT_TRUE(device.config.mps);
  EXPECT_FALSE(device.fresh);
  const auto policy = std::get<PolicyRecord>(next(*reader));
  EXPECT_EQ(policy.path, "/p/gapfill.lua");
  EXPECT_EQ(policy.params["share_pct"], "60");
  EXPECT_TRUE(std::get<BypassRecord>(next(*reader)).on);
  // Written again, what was read gives the same bytes: no field is lost.
  Encoder once, again;
  for (const Event& e : every_kind()) {
    const auto read = std::get<EventRecord>(next(*reader)).event;
    EXPECT_EQ(read.at, e.at);
    EXPECT_EQ(text(once.event(e)), text(again.event(read))) << static_cast<int>(e.kind);
  }
  for (const core::Decision& d : every_decision()) {
    const auto read = std::get<core::Decision>(next(*reader));
    EXPECT_EQ(text(once.decision(d)), text(again.decision(read))) << static_cast<int>(d.kind);
  }
  EXPECT_EQ(std::get<LostRecord>(next(*reader)).count, 41u);
  Record record;
  EXPECT_FALSE(*reader->next(record));
  EXPECT_EQ(reader->lost(), 41u);
}

TEST(Trace, RefusesAnotherVersionByNameAndPlace) {
  for (const int version : {1, kVersion - 1, kVersion + 1}) {
    std::string bytes = Written().end();
    bytes[8] = static_cast<char>(version);
    const Result<Reader> reader = Reader::from_bytes(bytes, "other.trace");
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().message, "other.trace: byte 8: trace version " +
                                          std::to_string(version) + ", this heddle reads version " +
                                          std::to_string(kVersion) +
                                          "; use the heddle that recorded it, or record again");
  }
}

TEST(Trace, RefusesWhatIsNoTrace) {
  const Result<Reader> reader = Reader::from_bytes("{\"json\": true}", "x.json");
  ASSERT_FALSE(reader);
  EXPECT_NE(reader.error().message.find("x.json: byte 0: not a heddle trace"), std::string::npos);
}

// Reads everything; the error, or "".
std::string read_all(const std::string& bytes) {
  Result<Reader> reader = Reader::from_bytes(bytes, "cut.trace");
  if (!reader) return reader.error().message;
  const Result<Timeline> timeline = read_timeline(*reader);
  return timeline ? "" : timeline.error().message;
}

TEST(Trace, RefusesATruncatedFileWhereverItEnds) {
  Written trace;
  for (const Event& e : every_kind()) trace.add(trace.encoder.event(e));
  const std::string whole = trace.end();
  EXPECT_EQ(read_all(whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string error = read_all(whole.substr(0, length));
    EXPECT_EQ(error.rfind("cut.trace: byte ", 0), 0u) << length << ": " << error;
    if (length >= sizeof kMagic) {
      EXPECT_NE(error.find("truncated"), std::string::npos) << length << ": " << error;
    }
  }
}

TEST(Trace, OfATruncatedFileWhatThereIsCanBeRead) {
  Written trace;
  for (const Event& e : every_kind()) trace.add(trace.encoder.event(e));
  const std::string whole = trace.end();
  uint64_t most = 0;
  for (size_t length = Encoder::header({}).size(); length < whole.size(); ++length) {
    Result<Reader> reader = Reader::from_bytes(whole.substr(0, length), "cut.trace");
    if (!reader) continue;  // inside the header
    reader->allow_truncated();
    const Result<Timeline> timeline = read_timeline(*reader);
    ASSERT_TRUE(timeline) << length << ": " << timeline.error().message;
    EXPECT_NE(reader->warning().find(": truncated after " + std::to_string(timeline->records)),
              std::string::npos)
        << reader->warning();
    EXPECT_GE(timeline->records, most);
    most = timeline->records;
  }
  EXPECT_EQ(most, every_kind().size());
}

TEST(Trace, SurvivesAnyDamage) {
  Written trace;
  for (const Event& e : every_kind()) trace.add(trace.encoder.event(e));
  for (const core::Decision& d : every_decision()) trace.add(trace.encoder.decision(d));
  const std::string whole = trace.end();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 4'000; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    const std::string error = read_all(bytes);
    if (!error.empty()) {
      EXPECT_EQ(error.rfind("cut.trace: byte ", 0), 0u) << error;
    }
  }
}

// One client: two launches, a synchronizing call, a gap, a launch that waited for its grant.
Timeline small_timeline() {
  Written trace;
  const auto add = [&](Event e) { trace.add(trace.encoder.event(e)); };
  const auto us = [](core::TimeNs n) { return n * 1'000; };
  Event attached(EventKind::kAttached, us(0), 1);
  attached.attached = {};
  std::strcpy(attached.attached.name, "train");
  attached.attached.priority = 9;
  add(attached);
  Event kernel(EventKind::kKernel, us(1), 1);
  kernel.kernel = {};
  std::strcpy(kernel.kernel.name, "gemm");
  add(kernel);
  const auto launch = [&](EventKind kind, core::TimeNs at, uint64_t seq, uint32_t ask) {
    Event e(kind, us(at), 1);
    e.launch = {};
    e.launch.stream_seq = seq;
    e.launch.ask_seq = ask;
    add(e);
  };
  const auto done = [&](EventKind kind, core::TimeNs at, uint64_t seq, float duration_us,
                        core::Evidence evidence) {
    Event e(kind, us(at), 1);
    e.done = {seq, duration_us, 0, evidence};
    add(e);
  };
  launch(EventKind::kPosted, 10, 1, 0);
  launch(EventKind::kPosted, 12, 2, 0);
  done(EventKind::kCompleted, 60, 1, 40, core::Evidence::kMarker);
  done(EventKind::kWaiting, 70, 0, 0, core::Evidence::kNone);
  done(EventKind::kCompleted, 110, 2, 50, core::Evidence::kSynchronized);
  launch(EventKind::kAsked, 200, 3, 1);
  core::Decision grant;
  grant.at = us(230);
  grant.client = 1;
  grant.ask_seq = 1;
  grant.decider = core::Decider::kStarvation;
  grant.sm_set = core::SmSet::first(core::GroupCount(2));
  trace.add(trace.encoder.decision(grant));
  done(EventKind::kCompleted, 300, 3, 0, core::Evidence::kMarker);
  Result<Reader> reader = Reader::from_bytes(trace.end(), "small");
  EXPECT_TRUE(reader);
  return *read_timeline(*reader);
}

TEST(Timeline, PutsLaunchesWaitsAndGapsWhereTheyWere) {
  const Timeline timeline = small_timeline();
  ASSERT_EQ(timeline.clients.size(), 1u);
  const ClientTrack& c = timeline.clients[0];
  EXPECT_EQ(c.name(), "train");
  EXPECT_EQ(c.kernel_name(0), "gemm");
  EXPECT_EQ(c.kernels[0].launches, 3u);
  EXPECT_EQ(c.kernels[0].measured_us, (std::vector<float>{40, 50}));
  ASSERT_EQ(c.launches.size(), 3u);
  EXPECT_EQ(c.launches[0].start, 20'000);  // its end less what it took
  EXPECT_EQ(c.launches[0].end, 60'000);
  EXPECT_EQ(c.launches[1].start, 60'000);
  EXPECT_EQ(c.launches[1].end, 110'000);
  EXPECT_EQ(c.launches[2].called, 200'000);
  EXPECT_EQ(c.launches[2].posted, 230'000);
  EXPECT_EQ(c.launches[2].granted_by, core::Decider::kStarvation);
  EXPECT_TRUE(c.launches[0].sm_set.empty());
  EXPECT_EQ(c.launches[2].sm_set, core::SmSet::first(core::GroupCount(2)));
  ASSERT_EQ(c.syncs.size(), 1u);
  EXPECT_EQ(c.syncs[0].returned - c.syncs[0].called, 40'000);
  ASSERT_EQ(c.gaps.size(), 1u);  // it ends with the call, not with the grant
  EXPECT_EQ(c.gaps[0].from, 110'000);
  EXPECT_EQ(c.gaps[0].to, 200'000);
  EXPECT_TRUE(c.gaps[0].synchronized);
}

TEST(Timeline, BecomesTracksOfAChromeTrace) {
  const nlohmann::json events = chrome_trace(small_timeline())["traceEvents"];
  const auto slice = [&](const std::string& name) {
    for (const auto& e : events) {
      if (e["ph"] == "X" && e["name"] == name) return e;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(slice("gemm")["dur"], 40.0);
  EXPECT_EQ(slice("gemm")["ts"], 20.0);
  EXPECT_EQ(slice("gemm")["args"]["sm_set"], 0);
  EXPECT_EQ(slice("wait")["dur"], 30.0);
  EXPECT_EQ(slice("gap after a synchronize")["dur"], 90.0);
  EXPECT_EQ(slice("synchronize")["ts"], 70.0);
  size_t grants = 0, named = 0;
  for (const auto& e : events) {
    grants += e["ph"] == "i" && e["name"] == "grant by starvation bound" ? 1 : 0;
    named += e["ph"] == "M" && e["args"]["name"] == "train Q9 gpu 0" ? 1 : 0;
  }
  EXPECT_EQ(grants, 1u);
  EXPECT_EQ(named, 1u);
}

// Virtual time begins at 0, which elsewhere means "never".
TEST(Timeline, ALaunchAtTimeZeroThatEndedDidNotWait) {
  Timeline timeline;
  timeline.to = 100'000;
  LaunchTrack& launch = timeline.clients.emplace_back().launches.emplace_back();
  const auto waits = [&] {
    const nlohmann::json all = chrome_trace(timeline);
    const nlohmann::json& events = all["traceEvents"];
    return std::count_if(events.begin(), events.end(),
                         [](const nlohmann::json& e) { return e["name"] == "wait"; });
  };
  launch.end = 40'000;
  EXPECT_EQ(waits(), 0);
  launch.end = 0;
  EXPECT_EQ(waits(), 1) << "the trace ended before it was let go";
}

TEST(TraceRing, CountsWhatDoesNotFitAndSaysWhere) {
  auto ring = std::make_unique<Ring>();
  Recorder recorder(*ring);
  std::string bytes = Encoder::header(header());
  Event tick(EventKind::kTick, 0, 0);
  while (ring->dropped < 10) {
    ++tick.at;
    recorder.event(tick);
  }
  take(*ring, bytes);
  const uint64_t before = ring->records;
  for (int i = 0; i < 5; ++i) {
    ++tick.at;
    recorder.event(tick);  // the first makes room for the word of what was lost
  }
  take(*ring, bytes);
  bytes += end_of(*ring);
  EXPECT_EQ(ring->dropped, 11u);
  EXPECT_EQ(ring->records, before + 5);
  Result<Reader> reader = Reader::from_bytes(bytes, "full.trace");
  ASSERT_TRUE(reader);
  Record record;
  core::TimeNs last = 0;
  uint64_t at_record = 0, found_at = 0;
  while (*reader->next(record)) {
    ++at_record;
    if (std::holds_alternative<LostRecord>(record)) found_at = at_record;
    if (const auto* e = std::get_if<EventRecord>(&record)) last = e->event.at;
  }
  EXPECT_EQ(reader->lost(), 11u);
  EXPECT_EQ(found_at, before + 1);
  EXPECT_EQ(last, tick.at);  // times go on rightly after the hole
}

TEST(TraceRing, AReaderThatLiesCostsRecordsAndNothingElse) {
  auto ring = std::make_unique<Ring>();
  Recorder recorder(*ring);
  for (const uint64_t tail : {~0ull, 1ull << 63, 0ull}) {
    ring->tail = tail;
    recorder.event(Event(EventKind::kTick, 1, 0));
  }
  // The first is believed, the second impossible, and the third event gives way to the word of it.
  EXPECT_EQ(ring->dropped, 2u);
  EXPECT_EQ(ring->records, 2u);
}

}  // namespace
}  // namespace heddle::trace
