// The table of metrics, and what the command line prints by it.
#include "daemon/server/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "daemon/cli/look/look.h"
#include "daemon/cli/look/print.h"

namespace heddle {
namespace {

using nlohmann::json;

template <class Of, size_t N>
void check_table(const server::Metric<Of> (&table)[N]) {
  std::set<std::string> names;
  for (const server::Metric<Of>& metric : table) {
    const std::string name = metric.name, help = metric.help, unit = metric.unit;
    EXPECT_TRUE(names.insert(name).second) << name << " has two rows";
    EXPECT_GT(help.size(), 10u) << name;
    EXPECT_NE(help.back(), '.') << name;
    const bool timed = name.find("_us") != name.npos;
    EXPECT_EQ(unit, timed ? "us" : "") << name << ": the unit is in the name";
  }
}

TEST(Metrics, EachByteOfTheGraphsWordIsACounter) {
  auto client = server::Client::make({});
  ASSERT_TRUE(client) << client.error().message;
  // The program's own to write.
  const_cast<ipc::ClientMemory&>((*client)->memory()).counters.graphs = 0x0807060504030201;
  const server::ClientCounts counts = server::counts_of(**client);
  EXPECT_EQ(counts.graph_twins, 1u);
  EXPECT_EQ(counts.graphs_full, 7u);
  EXPECT_EQ(counts.broken_checks, 8u);
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
  counted["policy_faults"] = 0;
  const json status{{"pid", 1},
                    {"uptime_s", 1.0},
                    {"socket", "/s"},
                    {"mode", "mps"},
                    {"mps", {{"managed", false}}},
                    {"policy", {{"name", "p"}, {"path", ""}, {"hash", ""}, {"error", ""}}},
                    {"profiles", {{"directory", ""}, {"errors", json::array()}}},
                    {"bypass", false},
                    {"clients", 0},
                    {"config", {{"file", "/etc/x.toml"}, {"rules", 6}, {"conf_d", 2}}},
                    {"counters", {{"malformed", 0}, {"let_go", 0}}},
                    {"devices",
                     {{{"index", 0},
                       {"uuid", "GPU-1"},
                       {"sm_total", 132},
                       {"waiting", 2},
                       {"policy", json::object()},
                       {"bounds",
                        {{{"client", 4},
                          {"added_us_max", 0},
                          {"promise",
                           {{"slowdown_max", 1.1},
                            {"slowdown", 1.2467},
                            {"blocks", 6},
                            {"broken", 6},
                            {"broken_by", "slots"}}}}}},
                       {"stats", counted}}}}};
  std::ostringstream out;
  cli::print_status(out, status);
  const std::string text = out.str();
  EXPECT_NE(text.find("device 0  GPU-1, 132 SMs, 2 waiting\n"), text.npos) << text;
  EXPECT_NE(text.find("bound violations 1000000"), text.npos) << text;
  EXPECT_NE(text.find("config    /etc/x.toml and 2 of conf.d, 6 rules"), text.npos) << text;
  EXPECT_EQ(text.find("policy faults"), text.npos) << text;
  EXPECT_NE(text.find("  client 4: promise 1.10: now 1.25, 6 of 6 blocks broken, by slots\n"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("may add"), text.npos) << "nothing is less important than client 4";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

// Of a client as ps tells of it.
json client_json(const std::string& label, const std::string& cgroup) {
  json self = json::object();
  for (const auto& row : server::kSelfMetrics) self[row.name] = 0;
  self["stale"] = 4;
  server::ClientCounts counts;
  counts.launches = 10;
  json counters = server::metrics_json(server::kClientMetrics, counts);
  counters["self"] = self;
  server::ClientOnDevice on;
  on.gpu_us = 2.5e6;
  on.added_us_max = core::kUnlimitedUs;
  on.promise_slowdown = 1.25;
  on.promise_broken = 6;
  on.promise_p99_broken = 7;
  json device = server::metrics_json(server::kClientDeviceMetrics, on);
  device.update({{"device", 0},
                 {"active", true},
                 {"allowed", "gate"},
                 {"waits", {{"counts", {1, 0, 2}}, {"sum_us", 9.0}}}});
  return {{"id", 3},          {"pid", 42},       {"label", label},       {"priority", 9},
          {"cgroup", cgroup}, {"managed", true}, {"counters", counters}, {"devices", {device}}};
}

json status_json() {
  server::DaemonCounts counts;
  counts.claims = 12;
  return {{"version", "0.1"},
          {"uptime_s", 5.0},
          {"bypass", false},
          {"clients", 1},
          {"counters", server::metrics_json(server::kDaemonMetrics, counts)},
          {"policy",
           {{"name", "gapfill"},
            {"hash", "abc"},
            {"generation", 7},
            {"error", ""},
            {"decisions", 1},
            {"faults", 0},
            {"reloads", 2},
            {"reload_errors", 0}}},
          {"devices",
           {{{"index", 0},
             {"uuid", "GPU-1"},
             {"sm_total", 132},
             {"switch_us", 10.0},
             {"waiting", 0},
             {"policy",
              {{"name", "gapfill"},
               {"hooks", {{{"hook", "dispatch"}, {"counts", {1, 0, 2}}, {"sum_us", 1.5}}}}}},
             {"stats", server::metrics_json(server::kDeviceMetrics, core::Stats{})}}}}};
}

std::string page_of(const std::string& label, const std::string& cgroup = "") {
  return cli::prometheus_text(status_json(), {{"clients", {client_json(label, cgroup)}}});
}

json refused_config() {
  json status = status_json();
  status["config"] = {{"error", "line 3"}, {"needs_restart", {"[gpu]"}}};
  return status;
}

bool has_line(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

TEST(Prometheus, TellsWhatTheConfigurationWaitsFor) {
  const std::string ill = cli::prometheus_text(refused_config(), {{"clients", json::array()}});
  EXPECT_TRUE(has_line(ill, "heddle_config_error 1")) << ill;
  EXPECT_TRUE(has_line(ill, "heddle_config_restart_needed 1")) << ill;
  const std::string page = page_of("train");
  EXPECT_TRUE(has_line(page, "heddle_config_error 0")) << page;
  EXPECT_TRUE(has_line(page, "heddle_config_restart_needed 0")) << page;
}

TEST(Prometheus, NamesSayWhatIsCountedInSeconds) {
  const std::string page = page_of("train");
  EXPECT_TRUE(has_line(page, "heddle_up 1")) << page;
  EXPECT_TRUE(has_line(page, "heddle_daemon_claims_total 12"));
  EXPECT_TRUE(has_line(page, "# TYPE heddle_daemon_claims_total counter"));
  EXPECT_TRUE(has_line(page, "heddle_gpu_sms{gpu_uuid=\"GPU-1\"} 132"));
  EXPECT_TRUE(has_line(page, "heddle_gpu_switch_seconds{gpu_uuid=\"GPU-1\"} 1e-05"));
  EXPECT_TRUE(
      has_line(page, "heddle_policy_info{name=\"gapfill\",hash=\"abc\",generation=\"7\"} 1"));
  const std::string hook = "{policy=\"gapfill\",hook=\"dispatch\",gpu_uuid=\"GPU-1\"";
  EXPECT_TRUE(has_line(page, "heddle_policy_hook_seconds_bucket" + hook + ",le=\"1.25e-07\"} 1"));
  EXPECT_TRUE(has_line(page, "heddle_policy_hook_seconds_bucket" + hook + ",le=\"5e-07\"} 3"));
  EXPECT_TRUE(has_line(page, "heddle_policy_hook_seconds_count" + hook + "} 3"));
  EXPECT_TRUE(has_line(page, "heddle_policy_hook_seconds_sum" + hook + "} 1.5e-06"));
  const std::string who =
      "{client=\"3\",pid=\"42\",label=\"train\",priority=\"9\",container_id=\"\",pod_uid=\"\"";
  EXPECT_TRUE(has_line(page, "heddle_program_launches_total" + who + "} 10"));
  EXPECT_TRUE(has_line(page, "heddle_program_self_launches_total" + who + ",reason=\"stale\"} 4"));
  const std::string on = who + ",gpu_uuid=\"GPU-1\"";
  EXPECT_TRUE(has_line(page, "heddle_client_gpu_seconds_total" + on + "} 2.5"));
  EXPECT_TRUE(has_line(page, "heddle_client_added_max_seconds" + on + "} +Inf"));
  EXPECT_TRUE(has_line(page, "heddle_client_promise_slowdown" + on + "} 1.25"));
  EXPECT_TRUE(has_line(page, "heddle_client_promise_broken_total" + on + "} 6"));
  EXPECT_TRUE(has_line(page, "heddle_client_promise_p99_broken_total" + on + "} 7"));
  EXPECT_TRUE(has_line(page, "heddle_client_gated" + on + "} 1"));
  // Cumulative: 1 up to 1 us, 3 up to 4 and beyond.
  EXPECT_TRUE(has_line(page, "heddle_client_wait_seconds_bucket" + on + ",le=\"1e-06\"} 1"));
  EXPECT_TRUE(has_line(page, "heddle_client_wait_seconds_bucket" + on + ",le=\"4e-06\"} 3"));
  EXPECT_TRUE(has_line(page, "heddle_client_wait_seconds_bucket" + on + ",le=\"+Inf\"} 3"));
  EXPECT_TRUE(has_line(page, "heddle_client_wait_seconds_count" + on + "} 3"));
  EXPECT_TRUE(has_line(page, "heddle_client_wait_seconds_sum" + on + "} 9e-06"));
}

TEST(Prometheus, EachMetricHasOneHeadAndStandsTogether) {
  json two = json::array({client_json("a", ""), client_json("b", "")});
  const std::string page = cli::prometheus_text(status_json(), {{"clients", two}});
  std::set<std::string> heads;
  std::string current;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(heads.insert(current).second) << current << " has two heads";
    } else if (!line.starts_with("#")) {
      EXPECT_EQ(line.find(current), 0u) << line << " stands under " << current;
    }
  }
}

TEST(Prometheus, LabelsOfProgramsCannotBreakAPage) {
  const std::string page = page_of("a\"} 1\nfake 2\\\x01\xff");
  EXPECT_EQ(page.find("\nfake"), page.npos) << page;
  EXPECT_NE(page.find("label=\"a\\\"} 1?fake 2\\\\??\""), page.npos) << page;
  EXPECT_NE(page_of("").find("label=\"\""), page.npos);
}

// A C1 control character, and one that turns the direction of what follows.
TEST(Prometheus, LabelsOfProgramsObeyNoTerminal) {
  const std::string page = page_of("evil\u009b31m\u202e");
  EXPECT_EQ(page.find("\u009b"), page.npos) << page;
  EXPECT_EQ(page.find("\u202e"), page.npos) << page;
}

TEST(Prometheus, CgroupsNameContainersAndPods) {
  const std::string id(64, 'a');
  EXPECT_EQ(cli::container_id_of("/system.slice/docker-" + id + ".scope"), id);
  EXPECT_EQ(cli::container_id_of("/docker/" + id), id);
  EXPECT_EQ(cli::container_id_of("/docker/" + id + "b"), "") << "65 digits are no container's";
  EXPECT_EQ(cli::container_id_of("/user.slice"), "");
  const std::string uid = "0a1b2c3d-0000-1111-2222-333344445555";
  EXPECT_EQ(cli::pod_uid_of("/kubepods/besteffort/pod" + uid + "/" + id), uid);
  EXPECT_EQ(
      cli::pod_uid_of("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_"
                      "0000_1111_2222_333344445555.slice/cri-containerd-" +
                      id + ".scope"),
      uid);
  EXPECT_EQ(cli::pod_uid_of("/machine.slice/libpod-" + id + ".scope"), "");
  const std::string page = page_of("x", "/kubepods/besteffort/pod" + uid + "/" + id);
  EXPECT_NE(page.find("container_id=\"" + id + "\",pod_uid=\"" + uid + "\""), page.npos);
}

TEST(Prometheus, ClientOfAPodCarriesItsNames) {
  json client = client_json("x", "");
  client["pod"] = {{"namespace", "team-a"}, {"pod", "api\"7"}, {"container", "main"}};
  const std::string page = cli::prometheus_text(status_json(), {{"clients", {client}}});
  EXPECT_NE(page.find(",namespace=\"team-a\",pod=\"api\\\"7\",container=\"main\"}"), page.npos)
      << page;
}

TEST(Prometheus, WithoutADaemonThePageSaysSo) {
  EXPECT_TRUE(has_line(cli::prometheus_down(), "heddle_up 0"));
}

}  // namespace
}  // namespace heddle
