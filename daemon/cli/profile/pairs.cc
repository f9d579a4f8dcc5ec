// `heddle profile predict-pairs`: what the estimator says of pairs that bench/pairs.py measured.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/profile/ncu.h"
#include "daemon/model/interference.h"
#include "daemon/profile/gpu_model.h"
#include "daemon/profile/ncu.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// The kernels of a result, with what was measured of each in the report.
std::vector<core::Mix> mixes_of(const json& document, const profiles::NcuReport& report,
                                const core::DeviceModel& device, size_t& unknown) {
  std::vector<core::Mix> mixes;
  for (const json& k : document.at("kernels")) {
    core::Mix m;
    m.shape = {.blocks = k.at("grid_blocks"),
               .threads = k.at("block_threads"),
               .registers = k.at("registers"),
               .smem_bytes = k.at("static_smem_bytes").get<uint32_t>() +
                             k.at("dynamic_smem_bytes").get<uint32_t>(),
               .blocks_per_sm = k.at("blocks_per_sm")};
    m.whole_us = m.duration_us = k.at("alone_us");
    const auto same = std::find_if(
        report.kernels.begin(), report.kernels.end(), [&](const profiles::NcuKernel& n) {
          return n.name == k.at("name").get<std::string>() && n.grid_blocks == m.shape.blocks &&
                 n.block_threads == m.shape.threads &&
                 (n.dynamic_smem_bytes < 0 || n.dynamic_smem_bytes == k.at("dynamic_smem_bytes"));
        });
    if (same == report.kernels.end()) {
      ++unknown;
    } else {
      ipc::KernelMetrics metrics{};
      for (const auto& [key, value] : same->metrics) metrics.set(ipc::metric_of(key), value);
      m.use = core::use_of(metrics, m.duration_us, device);
    }
    mixes.push_back(m);
  }
  return mixes;
}

// A pair's two kernels where they ran: `halves` are the lower and the upper half of the groups.
std::array<core::Mix, 2> both_of(const json& pair, const std::vector<core::Mix>& mixes,
                                 core::GroupCount groups) {
  std::array<core::Mix, 2> both = {mixes.at(pair.at("first")), mixes.at(pair.at("second"))};
  const bool halves = pair.at("setting") == "halves";
  const core::SmSet all = core::SmSet::first(groups);
  const core::SmSet low = core::SmSet::first(core::GroupCount(groups.get() / 2));
  for (size_t i = 0; i < 2; ++i) {
    both[i].duration_us = pair.at("alone_us").at(i);
    if (halves) both[i].sm_set = i == 0 ? low : all - low;
  }
  return both;
}

json predicted(const json& document, const profiles::NcuReport& report, core::DeviceModel device) {
  const core::GroupCount groups(document.at("sm_groups").get<uint32_t>());
  if (groups.get() < 2 || groups.get() > 31) throw std::runtime_error("sm_groups must be 2 to 31");
  device.sm_groups = groups.get();
  size_t unknown = 0;
  const std::vector<core::Mix> mixes = mixes_of(document, report, device, unknown);
  json rows = json::array();
  for (const json& pair : document.at("pairs")) {
    if (pair.contains("error")) continue;
    const std::array<core::Mix, 2> both = both_of(pair, mixes, groups);
    const core::Prediction first = core::predict(both, 0, device);
    const core::Prediction second = core::predict(both, 1, device);
    const auto name = [](core::Channel c) { return core::kChannelNames[core::index_of(c)]; };
    rows.push_back({{"first", pair.at("first")},
                    {"second", pair.at("second")},
                    {"setting", pair.at("setting")},
                    {"measured", pair.at("slowdowns")},
                    {"predicted", {first.slowdown, second.slowdown}},
                    {"known", {first.known, second.known}},
                    {"binds", {name(first.binds), name(second.binds)}},
                    {"waits_us", {first.waits_for_us, second.waits_for_us}}});
  }
  json uses = json::array();
  for (const core::Mix& m : mixes) {
    json use;
    for (size_t i = 0; i < core::kChannels; ++i) {
      if (m.use.of[i] >= 0) use[std::string(core::kChannelNames[i])] = m.use.of[i];
    }
    uses.push_back(use);
  }
  return {
      {"gpu", document.value("gpu", "")}, {"kernels", uses}, {"unknown", unknown}, {"pairs", rows}};
}

}  // namespace

int profile_predict_pairs(const NcuOptions& options) {
  const auto refused = [&](const std::string& why) {
    return show_error(options.as_json, {kFailed, why, {}});
  };
  const Result<std::string> pairs = read_file(options.pairs, "check the path"),
                            text = read_file(options.report, "check the path", kReportMost);
  if (!pairs) return refused(pairs.error().message);
  if (!text) return refused(text.error().message);
  const Result<profiles::NcuReport> report = profiles::parse_ncu(*text, options.report);
  if (!report) return refused(report.error().message);
  json all;
  try {
    const json document = parse_json(*pairs);
    const Result<core::DeviceModel> device =
        options.gpu_model.empty()
            ? profiles::find_gpu_model(gpu_models_directory(), document.value("gpu", ""))
            : profiles::load_gpu_model(options.gpu_model);
    if (!device) return refused(device.error().message);
    all = predicted(document, *report, *device);
  } catch (const std::exception& e) {  // what the file lacks, or has of another kind
    return refused(options.pairs + ": is no result of heddle-bench pairs: " + e.what());
  }
  if (all["unknown"] != 0) {
    std::cerr << "heddle: " << options.report << ": has no metrics of " << all["unknown"]
              << " kernels; of those only launch shapes are judged\n";
  }
  if (options.as_json) {
    std::cout << all.dump(1, ' ', false, json::error_handler_t::replace) << '\n';
    return kOk;
  }
  std::cout << "first second setting    measured        predicted (?: unknown, a guess)  binds\n";
  for (const json& p : all["pairs"]) {
    const auto mark = [&](size_t i) { return p["known"][i] ? " " : "?"; };
    char line[128];
    snprintf(line, sizeof line, "%5d %6d %-9s %6.2f %6.2f  %6.2f%s %6.2f%s  %s, %s\n",
             p["first"].get<int>(), p["second"].get<int>(),
             p["setting"].get_ref<const std::string&>().c_str(), p["measured"][0].get<double>(),
             p["measured"][1].get<double>(), p["predicted"][0].get<double>(), mark(0),
             p["predicted"][1].get<double>(), mark(1),
             p["binds"][0].get_ref<const std::string&>().c_str(),
             p["binds"][1].get_ref<const std::string&>().c_str());
    std::cout << line;
  }
  return kOk;
}

}  // namespace heddle::cli
