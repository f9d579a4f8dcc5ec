// Blocks as results have them.
#include <stdexcept>

#include "bench/runner/figures.h"
#include "bench/runner/pack.h"

namespace heddle::bench {
namespace {

// A list of numbers, or what pack() made of one; none where it may be left out.
std::vector<uint32_t> times(const Json& job, const char* key, bool optional = true) {
  if (optional && !job.contains(key)) return {};
  const Json& found = job.at(key);
  if (!found.is_string()) return found.get<std::vector<uint32_t>>();
  try {
    return unpack(found.get_ref<const std::string&>());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string(key) + ": " + error.what());
  }
}

}  // namespace

Json to_json(const Block& block) {
  Json jobs = Json::object();
  for (const auto& [name, samples] : block.jobs) {
    jobs[name] = {{"us", samples.us}, {"span_s", samples.span_s}};
    if (samples.unserved > 0) jobs[name]["unserved"] = samples.unserved;
    if (!samples.tbt_us.empty()) jobs[name]["tbt_us"] = samples.tbt_us;
    if (!samples.ttft_us.empty()) jobs[name]["ttft_us"] = samples.ttft_us;
    if (!samples.bypassed_us.empty()) jobs[name]["bypassed_us"] = samples.bypassed_us;
  }
  Json out = {{"rep", block.repetition}, {"order", block.order}, {"row", block.row}};
  out["jobs"] = jobs;
  if (block.daemon_cpu >= 0) out["daemon_cpu"] = rounded(block.daemon_cpu);
  if (!block.counters.empty()) out["counters"] = block.counters;
  if (block.counted_s > 0) out["counted_s"] = rounded(block.counted_s);
  for (const auto& [job, cores] : block.shim_cpu) out["shim_cpu"][job] = rounded(cores);
  if (block.energy_j >= 0) out["energy_j"] = rounded(block.energy_j);
  if (block.added_us_max > 0) out["added_us_max"] = rounded(block.added_us_max);
  if (block.exceeded_us_max > 0) {
    out["exceeded_us_max"] = rounded(block.exceeded_us_max);
    out["exceeded_by"] = block.exceeded_by;
  }
  if (!block.said.is_null()) out["said"] = block.said;
  return out;
}

Block block_from(const Json& json) {
  Block block{json.at("rep"), json.at("order"), json.at("row"), {}, -1, Json::object()};
  for (const auto& [name, one] : json.at("jobs").items()) {
    try {
      block.jobs[name] = {times(one, "us", false),   one.at("span_s"),
                          one.value("unserved", 0U), times(one, "tbt_us"),
                          times(one, "bypassed_us"), times(one, "ttft_us")};
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("block of " + block.row + " in repetition " +
                               std::to_string(block.repetition) + ", job " + name + ", " +
                               error.what());
    }
  }
  block.daemon_cpu = json.value("daemon_cpu", -1.0);
  block.counters = json.value("counters", Json::object());
  block.counted_s = json.value("counted_s", 0.0);
  block.shim_cpu = json.value("shim_cpu", block.shim_cpu);
  block.energy_j = json.value("energy_j", -1.0);
  block.added_us_max = json.value("added_us_max", 0.0);
  block.exceeded_us_max = json.value("exceeded_us_max", 0.0);
  block.exceeded_by = json.value("exceeded_by", Json());
  block.said = json.value("said", Json());
  return block;
}

}  // namespace heddle::bench
