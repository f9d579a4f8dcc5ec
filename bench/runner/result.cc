#include "bench/runner/result.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "daemon/base/files.h"
#include "daemon/base/json.h"

namespace heddle::bench {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kSeeds = 1'000'000;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

Json about(const Row& row) {
  Json out = {{"name", row.name}, {"mps", row.mps}};
  if (!row.policy.empty()) out["policy"] = row.policy;
  if (!row.params.empty()) out["params"] = row.params;
  if (!row.config.empty()) out["config"] = row.config;
  for (const Variant& v : row.jobs) {
    out["jobs"].push_back(v.job);
    if (v.client_priority) out["client_priority"] = true;
    if (v.percent != 100) out["percent"][std::to_string(v.job)] = v.percent;
    if (v.sms != scenario::SmShare{}) out["sms"][std::to_string(v.job)] = share_text(v.sms);
  }
  return out;
}

Json about(const scenario::Job& job) {
  Json out = {{"name", job.name},
              {"role", job.role == scenario::Role::kLatency ? "latency" : "batch"},
              {"priority", job.priority}};
  if (job.arrivals.kind != scenario::ArrivalKind::kClosed) out["requests"] = true;
  if (job.arrivals.load > 0) out["load"] = job.arrivals.load;
  if (job.arrivals.kind == scenario::ArrivalKind::kOnOff) out["onoff"] = true;
  if (job.slo_ms) out["slo_ms"] = *job.slo_ms;
  if (job.slowdown_max > 0) out["slowdown_max"] = job.slowdown_max;
  if (job.slowdown_p99_max > 0) out["slowdown_p99_max"] = job.slowdown_p99_max;
  return out;
}

Json names(const std::vector<Row>& rows) {
  Json out = Json::array();
  for (const Row& row : rows) out.push_back(about(row));
  return out;
}

// What a job printed as it died may be any bytes.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void say_few(Json& found) {
  if (found.is_object() && found.contains("value") &&
      found.value("n", kForInterval) < kForInterval) {
    found = {{"few", found["n"]}};
  } else if (found.is_structured()) {
    for (const auto& [key, inner] : found.items()) {
      if (key != "unserved") say_few(inner);  // a count, which says what others do not show
    }
  }
}

}  // namespace

Result Result::create(const std::string& path, const scenario::Scenario& scenario,
                      const std::vector<Row>& rows, bool simulated, const std::string& gpu) {
  if (!path.empty() && fs::exists(path))
    refuse(path, "is there already; go on with it by --resume, or move it away");
  Result result(path);
  Json jobs = Json::array();
  for (const scenario::Job& job : scenario.jobs) jobs.push_back(about(job));
  result.head_ = {{"benchmark", "scenario"},
                  {"format", 2},
                  {"name", scenario.name},
                  {"about", scenario.about},
                  {"mode", simulated ? "simulated" : "real"},
                  {"gpu", gpu},
                  {"seed", scenario.seed.value_or(std::random_device()() % kSeeds)},
                  {"block_s", scenario.block_s},
                  {"settle_s", scenario.settle_s},
                  {"apart", scenario.apart},
                  {"held_out", scenario.held_out},
                  {"repetitions_wanted", scenario.repetitions},
                  {"repetitions_done", 0},
                  {"sessions", Json::array()},
                  {"jobs", jobs},
                  {"rows", names(rows)},
                  {"scenario", scenario.text},
                  {"errors", Json::array()},
                  {"digests", Json::array()},
                  {"profile", Json::object()},
                  {"rates", Json::object()}};
  result.save();
  return result;
}

Result Result::resume(const std::string& path, const scenario::Scenario& scenario,
                      const std::vector<Row>& rows, bool simulated, const std::string& gpu) {
  if (!fs::exists(path)) return create(path, scenario, rows, simulated, gpu);
  Result result(path);
  result.head_ = read_json(path);
  Json& head = result.head_;
  const std::string elsewhere = "; leave out --resume and give another --json";
  if (head.value("benchmark", "") != "scenario") refuse(path, "is no result of a run" + elsewhere);
  if (head.value("scenario", "") != scenario.text) {
    refuse(path, "was measured with another text of scenario " + head.value("name", "?") +
                     " than " + scenario.file + " has" + elsewhere);
  }
  if (head["rows"] != names(rows)) {
    refuse(path, "has other rows than --policies and --baselines ask for" + elsewhere);
  }
  const std::string mode = simulated ? "simulated" : "real";
  if (head.value("mode", "") != mode || head.value("gpu", "") != gpu) {
    refuse(path, "was measured on " + head.value("gpu", "?") + " (" + head.value("mode", "?") +
                     "), this is " + gpu + " (" + mode + ")" + elsewhere);
  }
  for (const auto& [key, seconds] :
       {std::pair("block_s", scenario.block_s), std::pair("settle_s", scenario.settle_s)}) {
    if (head.value(key, 0.0) == seconds) continue;
    refuse(path, std::string("was measured with another ") + key + ": " +
                     Json(head.value(key, 0.0)).dump() + elsewhere);
  }
  const bool moved = scenario.repetitions != head.value("repetitions_wanted", 0U);
  if (scenario.apart != head.value("apart", false) || (scenario.apart && moved)) {
    refuse(path,
           "was measured with another --apart, or other --repetitions of its parts" + elsewhere);
  }
  if (scenario.seed && *scenario.seed != result.seed()) {
    refuse(path, "has seed " + head["seed"].dump() + ", this run asks for another" + elsewhere);
  }
  head.emplace("rates", Json::object());  // an earlier release had none
  head["repetitions_wanted"] = scenario.repetitions;
  const uint32_t done = result.repetitions_done();
  const Json raw = head["raw"];
  head.erase("raw");
  for (const Json& json : raw) {
    Block block = block_from(json);
    if (block.repetition >= done) continue;
    result.lines_.push_back(dumped(json));
    result.blocks_.push_back(std::move(block));
  }
  return result;
}

void Result::add(const Block& block) {
  blocks_.push_back(block);
  lines_.push_back(dumped(to_json(block)));
  save();
}

void Result::end_repetition() {
  head_["repetitions_done"] = repetitions_done() + 1;
  save();
}

void Result::error(const std::string& text) {
  head_["errors"].push_back(text);
  save();
}

void Result::save_as(const std::string& path) {
  path_ = path;
  save();
}

void Result::save() const {
  if (!path_.empty()) write_result(path_, head_, lines_);
}

Json outputs(const Json& digests) {
  using Like = std::pair<std::string, Json>;  // of equal jobs that see equally many SMs
  std::map<Like, Json> first;
  std::map<Like, int> bare;
  Json out = {{"control_equal", nullptr}, {"heddle_equal", nullptr}};
  for (const Json& d : digests) {
    const Like like = {d["job"], d.value("thread_pct", 100)};
    const bool managed = d["managed"];
    first.emplace(like, d["sha256"]);
    if (!managed && ++bare[like] == 1) continue;
    Json& equal = out[managed ? "heddle_equal" : "control_equal"];
    equal = equal.is_null() ? d["sha256"] == first[like]
                            : equal.get<bool>() && d["sha256"] == first[like];
  }
  return out;
}

std::string render(const Json& value, int depth) {
  constexpr size_t kLine = 100;
  constexpr int kDepthMax = 5;
  const std::string flat = dumped(value);
  if (!value.is_structured() || value.empty()) return flat;
  if (depth > 0 && (depth > kDepthMax || flat.size() < kLine)) return flat;
  const std::string pad(static_cast<size_t>(depth) + 1, ' ');
  const std::string close(static_cast<size_t>(depth), ' ');
  std::string out;
  for (const auto& [key, item] : value.items()) {
    out += (out.empty() ? "\n" : ",\n") + pad;
    if (value.is_object()) out += dumped(key) + ": ";
    out += render(item, depth + 1);
  }
  return (value.is_object() ? "{" : "[") + out + "\n" + close + (value.is_object() ? "}" : "]");
}

Json shown(const Json& result) {
  Json made = Json::object();
  for (const auto& [key, part] : result.items()) {
    if (key != "raw") made[key] = part;
  }
  if (made.contains("interval")) return made;  // heddle try's: the least and the most
  if (made.contains("figures")) say_few(made["figures"]);
  for (Json& ratio : made["ratios"]) {
    if (ratio.value("n", kForInterval) < kForInterval) ratio["few"] = ratio["n"];
  }
  return made;
}

void write_result(const std::string& path, const Json& head,
                  const std::vector<std::string>& blocks) {
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder);
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  std::string text = render(head);
  text.resize(text.size() - 2);  // "\n}"
  file << text << ",\n \"raw\": [";
  for (size_t i = 0; i < blocks.size(); ++i) file << (i == 0 ? "\n  " : ",\n  ") << blocks[i];
  file << "\n ]\n}\n";
  file.close();
  if (!file || rename(partial.c_str(), path.c_str()) != 0) {
    refuse(path, "cannot be written; check the path given");
  }
}

Json read_json(const std::string& path) {
  const auto text = read_file(path, "");
  Json json = parse_json<Json>(text.value_or(""));
  if (!json.is_object()) refuse(path, "cannot be read as JSON");
  return json;
}

}  // namespace heddle::bench
