#include "daemon/trace/encoder.h"

#include <bit>
#include <cstring>

namespace heddle::trace {

using core::EventKind;

void Encoder::varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void Encoder::zigzag(int64_t value) {
  varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}

void Encoder::f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) u8(static_cast<uint8_t>(bits >> shift));
}

void Encoder::u64(uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) u8(static_cast<uint8_t>(value >> shift));
}

void Encoder::text(const char* chars, size_t length) {
  varint(length);
  body_.append(chars, length);
}

void Encoder::channel_max(const core::ChannelMax& max) {
  for (const float part : {max.issue, max.l2, max.dram}) f32(part);
}

void Encoder::metrics(const ipc::KernelMetrics& metrics) {
  varint(static_cast<uint64_t>(std::popcount(metrics.there)));
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
    if (!metrics.has(i)) continue;
    varint(i);
    u64(std::bit_cast<uint64_t>(metrics.values[i]));
  }
}

void Encoder::begin(uint8_t kind, core::TimeNs at, uint8_t device) {
  body_.clear();
  kind_ = kind;
  at_ = at;
  zigzag(at - last_at_);
  u8(device);
}

std::span<const std::byte> Encoder::finish() {
  record_.clear();
  record_.push_back(static_cast<char>(kind_));
  varint(record_, body_.size());
  record_ += body_;
  return std::as_bytes(std::span<const char>(record_.data(), record_.size()));
}

std::span<const std::byte> Encoder::event(const core::Event& e, bool introduced) {
  begin(static_cast<uint8_t>(e.kind), e.at, e.device);
  varint(e.client);
  const auto flags = static_cast<uint8_t>(introduced ? 2 : 0);
  switch (e.kind) {
    case EventKind::kAttached: {
      const core::AttachedBody& b = e.attached;
      varint(b.task);
      varint(b.profile_runs);
      varint(b.pid);
      varint(b.uid);
      f32(b.share);
      f32(b.slo_ms);
      f32(b.compute.request);
      f32(b.compute.limit);
      f32(b.slowdown_max.mean);
      f32(b.slowdown_max.p99);
      channel_max(b.channel_max);
      u8(static_cast<uint8_t>(flags | (b.fail_closed ? 1 : 0) | (b.gates ? 4 : 0)));
      u8(b.priority);
      varint(b.sm_set.bits());
      varint(b.groups.count.get());
      for (uint32_t i = 0; i < b.groups.count.get(); ++i) varint(b.groups.widths[i]);
      varint(ipc::pack_made(b.made_sets));
      text(b.name, strnlen(b.name, sizeof b.name));
      text(b.label, strnlen(b.label, sizeof b.label));
      break;
    }
    case EventKind::kKernel: {
      const core::KernelBody& b = e.kernel;
      varint(b.index);
      u64(b.id);
      for (const ipc::KernelFact& fact : ipc::kKernelFacts) varint(b.*fact.member);
      u8(flags);
      text(b.name, strnlen(b.name, sizeof b.name));
      metrics(b.metrics);
      break;
    }
    case EventKind::kNodes: {
      const core::NodesBody& b = e.nodes;
      for (const uint32_t value : {b.graph, b.others, b.count}) varint(value);
      for (uint32_t i = 0; i < b.count; ++i) {
        varint(b.nodes[i].kernel);
        varint(b.nodes[i].count);
      }
      break;
    }
    case EventKind::kProfile: {
      const core::ProfileBody& b = e.profile;
      u64(b.kernel_id);
      for (const core::Summary& s : {b.duration, b.gap_launching, b.gap_synchronized}) {
        for (const float us : {s.mean_us, s.p50_us, s.p90_us}) f32(us);
        varint(s.count);
      }
      u64(b.before);
      metrics(b.metrics);
      break;
    }
    case EventKind::kPosted:
    case EventKind::kAsked:
    case EventKind::kWithdrawn:
    case EventKind::kRecalled: {
      const core::LaunchBody& b = e.launch;
      const bool at_gate =
          b.thread >= core::kTicketThreads || b.admission == core::Admission::kGated;
      varint(b.stream_seq);
      for (const uint32_t value : {b.kernel, b.ask_seq}) varint(value);
      varint(b.stream);
      varint(b.thread);
      u8(static_cast<uint8_t>((at_gate ? 0x80u : 0u) | (b.unmovable ? 0x40u : 0u) |
                              (static_cast<unsigned>(b.kind) << 4) |
                              static_cast<unsigned>(b.admission)));
      if (!at_gate) break;
      varint(b.may_follow);
      f32(b.unit_us);
      break;
    }
    case EventKind::kWaiting:
    case EventKind::kCompleted:
    case EventKind::kStreamEnd:
      varint(e.done.stream_seq);
      f32(e.done.duration_us);
      varint(e.done.stream);
      u8(static_cast<uint8_t>(e.done.evidence));
      break;
    case EventKind::kUnobserved:
    case EventKind::kObserved:
      varint(e.untold.launches);
      break;
    case EventKind::kRow:
      varint(e.untold.launches);
      varint(e.untold.kernel);
      f32(e.untold.backlog_us);
      break;
    case EventKind::kTerms:
      f32(e.terms.share);
      f32(e.terms.slo_ms);
      f32(e.terms.compute.request);
      f32(e.terms.compute.limit);
      f32(e.terms.slowdown_max.mean);
      f32(e.terms.slowdown_max.p99);
      channel_max(e.terms.channel_max);
      u8(e.terms.priority);
      break;
    case EventKind::kStops:
      varint(e.stop.able);
      u8(e.stop.off ? 1 : 0);
      f32(e.stop.took_us);
      break;
    case EventKind::kMemory:
      varint(e.memory.bytes);
      u8(e.memory.parked ? 1 : 0);
      break;
    case EventKind::kDetached:
    case EventKind::kGatesLeft:
    case EventKind::kTick:
      break;
  }
  return finish();
}

std::span<const std::byte> Encoder::decision(const core::Decision& d) {
  begin(static_cast<uint8_t>(kGrant + static_cast<unsigned>(d.kind)), d.at, d.device);
  varint(d.client);
  switch (d.kind) {
    case core::DecisionKind::kGrant:
      u8(static_cast<uint8_t>(d.decider));
      varint(d.ask_seq);
      varint(d.thread);
      zigzag(d.launch_priority);
      varint(d.sm_set.bits());
      break;
    case core::DecisionKind::kAllowance:
      u8(static_cast<uint8_t>(d.decider));
      u8(static_cast<uint8_t>(d.managed + (d.gates_soon ? 2 : 0) + (d.kernels_ask ? 4 : 0) +
                              (d.gates_inside ? 8 : 0)));
      zigzag(d.launch_priority);
      u8(static_cast<uint8_t>(d.allowed));
      varint(d.sm_set.bits());
      varint(ipc::pack_ring(d.ring));
      varint(d.sizes.bits());
      break;
    case core::DecisionKind::kHint:
      varint(d.kernel);
      f32(d.predicted_us);
      u8(d.measure);
      u8(static_cast<uint8_t>(d.size.get()));
      u8(d.raised ? 1 : 0);
      zigzag(d.raised ? d.launch_priority : 0);
      break;
    case core::DecisionKind::kStop:
      u8(d.off ? 1 : 0);
      varint(d.slice_us);
      break;
    case core::DecisionKind::kPark:
      u8(d.off ? 1 : 0);
      break;
  }
  return finish();
}

std::span<const std::byte> Encoder::device(const core::Config& c, core::TimeNs at, bool fresh) {
  begin(kDevice, at, c.device);
  const std::string json = nlohmann::json{
      {"fresh", fresh},
      {"sm_total", c.sm_total.get()},
      {"mps", c.mps},
      {"switch_us", c.switch_us},
      {"stops_per_s", c.stops_per_s},
      {"idle_us", c.idle_us},
      {"alone", c.alone},
      {"starvation_us", c.starvation_us},
      {"dispatch_max", c.dispatch_max},
      {"fault_max", c.fault_max},
      {"fault_span_us", c.fault_span_us},
      {"measure_runs", c.measure_runs},
      {"measure_us",
       c.measure_us}}.dump();
  text(json.data(), json.size());
  return finish();
}

std::span<const std::byte> Encoder::policy(const PolicyRecord& p) {
  begin(kPolicy, p.at, p.device);
  const std::string json = nlohmann::json{
      {"name", p.name},
      {"path", p.path},
      {"hash", p.hash},
      {"params", p.params}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text(json.data(), json.size());
  return finish();
}

std::span<const std::byte> Encoder::bypass(const BypassRecord& b) {
  begin(kBypass, b.at, b.device);
  u8(b.on ? 1 : 0);
  return finish();
}

std::span<const std::byte> Encoder::lost(uint64_t count) {
  begin(kLost, last_at_, 0);
  varint(count);
  return finish();
}

std::span<const std::byte> Encoder::record(const Record& record) {
  struct Visitor {
    Encoder& to;
    auto operator()(const EventRecord& r) const { return to.event(r.event, r.introduced); }
    auto operator()(const core::Decision& d) const { return to.decision(d); }
    auto operator()(const DeviceRecord& r) const { return to.device(r.config, r.at, r.fresh); }
    auto operator()(const PolicyRecord& r) const { return to.policy(r); }
    auto operator()(const BypassRecord& r) const { return to.bypass(r); }
    auto operator()(const LostRecord& r) const { return to.lost(r.count); }
  };
  return std::visit(Visitor{*this}, record);
}

std::span<const std::byte> Encoder::end(uint64_t records, uint64_t lost) {
  begin(kEnd, last_at_, 0);
  varint(records);
  varint(lost);
  return finish();
}

std::string Encoder::header(const Header& h) {
  const std::string json =
      nlohmann::json{{"heddle", h.heddle}, {"gpu", h.gpu},         {"driver", h.driver},
                     {"mode", h.mode},     {"started", h.started}, {"clients", h.clients}}
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out(kMagic, sizeof kMagic);
  const auto length = static_cast<uint32_t>(json.size());
  for (const uint32_t value : {uint32_t{kVersion}, length}) {
    for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift));
  }
  return out + json;
}

}  // namespace heddle::trace
