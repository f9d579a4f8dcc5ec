#include "daemon/cli/trace/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/trace/encoder.h"
#include "daemon/trace/timeline.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

int failed(const TraceOptions& options, const std::string& what) {
  return show_error(options.as_json, {kFailed, what, {}});
}

int write(const TraceOptions& options, const std::string& file, const std::string& text) {
  if (const Result<void> written = replace_file(file, text, 0644); !written) {
    return failed(options, written.error().message + "; name another file");
  }
  return kOk;
}

// What there is of a trace that broke off is shown all the same.
void warn_of(const trace::Reader& reader) {
  if (!reader.warning().empty()) std::cerr << "heddle: warning: " << reader.warning() << '\n';
}

Result<trace::Timeline> read(const std::string& file) {
  Result<trace::Reader> reader = trace::Reader::open(file);
  if (!reader) return tl::unexpected<Error>(reader.error());
  reader->allow_truncated();
  Result<trace::Timeline> timeline = trace::read_timeline(*reader);
  warn_of(*reader);
  return timeline;
}

json spread(std::vector<double> us) {
  if (us.empty()) return nullptr;
  std::sort(us.begin(), us.end());
  const auto at = [&us](size_t percent) { return us[(us.size() - 1) * percent / 100]; };
  return {{"count", us.size()}, {"p50_us", at(50)}, {"p95_us", at(95)}, {"p99_us", at(99)}};
}

json summary(const trace::ClientTrack& c, double seconds) {
  std::vector<double> durations, gaps, waits;
  json kernels = json::array();
  for (uint32_t k = 0; k < c.kernels.size(); ++k) {
    const trace::KernelTrack& kernel = c.kernels[k];
    for (const float us : kernel.measured_us) durations.push_back(static_cast<double>(us));
    if (kernel.launches == 0) continue;
    kernels.push_back({{"name", c.kernel_name(k)},
                       {"blocks", kernel.body.grid_blocks},
                       {"threads", kernel.body.block_threads},
                       {"launches", kernel.launches},
                       {"measured", kernel.measured_us.size()},
                       {"p50_us", kernel.median_us()},
                       {"learned_us", kernel.learned_us}});
  }
  std::sort(kernels.begin(), kernels.end(),
            [](const json& a, const json& b) { return a["launches"] > b["launches"]; });
  for (const trace::GapTrack& g : c.gaps) gaps.push_back(static_cast<double>(g.to - g.from) / 1e3);
  for (const trace::LaunchTrack& l : c.launches) {
    if (l.posted > l.called) waits.push_back(static_cast<double>(l.posted - l.called) / 1e3);
  }
  return {{"id", c.id},
          {"device", c.device},
          {"name", c.name()},
          {"priority", c.who.priority},
          {"launches", c.launches.size()},
          {"launches_per_s", seconds > 0 ? static_cast<double>(c.launches.size()) / seconds : 0},
          {"synchronizing_calls", c.syncs.size()},
          {"duration", spread(durations)},
          {"gap", spread(gaps)},
          {"wait", spread(waits)},
          {"kernels", std::move(kernels)}};
}

std::string figure(const json& spread, const char* key) {
  if (spread.is_null()) return "-";
  char text[32];
  snprintf(text, sizeof text, "%.1f", spread[key].get<double>());
  return text;
}

// Whose record it is; of a device or a policy nobody's.
std::optional<core::ClientId> client_of(const trace::Record& record) {
  if (const auto* r = std::get_if<trace::EventRecord>(&record)) return r->event.client;
  if (const auto* decision = std::get_if<core::Decision>(&record)) return decision->client;
  return std::nullopt;
}

constexpr size_t kKernelsShown = 8;

void print_client(std::ostream& out, const json& c) {
  out << "\nclient " << c["id"] << "  " << printable(c["name"]) << "  Q" << c["priority"]
      << "  device " << c["device"] << ": " << c["launches"] << " launches, "
      << std::llround(c["launches_per_s"].get<double>()) << " /s, " << c["synchronizing_calls"]
      << " synchronizing calls\n";
  for (const char* what : {"duration", "gap", "wait"}) {
    const json& s = c[what];
    out << "  " << what << " us  p50 " << figure(s, "p50_us") << "  p95 " << figure(s, "p95_us")
        << "  p99 " << figure(s, "p99_us") << "  of " << (s.is_null() ? json(0) : s["count"])
        << '\n';
  }
  size_t shown = 0;
  for (const json& k : c["kernels"]) {
    if (shown++ == kKernelsShown) {
      out << "  and " << c["kernels"].size() - kKernelsShown << " other kernels\n";
      break;
    }
    out << "  " << k["launches"] << " x " << printable(k["name"]).substr(0, 60) << " <<<"
        << k["blocks"] << ", " << k["threads"] << ">>>  p50 " << figure(k, "p50_us") << " us of "
        << k["measured"] << " measured, taken for " << figure(k, "learned_us") << "\n";
  }
}

}  // namespace

int trace_show(const TraceOptions& options) {
  const Result<trace::Timeline> timeline = read(options.file);
  if (!timeline) return failed(options, timeline.error().message);
  const double seconds = static_cast<double>(timeline->to - timeline->from) / 1e9;
  json clients = json::array(), policies = json::array();
  for (const trace::ClientTrack& c : timeline->clients) clients.push_back(summary(c, seconds));
  for (const trace::PolicyRecord& p : timeline->policies) {
    policies.push_back({{"name", p.name}, {"hash", p.hash}, {"params", p.params}});
  }
  const trace::Header& h = timeline->header;
  const json all = {{"file", options.file},
                    {"heddle", h.heddle},
                    {"gpu", h.gpu},
                    {"driver", h.driver},
                    {"mode", h.mode},
                    {"started", h.started},
                    {"seconds", seconds},
                    {"records", timeline->records},
                    {"lost", timeline->lost},
                    {"policies", policies},
                    {"decisions", timeline->decisions.size()},
                    {"clients", clients}};
  if (options.as_json) {
    write_json(all);
    return kOk;
  }
  std::cout << options.file << ": heddle " << h.heddle << ", " << h.gpu << ", driver " << h.driver
            << ", " << h.mode << ", " << h.started << '\n'
            << timeline->records << " records, " << timeline->lost << " lost, "
            << std::llround(seconds * 1e3) << " ms, " << timeline->decisions.size()
            << " decisions\n";
  for (const json& p : policies) {
    std::cout << "policy " << printable(p["name"]) << ' ' << printable(p["params"].dump()) << '\n';
  }
  for (const json& c : clients) print_client(std::cout, c);
  return kOk;
}

int trace_export(const TraceOptions& options) {
  const Result<trace::Timeline> timeline = read(options.file);
  if (!timeline) return failed(options, timeline.error().message);
  return write(
      options, options.perfetto,
      trace::chrome_trace(*timeline).dump(-1, ' ', false, json::error_handler_t::replace) + '\n');
}

int trace_replay(const TraceOptions& options) {
  return show_error(
      options.as_json,
      {kUsage, "trace replay: it is heddle replay --trace " + options.file + " now", {}});
}

int trace_cut(const TraceOptions& options) {
  Result<trace::Reader> reader = trace::Reader::open(options.file);
  if (!reader) return failed(options, reader.error().message);
  reader->allow_truncated();
  std::string out = trace::Encoder::header(reader->header());
  trace::Encoder encoder;
  const auto add = [&](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    encoder.kept();
  };
  uint64_t records = 0;
  core::TimeNs from = 0;
  trace::Record record;
  for (;;) {
    const Result<bool> more = reader->next(record);
    if (!more) return failed(options, more.error().message);
    if (!*more) break;
    // Time counts from the first thing that happened; what was there before is told in front.
    const auto* happened = std::get_if<trace::EventRecord>(&record);
    if (happened != nullptr && !happened->introduced) {
      if (from == 0) from = happened->event.at;
      if (static_cast<double>(happened->event.at - from) >= options.seconds * 1e9) break;
    }
    if (options.client != 0 && client_of(record).value_or(options.client) != options.client)
      continue;
    add(encoder.record(record));
    ++records;
  }
  warn_of(*reader);
  add(encoder.end(records, reader->lost()));
  return write(options, options.out, out);
}

}  // namespace heddle::cli
