#include "daemon/cli/profile/profile.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "daemon/base/files.h"
#include "daemon/base/utc_text.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/profile/ncu.h"
#include "daemon/profile/profile.h"
#include "daemon/trace/reader.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using profiles::Profile;
using server::Request;

int failed(const ProfileOptions& options, const std::string& what) {
  return show_error(options.as_json, {kFailed, what, {}});
}

json summary_json(const core::Summary& s) {
  if (s.count == 0) return nullptr;
  return {{"mean", s.mean_us}, {"p50", s.p50_us}, {"p90", s.p90_us}, {"count", s.count}};
}

std::string hex(uint64_t value) {
  char text[20];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

json after_json(const core::KernelProfile& k) {
  json all = json::array();
  for (const core::DurationAfter& a : k.after) {
    all.push_back({{"kernels", hex(a.before)}, {"mean", a.mean_us}, {"count", a.count}});
  }
  return all;
}

json metrics_json(const ipc::KernelMetrics& metrics) {
  json all = json::object();
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
    if (metrics.has(i)) all[ipc::kKernelMetrics[i].key] = metrics.values[i];
  }
  return all;
}

json to_json(const Profile& p) {
  json kernels = json::array();
  for (const core::KernelProfile& k : p.task.kernels) {
    json kernel = {{"id", hex(k.facts.id)},
                   {"name", k.facts.name},
                   {"duration_us", summary_json(k.duration)},
                   {"gap_launching_us", summary_json(k.gap_launching)},
                   {"gap_synchronized_us", summary_json(k.gap_synchronized)},
                   {"duration_us_after", after_json(k)},
                   {"metrics", metrics_json(k.facts.metrics)}};
    for (const ipc::KernelFact& fact : ipc::kKernelFacts) kernel[fact.key] = k.facts.*fact.member;
    kernels.push_back(std::move(kernel));
  }
  return {{"file", p.file},
          {"gpu", p.gpu},
          {"driver", p.driver},
          {"key", hex(p.task.task)},
          {"label", p.label},
          {"command", p.command},
          {"runs", p.task.runs},
          {"measured", p.measured},
          {"probe", p.probe ? probe_json(*p.probe) : json()},
          {"kernels", std::move(kernels)}};
}

json neighbours_json(const std::vector<Neighbours>& kernels) {
  json all = json::array();
  for (const Neighbours& n : kernels) {
    const bool room = n.forbidden_by == core::SlotLimit::kNone;
    const auto limit = core::kSlotLimitNames[static_cast<size_t>(n.forbidden_by)];
    all.push_back({{"id", hex(n.kernel->facts.id)},
                   {"blocks_on_sm", n.blocks_on_sm},
                   {"forbidden_by", room ? json() : json(limit)}});
  }
  return all;
}

std::string mean(const core::Summary& s) {
  if (s.count == 0) return "-";
  char text[64];
  snprintf(text, sizeof text, "%.1f / %.1f / %.1f", static_cast<double>(s.mean_us),
           static_cast<double>(s.p50_us), static_cast<double>(s.p90_us));
  return text;
}

void print(std::ostream& out, const Profile& p) {
  out << printable(p.file) << ": " << printable(p.label) << "  " << printable(p.command) << "\n  "
      << printable(p.gpu) << ", driver " << printable(p.driver) << ", " << p.task.runs
      << " runs, measured " << printable(p.measured) << ", " << p.task.kernels.size()
      << " kernels\n";
  if (p.probe) out << probe_text(*p.probe);
  if (p.task.kernels.empty()) return;
  char line[256];
  snprintf(line, sizeof line, "  %-40s %22s %22s %22s %8s\n", "mean / p50 / p90 us", "duration",
           "gap, launching", "gap, synchronized", "samples");
  out << line;
  for (const core::KernelProfile& k : p.task.kernels) {
    snprintf(line, sizeof line, "  %-40s %22s %22s %22s %8u\n",
             printable(k.facts.name).substr(0, 40).c_str(), mean(k.duration).c_str(),
             mean(k.gap_launching).c_str(), mean(k.gap_synchronized).c_str(), k.duration.count);
    out << line;
    for (const core::DurationAfter& a : k.after) {
      snprintf(line, sizeof line, "    after %-34s %22.1f %54u\n", hex(a.before).c_str(),
               static_cast<double>(a.mean_us), a.count);
      out << line;
    }
  }
}

// One bad file of many is told, and no reason to leave out the others.
void complain(json& errors, const std::string& what) {
  std::cerr << "heddle: " << what << '\n';
  errors.push_back(what);
}

std::vector<std::string> profiles_of(const std::vector<std::string>& paths) {
  return files_of(paths, ".toml", Depth::kDirectory);
}

bool named(const std::string& wanted, uint64_t id, const std::string& label) {
  return wanted == std::to_string(id) || (wanted == label && !label.empty());
}

// The one client of that ID or label.
Result<uint64_t> pick(const std::map<uint64_t, std::string>& labels, const std::string& wanted) {
  std::optional<uint64_t> found;
  for (const auto& [id, label] : labels) {
    if (!named(wanted, id, label)) continue;
    if (found) return fail(wanted + ": several clients are labelled so; give an ID");
    found = id;
  }
  if (!found) return fail(wanted + ": no such client; give an ID or label as heddle ps shows it");
  return *found;
}

Answer ask_profile(const ProfileOptions& options, Result<Profile>& profile) {
  Answer answer = ask_ps(options.socket);
  if (answer.code != kOk) return answer;
  std::map<uint64_t, std::string> labels;
  for (const json& client : answer.json["clients"]) {
    labels[client["id"].get<uint64_t>()] = client["label"].get<std::string>();
  }
  const Result<uint64_t> id = pick(labels, options.client);
  if (!id) return {kFailed, id.error().message, {}};
  Request request;
  request.kind = Request::Kind::kProfile;
  request.client = *id;
  int connection = -1, memory = -1;
  answer = ask(options.socket, request, connection, memory);
  struct stat info {};
  std::string text;
  if (answer.code == kOk && fstat(memory, &info) == 0) {
    text.resize(static_cast<size_t>(info.st_size));
    const ssize_t length = pread(memory, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  }
  for (const int fd : {connection, memory}) {
    if (fd >= 0) close(fd);
  }
  if (answer.code == kOk) profile = profiles::parse(text, "the daemon's answer");
  return answer;
}

// Plays the trace's events through a core, which measures what it sees as the daemon's does.
Result<Profile> measure_trace(const ProfileOptions& options) {
  Result<trace::Reader> reader = trace::Reader::open(options.trace);
  if (!reader) return tl::unexpected<Error>(reader.error());
  const trace::Header& header = reader->header();
  Profile out;
  out.gpu = options.gpu.empty() ? header.gpu : options.gpu;
  out.driver = options.driver.empty() ? header.driver : options.driver;
  out.measured = header.started;
  if (out.gpu == "unknown" || out.driver == "unknown") {
    return fail(options.trace + ": does not say which GPU and driver; give --gpu and --driver");
  }
  std::map<uint8_t, std::unique_ptr<core::Scheduler>> cores;
  std::map<uint64_t, std::string> labels;
  std::map<uint64_t, core::TaskProfile> tasks;
  std::map<uint64_t, std::string> names;
  const auto keep = [&](uint64_t client) {
    for (const auto& [device, core] : cores) {
      const core::TaskProfile task = core->view().profile(client);
      if (task.kernels.empty()) continue;
      tasks[client].task = task.task;
      profiles::add_kernels(tasks[client], task);
    }
  };
  trace::Record record;
  for (;;) {
    const Result<bool> more = reader->next(record);
    if (!more) return tl::unexpected<Error>(more.error());
    if (!*more) break;
    if (const auto* device = std::get_if<trace::DeviceRecord>(&record)) {
      auto& core = cores[device->config.device];
      if (!core || device->fresh) core = std::make_unique<core::Scheduler>(device->config);
    }
    const auto* e = std::get_if<trace::EventRecord>(&record);
    if (e == nullptr || cores.count(e->event.device) == 0) continue;
    if (e->event.kind == core::EventKind::kAttached) {
      labels[e->event.client] = e->event.attached.label;
      names[e->event.client] = e->event.attached.name;
    }
    if (e->event.kind == core::EventKind::kDetached) keep(e->event.client);
    cores[e->event.device]->step(e->event);
  }
  const Result<uint64_t> id = pick(labels, options.client);
  if (!id) return fail(options.trace + ": " + id.error().message);
  keep(*id);
  out.task = tasks[*id];
  out.label = labels[*id];
  out.command = names[*id];
  if (out.task.kernels.empty()) {
    return fail(options.trace + ": client " + options.client +
                " was never measured while nobody else's kernels ran; record it alone");
  }
  out.task.runs = std::max(out.task.runs, 1u);
  return out;
}

int save(const ProfileOptions& options, Profile profile) {
  profile.file = options.output;
  if (Result<void> saved = profiles::save(options.output, profile); !saved) {
    return failed(options, saved.error().message + "; name another file");
  }
  if (options.as_json) {
    write_json(to_json(profile));
  } else {
    std::cout << printable(options.output) << ": " << profile.task.kernels.size() << " kernels, "
              << profile.task.runs << " runs\n";
  }
  return kOk;
}

}  // namespace

int profile_record(const ProfileOptions& options) {
  Result<Profile> profile = fail("");
  if (options.trace.empty()) {
    const Answer answer = ask_profile(options, profile);
    if (answer.code != kOk) return show_error(options.as_json, answer);
  } else {
    profile = measure_trace(options);
  }
  if (!profile) return failed(options, profile.error().message);
  return save(options, std::move(*profile));
}

int profile_show(const ProfileOptions& options) {
  std::vector<std::string> paths = options.paths;
  if (paths.empty()) {
    Request request;
    request.kind = Request::Kind::kStatus;
    const Answer answer = ask(options.socket, request);
    if (answer.code != kOk) return show_error(options.as_json, answer);
    paths = {answer.json["profiles"].value("directory", "")};
    if (paths[0].empty()) return failed(options, "the daemon keeps no profiles; name files");
  }
  json all = json::array(), errors = json::array();
  for (const std::string& file : profiles_of(paths)) {
    const Result<Profile> profile = profiles::load(file);
    if (!profile) {
      complain(errors, profile.error().message);
      continue;
    }
    std::vector<Neighbours> neighbours;
    if (options.neighbours) {
      Result<std::vector<Neighbours>> found = neighbours_of(*profile, gpu_models_directory());
      if (!found) complain(errors, profile->file + ": " + found.error().message);
      if (found) neighbours = std::move(*found);
    }
    if (options.as_json) {
      all.push_back(to_json(*profile));
      if (options.neighbours) all.back()["neighbours"] = neighbours_json(neighbours);
    } else {
      print(std::cout, *profile);
      if (!neighbours.empty()) std::cout << neighbours_text(neighbours);
    }
  }
  if (options.as_json) write_json({{"profiles", all}, {"errors", errors}});
  return errors.empty() ? kOk : kFailed;
}

int profile_diff(const ProfileOptions& options) {
  const Result<Profile> a = profiles::load(options.paths[0]);
  const Result<Profile> b = profiles::load(options.paths[1]);
  for (const Result<Profile>* one : {&a, &b}) {
    if (!*one) return failed(options, one->error().message);
  }
  json list = json::array();
  for (const profiles::Difference& d :
       profiles::diff(*a, *b, options.within_pct / 100, options.least_us)) {
    list.push_back({{"id", hex(d.kernel_id)},
                    {"name", d.name},
                    {"what", d.what},
                    {"a_us", d.a_us},
                    {"b_us", d.b_us}});
    if (options.as_json) continue;
    char text[64];
    snprintf(text, sizeof text, "%10.1f %10.1f us  ", d.a_us, d.b_us);
    std::cout << text << d.what << "  " << printable(d.name) << "  " << hex(d.kernel_id) << '\n';
  }
  if (options.as_json) write_json({{"differences", list}});
  return list.empty() ? kOk : kFailed;
}

int profile_merge(const ProfileOptions& options) {
  Result<Profile> all = profiles::load(options.paths[0]);
  for (size_t i = 1; all && i < options.paths.size(); ++i) {
    const Result<Profile> next = profiles::load(options.paths[i]);
    if (!next) return failed(options, next.error().message);
    all = profiles::merge(*all, *next);
  }
  if (!all) return failed(options, all.error().message);
  return save(options, std::move(*all));
}

int profile_prune(const ProfileOptions& options) {
  // Dates count seconds: at 0 days also what was measured in this one goes.
  const std::string cutoff =
      utc_text(time(nullptr) - time_t{options.days.value_or(0)} * 86'400 + (options.days == 0));
  json removed = json::array(), errors = json::array();
  for (const std::string& file : profiles_of(options.paths)) {
    Result<Profile> profile = profiles::load(file);
    if (!profile) {
      complain(errors, profile.error().message);
      continue;
    }
    const bool dated = !profile->measured.empty();
    if (options.days && !dated) {
      std::cerr << "heddle: " << printable(file) << ": does not say when it was measured; kept\n";
    }
    const bool old = options.days && dated && profile->measured < cutoff;
    const size_t kernels = profiles::prune(*profile, options.samples);
    const bool whole = old || profile->task.kernels.empty();
    if (!whole && kernels == 0) continue;
    Result<void> done;
    if (!options.dry_run && whole && unlink(file.c_str()) != 0) {
      done = fail(file + ": cannot be removed; check the directory's permissions");
    }
    if (!options.dry_run && !whole) done = profiles::save(file, *profile);
    if (!done) {
      complain(errors, done.error().message);
      continue;
    }
    removed.push_back({{"file", file}, {"whole", whole}, {"kernels", kernels}});
    if (options.as_json) continue;
    std::cout << printable(file) << ": "
              << (whole ? "removed" : std::to_string(kernels) + " kernels removed")
              << (options.dry_run ? " (not really)" : "") << '\n';
  }
  if (options.as_json) write_json({{"removed", removed}, {"errors", errors}});
  return errors.empty() ? kOk : kFailed;
}

}  // namespace heddle::cli
