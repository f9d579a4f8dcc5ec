#include "daemon/trace/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "daemon/base/files.h"
#include "daemon/base/json.h"

namespace heddle::trace {
namespace {

using core::Decision;
using core::DecisionKind;
using core::Event;
using core::EventKind;
using nlohmann::json;

// The fields of one record's body. Reading past its end, or a number that is too large for its
// field, makes it bad and gives zeros from then on.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  void refuse() { good_ = false; }
  bool consumed() const { return good_ && bytes_.empty(); }

  uint64_t varint(uint64_t most = UINT64_MAX) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint8_t byte = u8();
      if (shift == 63 && byte > 1) good_ = false;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    if (value > most) good_ = false;
    return good_ ? value : 0;
  }
  template <class T>
  T number() {
    return static_cast<T>(varint(std::numeric_limits<T>::max()));
  }
  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  uint8_t u8(uint8_t most = 0xff) {
    if (bytes_.empty()) {
      good_ = false;
      return 0;
    }
    const auto value = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    if (value > most) good_ = false;
    return value;
  }
  uint64_t u64() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 8) value |= uint64_t{u8()} << shift;
    return value;
  }
  double f64() { return std::bit_cast<double>(u64()); }
  float f32() {
    uint32_t bits = 0;
    for (int shift = 0; shift < 32; shift += 8) bits |= uint32_t{u8()} << shift;
    return std::bit_cast<float>(bits);
  }
  std::string_view text() {
    const uint64_t length = varint(bytes_.size());
    if (!good_) return {};
    const std::string_view out = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return out;
  }
  template <size_t N>
  void text(char (&out)[N]) {
    const std::string_view in = text();
    if (in.size() >= N) good_ = false;
    std::copy_n(in.begin(), std::min(in.size(), N - 1), out);
  }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

core::ChannelMax read_channel_max(Fields& in) {
  core::ChannelMax max{};
  for (float* part : {&max.issue, &max.l2, &max.dram}) *part = in.f32();
  return max;
}

core::SlowdownMax read_slowdown_max(Fields& in) {
  core::SlowdownMax max;
  max.mean = in.f32();
  max.p99 = in.f32();
  return max;
}

core::Compute read_compute(Fields& in) {
  core::Compute compute;
  compute.request = in.f32();
  compute.limit = in.f32();
  return compute;
}

void read_attached(Fields& in, EventRecord& out) {
  core::AttachedBody& b = out.event.attached = {};
  b.task = in.varint();
  b.profile_runs = in.number<uint32_t>();
  b.pid = in.number<uint32_t>();
  b.uid = in.number<uint32_t>();
  b.share = in.f32();
  b.slo_ms = in.f32();
  b.compute = read_compute(in);
  b.slowdown_max = read_slowdown_max(in);
  b.channel_max = read_channel_max(in);
  const uint8_t flags = in.u8(7);
  b.fail_closed = (flags & 1) != 0;
  b.gates = (flags & 4) != 0;
  out.introduced = (flags & 2) != 0;
  b.priority = in.u8();
  b.sm_set = core::SmSet(in.number<uint32_t>());
  const auto groups = static_cast<uint32_t>(in.varint(core::kSmGroups));  // 0 if it is more
  b.groups.count = core::GroupCount(groups);
  for (uint32_t i = 0; i < groups; ++i) b.groups.widths[i] = in.number<uint8_t>();
  b.made_sets = ipc::unpack_made(in.varint());
  in.text(b.name);
  in.text(b.label);
}

void read_metrics(Fields& in, ipc::KernelMetrics& metrics) {
  metrics = {};
  for (uint64_t left = in.varint(ipc::kKernelMetricCount); left > 0; --left) {
    const uint64_t metric = in.varint(ipc::kKernelMetricCount - 1);
    metrics.set(metric, in.f64());
  }
}

void read_kernel(Fields& in, EventRecord& out) {
  core::KernelBody& b = out.event.kernel = {};
  b.index = in.number<uint32_t>();
  b.id = in.u64();
  for (const ipc::KernelFact& fact : ipc::kKernelFacts) b.*fact.member = in.number<uint32_t>();
  out.introduced = in.u8(3) == 2;
  in.text(b.name);
  read_metrics(in, b.metrics);
}

void read_nodes(Fields& in, core::NodesBody& b) {
  b = {};
  b.graph = in.number<uint32_t>();
  b.others = in.number<uint32_t>();
  b.count = static_cast<uint32_t>(in.varint(b.kMost));
  for (uint32_t i = 0; i < b.count; ++i) {
    b.nodes[i].kernel = in.number<uint16_t>();
    b.nodes[i].count = in.number<uint16_t>();
  }
}

void read_profile(Fields& in, core::ProfileBody& b) {
  b.kernel_id = in.u64();
  for (core::Summary* s : {&b.duration, &b.gap_launching, &b.gap_synchronized}) {
    for (float* us : {&s->mean_us, &s->p50_us, &s->p90_us}) *us = in.f32();
    s->count = in.number<uint32_t>();
  }
  b.before = in.u64();
  read_metrics(in, b.metrics);
}

void read_event(Fields& in, EventRecord& out) {
  Event& e = out.event;
  e.client = in.varint();
  switch (e.kind) {
    case EventKind::kAttached:
      return read_attached(in, out);
    case EventKind::kKernel:
      return read_kernel(in, out);
    case EventKind::kNodes:
      return read_nodes(in, e.nodes);
    case EventKind::kProfile:
      return read_profile(in, e.profile);
    case EventKind::kPosted:
    case EventKind::kAsked:
    case EventKind::kWithdrawn:
    case EventKind::kRecalled: {
      core::LaunchBody& b = e.launch = {};
      b.stream_seq = in.varint();
      for (uint32_t* value : {&b.kernel, &b.ask_seq}) *value = in.number<uint32_t>();
      b.stream = in.number<uint16_t>();
      b.thread = in.number<uint16_t>();
      const uint8_t flags = in.u8();
      if ((flags & 0xf) > static_cast<unsigned>(core::Admission::kUnmanaged)) in.refuse();
      b.unmovable = (flags & 0x40) != 0;
      b.kind = static_cast<core::LaunchKind>(flags >> 4 & 3);
      b.admission = static_cast<core::Admission>(flags & 0xf);
      if ((flags & 0x80) == 0) return;
      b.may_follow = in.number<uint16_t>();
      b.unit_us = in.f32();
      return;
    }
    case EventKind::kWaiting:
    case EventKind::kCompleted:
    case EventKind::kStreamEnd:
      e.done = {};
      e.done.stream_seq = in.varint();
      e.done.duration_us = in.f32();
      e.done.stream = in.number<uint16_t>();
      e.done.evidence = static_cast<core::Evidence>(in.u8(3));
      return;
    case EventKind::kUnobserved:
    case EventKind::kObserved:
      e.untold = {in.varint(), core::kUnknownKernel, 0};
      return;
    case EventKind::kRow:
      e.untold.launches = in.varint();
      e.untold.kernel = in.number<uint32_t>();
      e.untold.backlog_us = in.f32();
      return;
    case EventKind::kTerms:
      e.terms.share = in.f32();
      e.terms.slo_ms = in.f32();
      e.terms.compute = read_compute(in);
      e.terms.slowdown_max = read_slowdown_max(in);
      e.terms.channel_max = read_channel_max(in);
      e.terms.priority = in.u8(core::kPriorityLowest);
      return;
    case EventKind::kStops:
      e.stop.able = in.number<uint32_t>();
      e.stop.off = in.u8(1) != 0;
      e.stop.took_us = in.f32();
      return;
    case EventKind::kMemory:
      e.memory.bytes = in.varint();
      e.memory.parked = in.u8(1) != 0;
      return;
    case EventKind::kDetached:
    case EventKind::kGatesLeft:
    case EventKind::kTick:
      return;
  }
}

void read_decision(Fields& in, Decision& d) {
  d.client = in.varint();
  switch (d.kind) {
    case DecisionKind::kGrant:
      d.decider = static_cast<core::Decider>(in.u8(3));
      d.ask_seq = in.number<uint32_t>();
      d.thread = in.number<uint16_t>();
      d.launch_priority = static_cast<int8_t>(in.zigzag());
      d.sm_set = core::SmSet(in.number<uint32_t>());
      return;
    case DecisionKind::kAllowance:
      d.decider = static_cast<core::Decider>(in.u8(3));
      d.managed = in.u8(15);
      d.gates_soon = (d.managed & 2) != 0;
      d.kernels_ask = (d.managed & 4) != 0;
      d.gates_inside = (d.managed & 8) != 0;
      d.managed &= 1;
      d.launch_priority = static_cast<int8_t>(in.zigzag());
      d.allowed = static_cast<core::Allowance>(in.u8(2));
      d.sm_set = core::SmSet(in.number<uint32_t>());
      d.ring = ipc::unpack_ring(in.number<uint32_t>());
      d.sizes = core::SetSizes(in.number<uint32_t>());
      return;
    case DecisionKind::kHint:
      d.kernel = in.number<uint32_t>();
      d.predicted_us = in.f32();
      d.measure = in.u8();
      d.size = core::GroupCount(in.u8(core::kSmGroups));
      d.raised = in.u8(1) != 0;
      d.launch_priority = static_cast<int8_t>(in.zigzag());
      return;
    case DecisionKind::kStop:
      d.off = in.u8(1) != 0;
      d.slice_us = in.number<uint32_t>();
      return;
    case DecisionKind::kPark:
      d.off = in.u8(1) != 0;
      return;
  }
}

core::Config config_of(const json& j, uint8_t device) {
  core::Config c;
  c.device = device;
  c.sm_total = core::SmCount(j.value("sm_total", c.sm_total.get()));
  c.mps = j.value("mps", c.mps);
  c.switch_us = j.value("switch_us", c.switch_us);
  c.idle_us = j.value("idle_us", c.idle_us);
  c.alone = j.value("alone", c.alone);
  c.stops_per_s = j.value("stops_per_s", c.stops_per_s);
  c.starvation_us = j.value("starvation_us", c.starvation_us);
  c.dispatch_max = j.value("dispatch_max", c.dispatch_max);
  c.fault_max = j.value("fault_max", c.fault_max);
  c.fault_span_us = j.value("fault_span_us", c.fault_span_us);
  c.measure_runs = j.value("measure_runs", c.measure_runs);
  c.measure_us = j.value("measure_us", c.measure_us);
  return c;
}

uint32_t little_endian(const char* bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

}  // namespace

tl::unexpected<Error> Reader::problem(const std::string& what) const {
  return fail(name_ + ": byte " + std::to_string(at_byte_) + ": " + what);
}

Result<Reader> Reader::open(const std::string& path) {
  constexpr size_t kTraceMost = size_t{2} << 30;  // it is read into memory
  auto bytes = read_file(path, "heddle record writes traces", kTraceMost);
  return bytes ? from_bytes(std::move(*bytes), path) : tl::unexpected<Error>(bytes.error());
}

Result<Reader> Reader::from_bytes(std::string bytes, std::string name) {
  Reader reader(std::move(bytes), std::move(name));
  if (Result<void> read = reader.read_header(); !read) {
    return tl::unexpected<Error>(std::move(read.error()));
  }
  return reader;
}

Result<void> Reader::read_header() {
  constexpr size_t kFixed = sizeof kMagic + 8;
  if (std::memcmp(bytes_.data(), kMagic, std::min(bytes_.size(), sizeof kMagic)) != 0) {
    return problem("not a heddle trace; heddle record writes them");
  }
  at_byte_ = bytes_.size();
  if (bytes_.size() < kFixed) return problem("truncated inside the header; record it again");
  const uint32_t version = little_endian(bytes_.data() + 8, 2);
  const uint32_t length = little_endian(bytes_.data() + 12, 4);
  at_byte_ = sizeof kMagic;
  if (version != kVersion) {
    return problem("trace version " + std::to_string(version) + ", this heddle reads version " +
                   std::to_string(kVersion) + "; use the heddle that recorded it, or record again");
  }
  if (length > kHeaderMax) return problem("a header of impossible length; record it again");
  at_byte_ = bytes_.size();
  if (bytes_.size() - kFixed < length) {
    return problem("truncated inside the header; record it again");
  }
  at_byte_ = kFixed;
  const json j = parse_json(std::string_view(bytes_).substr(kFixed, length));
  try {
    header_.heddle = j.at("heddle").get<std::string>();
    header_.gpu = j.at("gpu").get<std::string>();
    header_.driver = j.at("driver").get<std::string>();
    header_.mode = j.at("mode").get<std::string>();
    header_.started = j.at("started").get<std::string>();
    header_.clients = j.value("clients", json::array());
  } catch (const json::exception&) {
    return problem("a header that says too little; record it again");
  }
  at_byte_ += length;
  return {};
}

Result<bool> Reader::broken_off() {
  const std::string what = "truncated after " + std::to_string(records_) + " records";
  if (!may_be_truncated_) return problem(what + "; record it again");
  ended_ = true;
  warning_ = problem(what + "; what comes before is taken").value().message;
  return false;
}

Result<bool> Reader::next(Record& out) {
  if (ended_) return false;
  const std::string_view rest = std::string_view(bytes_).substr(at_byte_);
  size_t length = 0, prefix = 1;
  for (int shift = 0;; shift += 7, ++prefix) {
    if (prefix >= rest.size() || shift > 28) return broken_off();
    length |= static_cast<size_t>(static_cast<unsigned char>(rest[prefix]) & 0x7f) << shift;
    if (static_cast<unsigned char>(rest[prefix]) < 0x80) break;
  }
  ++prefix;
  if (rest.size() - prefix < length) return broken_off();
  Fields in(rest.substr(prefix, length));
  const auto kind = static_cast<uint8_t>(rest[0]);
  const core::TimeNs at = static_cast<core::TimeNs>(static_cast<uint64_t>(last_at_) +
                                                    static_cast<uint64_t>(in.zigzag()));
  const uint8_t device = in.u8();
  if (kind <= static_cast<uint8_t>(EventKind::kMemory)) {
    EventRecord& record = out.emplace<EventRecord>();
    record.event = Event(static_cast<EventKind>(kind), at, 0);
    record.event.device = device;
    read_event(in, record);
  } else if (kind >= kGrant && kind <= kPark) {
    Decision& d = out.emplace<Decision>();
    d.kind = static_cast<DecisionKind>(kind - kGrant);
    d.at = at;
    d.device = device;
    read_decision(in, d);
  } else if (kind == kDevice || kind == kPolicy) {
    const json j = parse_json(in.text());
    if (!j.is_object()) return problem("a record that is not JSON; record it again");
    try {
      if (kind == kDevice) {
        out = DeviceRecord{config_of(j, device), at, j.value("fresh", true)};
      } else {
        out = PolicyRecord{device,
                           at,
                           j.value("name", ""),
                           j.value("path", ""),
                           j.value("hash", ""),
                           j.value("params", json::object())};
      }
    } catch (const json::exception& e) {
      return problem(std::string("a record of another shape: ") + e.what());
    }
  } else if (kind == kBypass) {
    out = BypassRecord{device, at, in.u8(1) != 0};
  } else if (kind == kLost) {
    out = LostRecord{in.varint()};
    lost_ += std::get<LostRecord>(out).count;
  } else if (kind == kEnd) {
    const uint64_t records = in.varint();
    (void)in.varint();
    if (records != records_) return problem("records are missing; record it again");
    ended_ = true;
  } else {
    return problem("unknown record kind " + std::to_string(kind) + "; record it again");
  }
  if (!in.consumed()) {
    return problem("damaged record of kind " + std::to_string(kind) + "; record it again");
  }
  at_byte_ += prefix + length;
  if (ended_) return false;
  last_at_ = at;
  ++records_;
  return true;
}

}  // namespace heddle::trace
