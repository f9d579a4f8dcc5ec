#include "bench/runner/kept.h"

#include <iostream>
#include <stdexcept>

#include "bench/runner/expect.h"
#include "bench/runner/pack.h"
#include "bench/runner/result.h"

namespace heddle::bench {
namespace {

constexpr int kFormat = 2;  // since rows say which jobs they have

// As far as figures depend on it; Result::about() writes it.
Row row_from(const Json& json, const scenario::Scenario& scenario) {
  Row row;
  row.name = json.at("name");
  row.mps = json.at("mps");
  row.policy = json.value("policy", "");
  row.config = json.value("config", "");
  row.alone = row.name.rfind("alone/", 0) == 0;
  const auto percent = json.value("percent", std::map<std::string, uint32_t>());
  for (const size_t job : json.at("jobs").get<std::vector<size_t>>()) {
    Variant v{.job = job, .mps = row.mps, .managed = !row.policy.empty(), .config = row.config};
    if (job >= scenario.jobs.size())
      throw std::runtime_error("row " + row.name + " has no such job");
    v.client_priority = json.contains("client_priority");
    const auto found = percent.find(std::to_string(job));
    if (found != percent.end()) v.percent = found->second;
    row.jobs.push_back(v);
  }
  return row;
}

Json with_figures(Json result, scenario::Scenario scenario) {
  scenario.block_s = result.at("block_s");
  std::vector<Row> rows;
  for (const Json& row : result.at("rows")) rows.push_back(row_from(row, scenario));
  std::vector<Block> blocks;
  for (const Json& block : result.at("raw")) blocks.push_back(block_from(block));
  result.update(figures_of(scenario, rows, blocks, result.at("profile")));
  return result;
}

}  // namespace

Json figures_of(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                const std::vector<Block>& blocks, const Json& profiles) {
  Json out = summarize(scenario, rows, blocks);
  out["idle_fraction"] = idle_fractions(scenario, blocks, profiles);
  out["expect"] = judge(scenario, rows, blocks, out["figures"], out["idle_fraction"]);
  return out;
}

Json figured(Json result, const std::string& file) {
  if (!result.contains("raw") || result.value("format", 1) < kFormat) return result;
  auto scenario = scenario::parse(result.at("scenario"), file);
  if (!scenario) throw std::runtime_error("the scenario in " + scenario.error().message);
  try {
    return with_figures(std::move(result), std::move(*scenario));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file + ": " + error.what() + "; copy it anew, or measure again");
  }
}

Json kept(const Json& result) {
  Json out = result;
  for (const char* made :
       {"figures", "ratios", "expect", "idle_fraction", "digests", "oracle", "left_over", "raw"}) {
    out.erase(made);
  }
  for (Json& session : out.at("sessions")) {
    for (const char* local : {"host", "pinned_cpus", "processes"}) session.erase(local);
  }
  for (const Json& json : result.at("raw")) {
    Json block = to_json(block_from(json));
    for (const char* told : {"said", "exceeded_by"}) block.erase(told);
    for (Json& job : block.at("jobs")) {
      for (auto& [key, of] : job.items()) {
        if (of.is_array()) of = pack(of.get<std::vector<uint32_t>>());
      }
    }
    out["raw"].push_back(std::move(block));
  }
  return out;
}

int print_figured(const std::string& file) {
  Json result = read_json(file);
  if (!result.contains("raw")) throw std::runtime_error(file + ": has no blocks");
  result = whole({file}, [&] { return figured(std::move(result), file); });
  for (Json& block : result["raw"]) block = to_json(block_from(block));
  std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  return 0;
}

int keep(const std::string& from, const std::string& to) {
  const Json result = read_json(from);
  if (result.value("benchmark", "") != "scenario" || result.value("format", 1) < kFormat ||
      !result.contains("raw")) {
    throw std::runtime_error(from + ": is no result of this release's heddle-bench run");
  }
  Json head = whole({from}, [&] { return kept(result); });
  std::vector<std::string> blocks;
  for (const Json& block : head["raw"]) blocks.push_back(block.dump());
  head.erase("raw");
  write_result(to, head, blocks);
  return 0;
}

}  // namespace heddle::bench
