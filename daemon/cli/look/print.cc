#include "daemon/cli/look/print.h"

#include <ctype.h>
#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "daemon/server/metrics.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string two_digits(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.2f", value);
  return text;
}

}  // namespace

void print_table(std::ostream& out, const std::vector<Row>& rows, size_t spaces) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out << row[i];
      if (i + 1 < row.size()) out << std::string(widths[i] - row[i].size() + spaces, ' ');
    }
    out << '\n';
  }
}

std::string added_text(const json& device) {
  if (device.at("added_us_max").is_null()) return "nothing limits what others add to its gaps";
  const auto ms = [](double us) { return fixed("%.2f ms", us / 1e3); };
  std::string text = "others add " + ms(device.at("added_us_max")) + " at most to one of its gaps";
  if (device.at("gaps_exceeded") == 0) return text;
  text += "; of " + device.at("gaps_filled").dump() + " gaps " + device.at("gaps_exceeded").dump() +
          " took more";
  const double by_us = device.value("exceeded_us_max", 0.0);  // an older daemon does not say
  return by_us > 0 ? text + ", by " + ms(by_us) + " at most" : text;
}

std::string ceilings_text(const json& device) {
  std::string all;
  for (const json& ceiling : device.value("ceilings", json::array())) {
    const json& use = ceiling.at("use");
    const double unknown = ceiling.at("unknown");
    char text[96], part[48] = "";
    if (!use.is_null() && unknown > 0) {
      snprintf(part, sizeof part, " (unknown of %.0f %% of its work)", 100 * unknown);
    }
    snprintf(text, sizeof text, "%s%s %s of %.2f%s", all.empty() ? "uses " : ", ",
             ceiling.at("channel").get<std::string>().c_str(),
             use.is_null() ? "unknown" : two_digits(use).c_str(), ceiling.at("max").get<double>(),
             part);
    all += text;
  }
  return all.empty() ? "" : all + " beside others";
}

namespace {

// Who kept the device from launches until the starvation bound let them go.
void print_stalls(std::ostream& out, const json& stalls) {
  const json last = stalls.value("last", json());
  if (!last.is_object()) return;
  const std::string by = last.at("by");
  const std::string s = std::to_string(std::llround(last.at("stalled_us").get<double>() / 1e3));
  out << "  stalls: policy " << stalls.at("policy") << ", clients " << stalls.at("client")
      << ", GPU " << stalls.at("gpu") << "; the last: client " << last.at("waited") << " waited "
      << std::llround(last.at("waited_us").get<double>() / 1e3) << " ms, ";
  if (by == "policy") {
    out << "the policy said IDLE for " << s << " ms while the GPU had no work\n";
  } else if (by == "client") {
    out << "the work of client " << last.at("client") << " is overdue by " << s << " ms\n";
  } else {
    out << "the work of several clients is overdue by " << s << " ms: does the GPU hang?\n";
  }
}

// Those of a table that are not 0, by their names, as many to a line as it has room for. An older
// daemon lacks some.
template <class Of, size_t N>
void print_counters(std::ostream& out, const server::Metric<Of> (&table)[N], const json& counted) {
  std::string line = " ";
  for (const server::Metric<Of>& metric : table) {
    const json value = counted.value(metric.name, json(0));
    if (value == 0) continue;
    std::string text = metric.name + (" " + value.dump());
    std::replace(text.begin(), text.end(), '_', ' ');
    if (line.size() + text.size() + 2 > kColumns) {
      out << line << '\n';
      line = " ";
    }
    line += (line == " " ? " " : ", ") + text;
  }
  if (line != " ") out << line << '\n';
}

// An older daemon says nothing of it.
void print_config(std::ostream& out, const json& config) {
  if (config.empty()) return;
  const std::string file = config.value("file", "");
  out << "config    " << (file.empty() ? "none" : printable(file));
  if (const int more = config.value("conf_d", 0)) out << " and " << more << " of conf.d";
  out << ", " << config.value("rules", 0) << " rules, read "
      << std::llround(config.value("read_s_ago", 0.0)) << " s ago\n";
  if (const std::string error = config.value("error", ""); !error.empty()) {
    out << "  problem: not read, what was read before stays in force: " << printable(error) << '\n';
  }
  for (const json& rule : config.value("unresolved", json::array())) {
    out << "  problem: " << unresolved_text(rule) << '\n';
  }
  for (const json& promise : config.value("unkept", json::array())) {
    out << "  problem: " << printable(promise) << '\n';
  }
  for (const json& table : config.value("needs_restart", json::array())) {
    out << "  " << printable(table) << " has changed; restart heddled for it\n";
  }
}

// What does not stay as it is.
void print_trial(std::ostream& out, const json& policy) {
  const json trial = policy.value("trial", json());
  if (!trial.is_object()) return;
  const std::string left = std::to_string(std::llround(trial.at("left_s").get<double>()));
  if (!trial.value("promoted", false)) {
    out << "  back to generation " << trial.at("back_to") << " in " << left
        << " s, unless heddle policy keep\n";
    return;
  }
  char runs[96] = "too few runs to say";
  if (trial.at("slowdown").is_number()) {
    snprintf(runs, sizeof runs, "%.2f so far", trial.at("slowdown").get<double>());
  }
  out << "  watched for " << left << " s: back to generation " << trial.at("back_to")
      << " if it faults, or runs take over " << trial.at("slowdown_max").dump()
      << " times what they take alone (" << runs << ")\n";
}

// Where it came from, and what does not stay as it is. An older daemon says none of it.
void print_generation(std::ostream& out, const json& policy) {
  const json by = policy.value("loaded_by", json::object());
  if (by.value("how", "") != "") {
    out << ", generation " << policy.at("generation") << " by " << by.at("how").get<std::string>();
    if (by.value("pid", 0) != 0) out << " of uid " << by.at("uid") << " pid " << by.at("pid");
  }
  out << '\n';
  if (policy.value("file_differs", false)) {
    out << "  the file " << printable(policy.value("wanted", ""))
        << " differs from what runs: heddle policy diff\n";
  }
  print_trial(out, policy);
}

}  // namespace

std::string fixed(const char* format, double value) {
  char text[48];
  snprintf(text, sizeof text, format, value);
  return text;
}

// Clients choose their labels, and a terminal obeys control characters, those from 0x80 to 0x9f
// among them.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text.empty() ? "-" : text;
}

std::string unresolved_text(const json& rule) {
  const bool user = rule.contains("user");
  return printable(rule.value("rule", "")) + " matches nobody: this host knows no " +
         (user ? "user '" : "group '") + printable(rule.value(user ? "user" : "group", "")) + "'";
}

// "inference (share 2, fail closed)": the rule, and what it gives besides the priority.
std::string rule_text(const json& grade) {
  std::string terms;
  const auto add = [&terms](const std::string& term) {
    terms += (terms.empty() ? "" : ", ") + term;
  };
  std::ostringstream share;
  share << grade.at("share").get<double>();
  if (grade.at("share") != 1) add("share " + share.str());
  if (!grade.at("slo_ms").is_null()) add("SLO " + grade.at("slo_ms").dump() + " ms");
  if (grade.contains("slowdown_max") && !grade.at("slowdown_max").is_null())
    add("slowdown <= " + grade.at("slowdown_max").dump());
  if (const json p99 = grade.value("slowdown_p99_max", json()); !p99.is_null())
    add("slowdown p99 <= " + p99.dump());
  for (const char* key : {"issue_max", "l2_max", "dram_max"}) {
    const json most = grade.value(key, json());
    if (!most.is_null()) add(std::string(key) + " " + most.dump());
  }
  for (const char* key : {"request", "limit"}) {
    const json part = grade.value(key, json());
    if (!part.is_null()) add(key + fixed(" %.0f %%", 100 * part.get<double>()));
  }
  if (grade.at("fail") == "closed") add("fail closed");
  if (const std::string sms = grade.value("sms", ""); !sms.empty()) add("SMs " + sms);
  if (const std::string most = grade.value("memory", ""); !most.empty()) add("memory " + most);
  return printable(grade.at("rule")) + (terms.empty() ? "" : " (" + terms + ")");
}

std::string held_text(const json& client, const json& device) {
  if (device.value("allowed", json("lease")) == "lease") return "";
  const std::string held = client.value("held", "");
  if (held == "device") {
    return "held on the device: its launches wait there, not in the program";
  }
  const std::string why = client.value("threads_wait_because", "");
  const bool by_default = why == "[daemon] gates is false";
  return held.empty() || by_default ? ""
                                    : "held in the program, whose threads wait: " + printable(why);
}

std::string stops_text(const json& client, const json& device) {
  if (client.value("mode", "") != "timeslice" || !device.contains("stops_not_because")) return "";
  const std::string why = device.at("stops_not_because");
  const uint64_t count = device.value("stops", uint64_t{0});
  if (!why.empty()) return "what runs of it is not stopped: " + printable(why);
  if (count == 0) return "what runs of it can be stopped, and was not yet";
  return "what runs of it was stopped " + std::to_string(count) + " times, " +
         fixed("%.1f s in all", device.value("stopped_us", 0.0) / 1e6);
}

std::string clock_text(const json& client) {
  const double ahead_s = client.at("clock_ahead_s");
  char text[96];
  snprintf(text, sizeof text, "its clock is %.3f s %s heddled's, which heddled allows for",
           std::abs(ahead_s), ahead_s > 0 ? "ahead of" : "behind");
  return text;
}

std::string pod_text(const json& process) {
  if (!process.contains("pod")) return "";
  const json& pod = process.at("pod");
  return "pod " + printable(pod.at("namespace")) + "/" + printable(pod.at("pod")) + ", container " +
         printable(pod.at("container"));
}

// Its own, and what its limit has left for nobody: "1.5 GiB (12.0 of 20.0)".
std::string memory_text(const json& device) {
  const double used = device.value("memory_bytes", 0.0);
  const double limit = device.value("memory_limit_bytes", 0.0);
  if (used == 0 && limit == 0) return "-";
  const auto gib = [](double bytes) {
    constexpr double kGib = 1 << 30;
    char text[32];
    snprintf(text, sizeof text, "%.3g", std::max(bytes / kGib, bytes > 0 ? 0.001 : 0));
    return std::string(text);
  };
  if (limit == 0) return gib(used);
  return gib(device.value("memory_group_bytes", 0.0)) + '/' + gib(limit);
}

void print_mps(std::ostream& out, const json& mps) {
  const auto list = [](const json& processes) {
    std::string pids;
    for (const json& p : processes) pids += (pids.empty() ? "" : ", ") + p.at("pid").dump();
    return pids.empty() ? std::string("none") : pids;
  };
  out << "mps       " << (mps.at("managed") == true ? "managed" : "not managed")
      << (mps.at("managed") == true && mps.at("wanted") == false ? " and stopped, " : ", ")
      << (mps.at("answers") == true ? "pid " + mps.at("pid").dump() + " answers in "
                                    : "none answers in ")
      << mps.at("pipe_directory").get<std::string>() << '\n';
  for (const json& server : mps.at("servers")) {
    out << "  server pid " << server.at("pid") << " of uid " << server.at("uid") << ", clients "
        << list(server.at("clients")) << '\n';
  }
  for (const json& process : mps.at("waiting")) {
    out << "  pid " << process.at("pid") << " of uid " << process.at("uid")
        << " waits inside cuInit, until the programs of the uid that is served are gone\n";
  }
  if (mps.at("shares_cgroup") == true) {
    out << "  it is in heddled's cgroup: who ends that ends MPS and its clients\n";
  }
  if (mps.at("error") != "") out << "  problem: " << printable(mps.at("error")) << '\n';
}

void print_refusals(std::ostream& out, const json& refusals) {
  if (refusals.value("count", 0) == 0) return;
  const std::string last = refusals.at("last");
  out << "refused   " << refusals.at("count") << " connections, the last "
      << std::llround(refusals.at("last_s_ago").get<double>()) << " s ago"
      << (last.empty() ? "" : ": " + printable(last)) << '\n';
}

// The limits on device memory that hold somebody now.
void print_memory(std::ostream& out, const json& groups) {
  const auto gib = [](const json& bytes) {
    char text[32];
    snprintf(text, sizeof text, "%.2f", bytes.get<double>() / (1 << 30));
    return std::string(text);
  };
  for (const json& group : groups) {
    const std::string name = group.at("limited_as");
    out << "memory    " << (name.empty() ? "a limit" : printable(name)) << " on device "
        << group.at("gpu") << ": " << gib(group.at("used_bytes")) << " of "
        << gib(group.at("limit_bytes")) << " GiB, clients " << group.at("clients") << '\n';
  }
}

void print_status(std::ostream& out, const json& answer) {
  const json& policy = answer.at("policy");
  out << "daemon    pid " << answer.at("pid") << ", up "
      << std::llround(answer.at("uptime_s").get<double>()) << " s, socket "
      << answer.at("socket").get<std::string>() << '\n'
      << "mode      " << answer.at("mode").get<std::string>() << '\n';
  for (const std::string& text : stop_texts(answer)) out << "stops     " << text << '\n';
  if (answer.at("mps").at("managed") == true) print_mps(out, answer.at("mps"));
  print_config(out, answer.value("config", json::object()));
  out << "policy    " << printable(policy.at("name"));
  if (!policy.at("path").get<std::string>().empty()) {
    out << " (" << policy.at("path").get<std::string>() << ", "
        << policy.at("hash").get<std::string>() << ')';
  }
  print_generation(out, policy);
  if (!policy.at("error").get<std::string>().empty()) {
    out << "error     " << printable(policy.at("error")) << '\n';
  }
  if (const std::string error = answer.value("state_error", ""); !error.empty()) {
    out << "state     not kept: " << printable(error) << '\n';
  }
  const json& profiles = answer.at("profiles");
  if (!profiles.at("directory").get<std::string>().empty()) {
    out << "profiles  " << profiles.at("tasks") << " tasks in "
        << printable(profiles.at("directory").get<std::string>()) << '\n';
  }
  for (const json& error : profiles.at("errors")) {
    out << "  problem: " << printable(error.get<std::string>()) << '\n';
  }
  out << "bypass    " << (answer.at("bypass") ? "on: every gate is open" : "off") << '\n'
      << "clients   " << answer.at("clients") << '\n';
  print_refusals(out, answer.value("refusals", json::object()));
  print_memory(out, answer.value("memory", json::array()));
  for (const json& device : answer.at("devices")) {
    const json& s = device.at("stats");
    const std::string uuid = device.value("uuid", "");
    out << "device " << device.at("index") << "  " << (uuid.empty() ? "" : uuid + ", ")
        << device.at("sm_total") << " SMs, " << device.at("waiting") << " waiting\n";
    print_counters(out, server::kDeviceMetrics, s);
    for (const json& bound : device.value("bounds", json::array())) {
      const std::string who = "  client " + bound.at("client").dump() + ": ";
      if (bound.at("added_us_max") != 0) out << who << added_text(bound) << '\n';
      for (const PromiseText& promise : promise_texts(bound)) {
        out << who << promise.text << promise.by << '\n';
      }
    }
    print_stalls(out, device.value("stalls", json::object()));
    const std::string fault = device.at("policy").value("fault", "");
    if (!fault.empty()) out << "  last fault: " << printable(fault) << '\n';
    for (const json& hook : device.at("policy").value("hooks", json::array())) {
      char line[96];
      snprintf(line, sizeof line, "  hook %s: %.0f calls, p50 %.2f us, p99 %.2f us\n",
               hook.at("hook").get<std::string>().c_str(), hook.at("calls").get<double>(),
               hook.at("p50_us").get<double>(), hook.at("p99_us").get<double>());
      out << line;
    }
    for (const json& said : device.at("policy").value("said", json::array())) {
      out << "  " << said.at("verdict").get<std::string>() << ' ' << printable(said.at("reason"))
          << ": " << said.at("count") << " times\n";
    }
    for (const json& line : device.at("policy").value("trace", json::array())) {
      out << "  trace: " << printable(line) << '\n';
    }
  }
  const json& counters = answer.at("counters");
  if (counters.at("malformed") != 0 || counters.at("let_go") != 0) {
    out << counters.at("malformed") << " malformed records from clients; " << counters.at("let_go")
        << " clients detached\n";
  }
}

std::string status_help() {
  std::vector<Row> rows;
  for (const auto& metric : server::kDeviceMetrics) {
    std::string name = metric.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    rows.push_back({"  " + name, metric.help});
  }
  std::ostringstream text;
  print_table(text, rows);
  return "Counters:\n" + text.str() + '\n';
}

void print_policies(std::ostream& out, const json& answer) {
  std::vector<Row> rows{{"", "POLICY", "VERSION", "PARAMETERS"}};
  bool papers = false;
  for (const json& policy : answer.at("policies")) {
    if (!std::exchange(papers, policy.value("papers", false)) && papers) {
      rows.push_back({"", "papers:", "", "their rules, and baselines"});
    }
    std::string params;
    for (const json& param : policy.value("params", json::array())) {
      if (!params.empty()) params += ' ';
      params += param.at("name").get<std::string>() + '=' + param.at("value").get<std::string>();
    }
    const std::string error = policy.value("error", "");
    const std::string quarantined = policy.value("quarantined", "");
    const std::string detail = !error.empty()         ? "error: " + error
                               : !quarantined.empty() ? "quarantined: " + quarantined
                                                      : params;
    rows.push_back({policy.at("running") ? "*" : " ", policy.at("name"),
                    policy.value("version", "-"), printable(detail)});
  }
  print_table(out, rows);
}

void print_policy(std::ostream& out, const json& answer) {
  const json& policy = answer.at("policy");
  out << "policy " << printable(policy.at("name")) << " is live";
  if (const auto as = policy.value("as_generation", uint64_t{0}); as != 0) {
    out << ", as generation " << as << " was";
  }
  const json set = policy.value("values", json::object());  // by somebody or the configuration
  std::string values;
  for (const auto& [name, value] : set.items()) {
    values += (values.empty() ? " (" : ", ") + printable(name) + '=' + printable(value);
  }
  if (!values.empty()) out << values << ')';
  out << '\n';
  print_trial(out, policy);
}

std::set<int> attached_pids(const json& answer) {
  std::set<int> pids;
  for (const json& client : answer.at("clients")) pids.insert(client.at("pid").get<int>());
  for (const json& pid : answer.value("pids", json::array())) pids.insert(pid.get<int>());
  return pids;
}

bool knows_all_pids(const json& answer) {
  return answer.contains("pids") || !answer.value("truncated", false);
}

using nlohmann::json;

std::string stop_text(const json& answer) {
  const std::string asked = ", asked " + printable(answer.value("at", "").substr(0, 10));
  if (answer.at("answer") != "yes") return "no: " + printable(answer.at("why")) + asked;
  const double ms = (answer.value("stop_us", 0.0) + answer.value("go_us", 0.0)) / 1e3;
  return "yes, " + fixed("%.2f", ms) + " ms to stop and go on" + asked;
}

std::vector<std::string> stop_texts(const json& status) {
  if (!status.contains("stops")) return {};
  const json& stops = status.at("stops");
  if (stops.at("setting") != "asked") {
    return {stops.at("setting") == "on" ? "on for every GPU, by [gpu] stops"
                                        : "off, by [gpu] stops"};
  }
  std::vector<std::string> texts;
  for (const json& answer : stops.at("answers")) {
    texts.push_back(stop_text(answer) + " (" + printable(answer.at("name")) + ", " +
                    printable(answer.at("gpu")) + ")");
  }
  const std::string error = stops.at("error"), why = stops.at("not_asked");
  if (!error.empty()) {
    texts.push_back("not asked: " + printable(error));
  } else if (!why.empty() || texts.empty()) {
    texts.push_back("not asked yet" + (why.empty() ? "" : ": " + printable(why)) +
                    "; heddle doctor --stop");
  }
  return texts;
}

}  // namespace heddle::cli
