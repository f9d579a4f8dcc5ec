// The table of metrics, and what the command line prints by it.
#include "daemon/server/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "daemon/cli/print.h"

namespace heddle {
namespace {

using nlohmann::json;

template <class Of, size_t N>
void check_table(const Metric<Of> (&table)[N]) {
  std::set<std::string> names;
  for (const Metric<Of>& metric : table) {
    const std::string name = metric.name, help = metric.help, unit = metric.unit;
    EXPECT_TRUE(names.insert(name).second) << name << " has two rows";
    EXPECT_GT(help.size(), 10u) << name;
    EXPECT_NE(help.back(), '.') << name;
    const bool timed = name.find("_us") != name.npos;
    EXPECT_EQ(unit, timed ? "us" : "") << name << ": the unit is in the name";
  }
}

TEST(Metrics, EachRowHasAKeyOfItsOwnAHelpAndAUnit) {
  check_table(server::kDaemonMetrics);
  check_table(server::kPolicyMetrics);
  check_table(server::kDeviceGauges);
  check_table(server::kDeviceMetrics);
  check_table(server::kClientMetrics);
  check_table(server::kSelfMetrics);
  check_table(server::kClientDeviceMetrics);
}

TEST(Metrics, JsonHasEachRowAndNullForWhatIsInfinite) {
  core::Stats stats;
  stats.asked = 7;
  stats.bound_violations = 3;
  const json counted = server::metrics_json(server::kDeviceMetrics, stats);
  EXPECT_EQ(counted.size(), std::size(server::kDeviceMetrics));
  EXPECT_EQ(counted["asked"], 7);
  EXPECT_EQ(counted["bound_violations"], 3);
  server::ClientOnDevice client;
  client.added_us_max = core::kUnlimitedUs;
  client.gpu_us = 1.5;
  client.queued = 2;
  const json on = server::metrics_json(server::kClientDeviceMetrics, client);
  EXPECT_TRUE(on["added_us_max"].is_null());
  EXPECT_EQ(on["gpu_us"], 1.5);
  EXPECT_EQ(on["queued"], 2);
}

TEST(Metrics, StatusPrintsWhatIsNotZeroWithin80Columns) {
  core::Stats stats;
  json counted = server::metrics_json(server::kDeviceMetrics, stats);
  for (auto& [name, value] : counted.items()) value = 1'000'000;
  counted["crossed"] = 0;
  const json status{{"pid", 1},
                    {"uptime_s", 1.0},
                    {"socket", "/s"},
                    {"mode", "mps"},
                    {"mps", {{"managed", false}}},
                    {"policy", {{"name", "p"}, {"path", ""}, {"hash", ""}, {"error", ""}}},
                    {"profiles", {{"directory", ""}, {"errors", json::array()}}},
                    {"bypass", false},
                    {"clients", 0},
                    {"counters", {{"malformed", 0}, {"let_go", 0}}},
                    {"devices",
                     {{{"index", 0},
                       {"uuid", "GPU-1"},
                       {"sm_total", 132},
                       {"waiting", 2},
                       {"policy", json::object()},
                       {"stats", counted}}}}};
  std::ostringstream out;
  cli::print_status(out, status);
  const std::string text = out.str();
  EXPECT_NE(text.find("device 0  GPU-1, 132 SMs, 2 waiting\n"), text.npos) << text;
  EXPECT_NE(text.find("bound violations 1000000"), text.npos) << text;
  EXPECT_EQ(text.find("crossed"), text.npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

}  // namespace
}  // namespace heddle
