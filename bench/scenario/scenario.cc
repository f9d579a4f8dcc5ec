#include "bench/scenario/scenario.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "bench/scenario/pairs.h"
#include "bench/scenario/reader.h"
#include "daemon/base/files.h"
#include "daemon/base/nearest.h"

namespace heddle::scenario {
namespace {

constexpr uint32_t kRepetitionsMax = 10'000;
constexpr double kBlockMin = 0.05, kBlockMax = 600;  // seconds
constexpr double kSloMaxMs = 1e6;
constexpr uint32_t kCopiesMax = 47;  // an MPS server has 48 clients
constexpr uint32_t kTokensMax = 100'000, kKernelsMax = 1'000'000, kBlocksMax = 1'000'000;
constexpr uint32_t kP99RequestsMax = 1'000'000;
constexpr double kSeedMax = 9007199254740992.0;  // what JSON's numbers hold exactly

// Names appear in labels, file names and tables.
bool plain(std::string_view name) {
  return !name.empty() && name.size() <= 40 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

std::string value_text(const toml::node& node) {
  std::ostringstream out;
  if (const auto text = node.value_exact<std::string>()) {
    out << *text;
  } else if (const auto flag = node.value_exact<bool>()) {
    out << (*flag ? "true" : "false");
  } else if (const auto whole = node.value_exact<int64_t>()) {
    out << *whole;
  } else if (const auto number = node.value_exact<double>()) {
    out << *number;
  }
  return out.str();
}

void read_sim(Reader& job, const std::string& file, std::string& error, Job& out) {
  const toml::node* node = job.find("sim");
  if (node == nullptr) return;
  if (!node->is_table()) return job.problem(*node, "write what stands in as [job.sim]");
  SimJob& sim = out.sim.emplace();
  Reader r(*node->as_table(), "job.sim.", file, error);
  const bool traced = r.text("trace", sim.trace);
  if (traced && sim.trace.empty()) r.bad("trace", "the path of a recorded trace");
  r.integer("tokens", 1, kTokensMax, sim.tokens);
  r.integer("kernels", 1, kKernelsMax, sim.kernels);
  r.integer("syncs", 1, sim.kernels, sim.syncs);
  r.distribution("kernel_us", sim.kernel);
  r.distribution("gap_us", sim.gap);
  r.distribution("pause_us", sim.pause);
  r.distribution("block_us", sim.block);
  if (r.integer("blocks", 1, kBlocksMax, sim.blocks) && sim.block.median_us > 0) {
    r.problem(*node, "job.sim has blocks and block_us; leave one out");
  }
  r.finish();
  const bool synthetic = r.table().size() > (traced ? 1U + (r.has("tokens") ? 1U : 0U) : 0U);
  if ((synthetic || !traced) && !(sim.kernel.median_us > 0)) {
    r.problem(*node, "job.sim needs a trace or kernel_us, such as { median = 60, sigma = 0.6 }");
  }
}

// What is no key of the format goes to the built-in workload. A slip of one letter does not.
void read_params(Reader& r, Job& job) {
  r.others([&](const toml::key& key, const toml::node& node) {
    const std::string name(key.str());
    for (const std::string_view known : r.known_keys()) {
      if (edit_distance(name, known) > 1) continue;
      return r.problem(key.source(),
                       "unknown key job." + name + "; did you mean '" + std::string(known) + "'?");
    }
    if (!node.is_value() || value_text(node).empty()) {
      return r.problem(key.source(), "job." + name + " must be a string, a number or a boolean");
    }
    job.params[name] = value_text(node);
  });
}

Job read_job(const toml::table& table, const std::string& file, std::string& error,
             uint32_t& copies) {
  Job job;
  job.line = table.source().begin.line;
  Reader r(table, "job.", file, error);
  r.text("name", job.name);
  if (!plain(job.name)) {
    r.has("name") ? r.bad("name", "1 to 40 letters, digits, '-', '_' or '.'")
                  : r.problem(table, "a job needs a name, such as name = \"detector\"");
  }
  r.integer("copies", 0, kCopiesMax, copies);
  std::string role = "batch";
  if (r.text("role", role) && role != "latency" && role != "batch") {
    r.bad("role", "\"latency\" or \"batch\"");
  }
  job.role = role == "latency" ? Role::kLatency : Role::kBatch;
  job.priority = job.role == Role::kLatency ? 0 : 9;
  r.integer("priority", 0, 9, job.priority);
  r.text("workload", job.workload);
  r.list("command",
         [&](const std::string& word, const toml::node&) { job.command.push_back(word); });
  std::string arrivals = "closed";
  if (r.text("arrivals", arrivals)) {
    const auto parsed = parse_arrivals(arrivals);
    parsed ? void(job.arrivals = *parsed)
           : r.problem(*r.find("arrivals"), "job.arrivals: " + parsed.error().message);
  }
  r.flag("paired", job.paired);
  if (job.paired && job.arrivals.kind != ArrivalKind::kClosed) {
    r.bad("paired", "left out of a job with arrivals: pairs are of a closed loop");
  }
  double slo_ms = 0;
  if (r.number("slo_ms", 1e-3, kSloMaxMs, slo_ms)) job.slo_ms = slo_ms;
  r.number("slowdown_max", 1.01, 100, job.slowdown_max);
  r.number("slowdown_p99_max", 1.01, 100, job.slowdown_p99_max);
  read_sim(r, file, error, job);
  if (job.workload.empty() && job.command.empty() && job.sim) {
    job.workload = job.sim->trace.empty() ? "synthetic" : "replay";
  }
  if (job.workload.empty() == job.command.empty()) {
    r.problem(table, "job " + job.name + " needs either workload or command, such as " +
                         "workload = \"torchvision\" or command = [\"./service\"]");
  }
  job.workload.empty() ? r.finish() : read_params(r, job);
  return job;
}

template <class T>
void read_rows(Reader& r, std::string_view key, std::vector<T>& rows,
               const std::function<Result<T>(std::string_view)>& parse_one) {
  r.list(key, [&](const std::string& text, const toml::node& where) {
    Result<T> row = parse_one(text);
    if (!row) return r.problem(where, std::string(key) + ": " + row.error().message);
    for (const T& other : rows) {
      if (other.text == text) return r.problem(where, std::string(key) + ": '" + text + "' twice");
    }
    rows.push_back(std::move(*row));
  });
}

void read_jobs(Reader& r, const std::string& file, std::string& error, Scenario& scenario) {
  const toml::node* jobs = r.find("job");
  if (jobs == nullptr || !jobs->is_array_of_tables()) {
    return r.problem(jobs != nullptr ? jobs->source() : r.table().source(),
                     "a scenario needs at least one [[job]]");
  }
  for (const toml::node& node : *jobs->as_array()) {
    uint32_t copies = 1;
    const Job job = read_job(*node.as_table(), file, error, copies);
    for (uint32_t copy = 1; copy <= copies; ++copy) {
      Job one = job;
      if (copies > 1) one.name += std::to_string(copy);
      for (const Job& other : scenario.jobs) {
        if (other.name == one.name)
          r.problem(node, "two jobs are called '" + one.name + "'; give each a name of its own");
      }
      scenario.jobs.push_back(std::move(one));
    }
  }
  if (scenario.jobs.empty()) r.problem(*jobs, "a scenario needs at least one [[job]]");
}

void read(const toml::table& root, const std::string& file, std::string& error, Scenario& s) {
  Reader r(root, "", file, error);
  s.name = std::filesystem::path(file).stem().string();
  if (r.text("name", s.name) && !plain(s.name)) {
    r.bad("name", "1 to 40 letters, digits, '-', '_' or '.'");
  }
  r.text("about", s.about);
  r.integer("repetitions", 1, kRepetitionsMax, s.repetitions);
  r.number("block_s", kBlockMin, kBlockMax, s.block_s);
  r.number("settle_s", 0, kBlockMax, s.settle_s);
  r.flag("apart", s.apart);
  r.flag("held_out", s.held_out);
  r.integer("p99_requests", 1, kP99RequestsMax, s.p99_requests);
  uint64_t seed = 0;
  if (r.integer("seed", 0, kSeedMax, seed)) s.seed = seed;
  read_jobs(r, file, error, s);
  if (!error.empty()) return;
  if (!r.has("policies")) s.policies = {*parse_policy("priority"), *parse_policy("auto")};
  read_rows<PolicyRow>(r, "policies", s.policies, parse_policy);
  if (!r.has("baselines")) {
    for (const char* text : {"timeslice", "mps", "mps+priority"}) {
      s.baselines.push_back(*parse_baseline(text, s.jobs));
    }
  }
  read_rows<Baseline>(r, "baselines", s.baselines,
                      [&](std::string_view text) { return parse_baseline(text, s.jobs); });
  read_rows<Expectation>(r, "expect", s.expect, parse_expectation);
  r.finish();
}

Result<std::string> contents(const std::string& path) {
  return read_file(path, "share/doc/heddle/bench/README.md has the format");
}

}  // namespace

Result<Scenario> parse(std::string text, const std::string& file, const std::string& pair) {
  Scenario scenario;
  scenario.file = file;
  std::string error;
  try {
    toml::table root = parse_toml(text, file);
    if (root.contains("pair") || !pair.empty()) {
      error = choose_pair(root, text, file, pair);
      std::ostringstream alone;
      alone << root;
      text = alone.str();
    }
    if (error.empty()) read(root, file, error, scenario);
  } catch (const toml::parse_error& e) {
    error = file + ":" + std::to_string(e.source().begin.line) + ": " +
            std::string(e.description()) + "; see share/doc/heddle/bench/README.md";
  }
  if (!error.empty()) return fail(error);
  scenario.text = std::move(text);
  return scenario;
}

Result<Scenario> load(const std::string& path, const std::string& pair) {
  auto text = contents(path);
  return text ? parse(std::move(*text), path, pair) : fail(text.error().message);
}

std::vector<SimLaunch> launches_of(const SimJob& job) {
  std::mt19937_64 random;
  std::normal_distribution<double> normal;
  std::vector<SimLaunch> out(job.kernels);
  double sum = 0;
  for (SimLaunch& launch : out) sum += launch.us = std::exp(job.kernel.sigma * normal(random));
  const double mean = job.kernel.median_us * std::exp(job.kernel.sigma * job.kernel.sigma / 2);
  for (SimLaunch& launch : out) {
    launch.us *= mean * job.kernels / sum;
    const double block_us = job.block.median_us * std::exp(job.block.sigma * normal(random));
    const double blocks = std::clamp(launch.us / block_us * kSimWave, 1.0, double{kBlocksMax});
    launch.blocks = static_cast<uint32_t>(std::lround(blocks));
  }
  return out;
}

std::string resolve(const Scenario& scenario, const std::string& path) {
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  const auto beside = std::filesystem::path(scenario.file).parent_path() / given;
  return std::filesystem::exists(beside) ? beside.string() : path;
}

Result<std::vector<double>> recorded_arrivals(const Scenario& scenario, const Job& job) {
  const std::string path = resolve(scenario, job.arrivals.file);
  std::ifstream file(path);
  std::vector<double> out;
  for (double at = 0; file >> at;) out.push_back(at);
  if (!out.empty() && out.back() > 0 && std::is_sorted(out.begin(), out.end()) && file.eof()) {
    return out;
  }
  return fail(scenario.file + ":" + std::to_string(job.line) + ": job " + job.name + ": " + path +
              ": no arrivals; one number of seconds a line, ascending");
}

}  // namespace heddle::scenario
