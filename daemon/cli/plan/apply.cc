// `heddle plan jobs --apply`: the plan's shares, set through a running heddled. By the policy
// `shares`, from the next launches on; or as rules of heddled's configuration, from the next start
// of each program on.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/plan/plan.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// The policy's sizes are groups of so many SMs, rounded up.
constexpr double kGroupSms = 8;

constexpr std::string_view kBegin =
    "# Of `heddle plan jobs --apply --rules`, which replaces all of it.";
constexpr std::string_view kEnd = "# End of `heddle plan jobs --apply --rules`.";

Answer failed(const std::string& what) { return {kFailed, "plan: " + what, {}}; }

Answer ask_status(const std::string& socket) {
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  return ask(socket, request);
}

// As the policies shares and mmk do. Before a program came nobody knows, and heddled refuses what
// the policy does not take.
bool takes_sizes(const json& status) {
  const json devices = status.value("devices", json::array());
  if (devices.empty()) return true;
  for (const json& param :
       devices[0].value("policy", json::object()).value("params", json::array())) {
    if (param.value("name", "") == "sizes") return true;
  }
  return false;
}

// SMs of the device that heddled serves; what the plan is for, where no program told it yet.
Answer sms_of(const json& status, uint32_t planned, uint32_t& sms) {
  sms = 0;
  for (const json& device : status.value("devices", json::array())) {
    const auto of = device.value("sm_total", 0U);
    if (of == 0) continue;
    if (sms != 0 && sms != of) {
      return failed(
          "heddled serves GPUs of different sizes, and sizes are by label on all of them; put "
          "what --rules prints into heddled.toml");
    }
    sms = of;
  }
  if (sms == 0) sms = planned;
  return {};
}

// "api=64,embed=32", with what each job gets in `jobs`.
Answer sizes_of(const json& plan, uint32_t sms, json& jobs, std::string& sizes) {
  for (const json& job : plan["jobs"]) {
    const std::string label = job["job"];
    if (label.find_first_of(",=") != std::string::npos) {
      return failed("a label of the policy `shares` has no ',' and no '='; rename job '" + label +
                    "'");
    }
    const double share = job["share"];
    const double groups = std::max(1.0, std::round(share * sms / kGroupSms));
    const auto count = share < 1 ? static_cast<uint32_t>(groups * kGroupSms) : 0;
    if (count > 0)
      sizes.append(sizes.empty() ? "" : ",").append(label + "=" + std::to_string(count));
    jobs.push_back({{"job", label}, {"sms", count > 0 ? count : sms}});
  }
  return {};
}

// When each job has what was set, by the programs of its label that are attached.
void say_when(const json& ps, const char* attached, json& jobs) {
  for (json& job : jobs) {
    size_t programs = 0;
    std::string but;
    for (const json& client : ps.value("clients", json::array())) {
      if (client.value("label", "") != job["job"]) continue;
      ++programs;
      if (client.value("mode", "") != "mps") but = "never: it is not under MPS";
      if (const std::string rule = client.value("sms", ""); !rule.empty() && but.empty()) {
        but = std::string(attached) + ", within its rule's sms = \"" + rule + "\"";
      }
    }
    job["programs"] = programs;
    job["when"] = programs == 0 ? "when a program with this label starts"
                  : but.empty() ? attached
                                : but;
  }
}

int show_applied(const json& applied, bool as_json) {
  if (as_json) {
    write_json(applied);
    return kOk;
  }
  for (const json& job : applied["jobs"]) {
    printf("%-20s %3u SMs, %s\n", job["job"].get<std::string>().c_str(), job["sms"].get<uint32_t>(),
           job["when"].get<std::string>().c_str());
  }
  for (const json& job : applied["waiting"]) {
    printf("%-20s waits: no memory for it; do not start it\n", job.get<std::string>().c_str());
  }
  printf("%s\n", applied["note"].get<std::string>().c_str());
  return kOk;
}

// What each job's program is started with.
int show_slices(const json& plan, const json& made, bool as_json) {
  json jobs = json::array();
  for (const json& job : plan["jobs"]) {
    json env = json::object();
    for (const json& slice : made["slices"]) {
      if (slice["start"] == job["start"]) env["CUDA_VISIBLE_DEVICES"] = slice["uuid"];
    }
    if (const double share = job["share"]; share < 1) {
      env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(std::lround(100 * share));
    }
    jobs.push_back({{"job", job["job"]}, {"slice", job["slice"]}, {"environment", env}});
  }
  if (as_json) {
    write_json({{"by", "mig"},
                {"gpu", made["gpu"]},
                {"changed", made["changed"]},
                {"slices", made["slices"]},
                {"jobs", jobs},
                {"waiting", plan["waiting"]}});
    return kOk;
  }
  printf("GPU %u %s %s\n", made["gpu"].get<unsigned>(), made["changed"] ? "now has" : "has",
         plan["layout"].get<std::string>().c_str());
  for (const json& job : jobs) {
    printf("%-20s", job["job"].get<std::string>().c_str());
    for (const auto& [name, value] : job["environment"].items()) {
      printf(" %s=%s", name.c_str(), value.get<std::string>().c_str());
    }
    printf("\n");
  }
  printf(
      "Start each program with this environment. A percentage needs an MPS server of its slice.\n");
  return kOk;
}

// ---- rules ----

// Renamed over the old one, so that nobody reads half of it.
Result<void> write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  const std::string target = error ? path : real.string(), made = target + ".plan";
  std::ofstream out(made);
  out << text;
  out.close();
  if (out) {
    std::filesystem::permissions(made, std::filesystem::status(target, error).permissions(), error);
    std::filesystem::rename(made, target, error);
  }
  if (out && !error) return {};
  std::filesystem::remove(made, error);
  return fail(target + ": cannot be written; run this as root, or put what --rules prints there");
}

// Before the first rule: the first one that matches decides.
std::string with_rules(std::string text, const std::string& rules) {
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  size_t at = std::string::npos;
  if (begin != std::string::npos && end != std::string::npos && begin < end) {
    text.erase(begin, end + kEnd.size() + 1 - begin);
    at = begin;
  } else if (text.starts_with("[[rule]]")) {
    at = 0;
  } else if (const size_t line = text.find("\n[[rule]]"); line != std::string::npos) {
    at = line + 1;
  }
  if (at == std::string::npos) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    at = text.size();
  }
  return text.insert(at, std::string(kBegin) + '\n' + rules + std::string(kEnd) + '\n');
}

// SIGHUP, and what heddled says of the file then.
Answer reload(const std::string& socket, const json& status) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const pid_t pid = status.value("pid", 0);
  if (pid <= 0 || kill(pid, SIGHUP) != 0) {
    return failed("heddled (PID " + std::to_string(pid) + ") takes no signal: " + strerror(errno) +
                  "; run this as root, outside containers");
  }
  while (Clock::now() - begin < std::chrono::seconds(5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Answer now = ask_status(socket);
    if (now.code != kOk) return now;
    const std::chrono::duration<double> since = Clock::now() - begin;
    const json& config = now.json.at("config");
    if (config.value("read_s_ago", 1e9) > since.count()) continue;
    const std::string error = config.value("error", "");
    return error.empty() ? now : failed("heddled refused the rules: " + error);
  }
  return failed("heddled did not read its file within 5 s; look at its log");
}

Answer apply_rules(const std::string& socket, const json& status, const std::string& rules) {
  const std::string file = status.value("config", json::object()).value("file", "");
  if (file.empty()) {
    return failed(
        "heddled has no configuration file; start it with --config FILE, or apply "
        "without --rules");
  }
  const auto before = read_file(file, "run this as heddled's user");
  if (!before) return failed(before.error().message);
  const std::string after = with_rules(*before, rules);
  if (auto done = write_file(file, after); !done) return failed(done.error().message);
  Answer answer = reload(socket, status);
  if (answer.code == kOk) return {kOk, "", file};
  if (auto back = write_file(file, *before); back) {
    reload(socket, status);
    answer.error += "; " + file + " is as it was";
  }
  return answer;
}

}  // namespace

int plan_apply(const PlanOptions& o, const std::string& socket, const ApplyPlan& what,
               bool as_json) {
  const json& plan = what.plan;
  Answer status = ask_status(socket);
  if (what.layout.size() > 1 && !o.allow_mig) {
    return show_error(as_json, failed("this plan has slices: leave out --layout, or let them be "
                                      "made by --allow-mig"));
  }
  if (o.allow_mig) {
    const size_t attached = status.code == kOk ? status.json.value("clients", size_t{0}) : 0;
    const Answer made = make_slices(what.layout, o.device, attached);
    if (made.code != kOk) return show_error(as_json, made);
    if (made.json["mig"]) return show_slices(plan, made.json, as_json);
  }
  if (status.code != kOk) return show_error(as_json, status);
  if (const std::string mode = status.json.value("mode", ""); mode != "mps") {
    return show_error(as_json, failed("shares of the SMs need MPS, and heddled says '" + mode +
                                      "': start an MPS server, with [gpu] mode = \"mps\""));
  }
  json jobs = json::array();
  std::string sizes;
  uint32_t sms = 0;
  Answer answer = sms_of(status.json, what.sms, sms);
  if (answer.code == kOk) answer = sizes_of(plan, sms, jobs, sizes);
  if (answer.code != kOk) return show_error(as_json, answer);
  std::string note;
  if (o.rules) {
    answer = apply_rules(socket, status.json, what.rules);
    if (answer.code == kOk) {
      note = "Written into " + answer.json.get<std::string>() + ", and read by heddled.";
    }
  } else {
    const std::string live = status.json.at("policy").value("name", "");
    if (!takes_sizes(status.json)) {
      answer = failed("the live policy is " + (live.empty() ? "the built-in" : live) +
                      ", which takes no sizes by label; `heddle policy load shares` or mmk first, "
                      "or apply with --rules");
    } else {
      server::Request set;
      set.kind = server::Request::Kind::kPolicySet;
      set.policy = live;
      set.params.emplace_back("sizes", sizes);
      answer = ask(socket, set);
      note =
          "Until heddled restarts. Programs that attached before this policy was live have sets "
          "that may overlap: start these again.";
    }
  }
  if (answer.code != kOk) return show_error(as_json, answer);
  const Answer ps = ask_ps(socket);
  if (ps.code != kOk) return show_error(as_json, ps);
  say_when(ps.json,
           o.rules ? "when it is started again; its share at once" : "from its next launch on",
           jobs);
  return show_applied({{"by", o.rules ? "rules" : "policy"},
                       {"jobs", jobs},
                       {"waiting", plan["waiting"]},
                       {"note", note}},
                      as_json);
}

}  // namespace heddle::cli
