#include "daemon/cli/look/look.h"

#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/policy/hook_times.h"
#include "daemon/server/metrics.h"
#include "daemon/server/page_server.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Labels = std::vector<std::pair<const char*, std::string>>;

// Their values may be any bytes that a program chose, and the page may be read on a terminal.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text.empty() ? "" : printable(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string labels_text(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text += (text.empty() ? "{" : ",") + std::string(name) + "=\"" + escaped(value) + '"';
  }
  return text.empty() ? "" : text + '}';
}

std::string number(double value) {
  if (std::isinf(value)) return "+Inf";
  char text[32];
  snprintf(text, sizeof text, "%.17g", value);
  double again = 0;
  for (int digits = 6; digits < 17; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (sscanf(text, "%lf", &again) == 1 && again == value) break;
  }
  return text;
}

// Samples by metric: those of one stand together, whoever they are of.
class Page {
 public:
  void add(const std::string& name, const char* type, const std::string& help, const Labels& labels,
           double value, const char* suffix = "") {
    Family& family = families_[name];
    if (family.samples.empty()) {
      order_.push_back(name);
      family.head = "# HELP " + name + ' ' + help + ".\n# TYPE " + name + ' ' + type + '\n';
    }
    family.samples += name + suffix + labels_text(labels) + ' ' + number(value) + '\n';
  }

  // A row of a table: `name` in its unit becomes prefix_name_seconds, with _total if it is counted.
  void add(const char* prefix, const server::MetricInfo& metric, const json& counted,
           const Labels& labels) {
    const json& found = counted.at(metric.name);
    const double value = found.is_null() ? core::kUnlimitedUs : found.get<double>();
    std::string name = metric.name;
    const bool timed = std::strcmp(metric.unit, "us") == 0;
    if (const size_t unit = name.find("_us"); timed && unit != name.npos) name.erase(unit, 3);
    if (timed) name += "_seconds";
    const bool counter = metric.type == server::MetricType::kCounter;
    // What is not counted must not end so: sm_total.
    if (!counter && name.ends_with("_total")) name.replace(name.size() - 6, 6, "s");
    add(prefix + name + (counter ? "_total" : ""), counter ? "counter" : "gauge", metric.help,
        labels, timed ? value / 1e6 : value);
  }
  template <class Of, size_t N>
  void add_table(const char* prefix, const server::Metric<Of> (&table)[N], const json& counted,
                 const Labels& labels) {
    for (const server::MetricInfo& metric : table) add(prefix, metric, counted, labels);
  }

  std::string text() const {
    std::string all;
    for (const std::string& name : order_) {
      const Family& family = families_.at(name);
      all += family.head + family.samples;
    }
    return all;
  }

 private:
  struct Family {
    std::string head, samples;
  };
  std::map<std::string, Family> families_;
  std::vector<std::string> order_;
};

Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

// {counts, sum_us}: the last of so many buckets has no bound, and empty ones at the end are left
// out.
void add_histogram(Page& page, const std::string& name, const char* help, const json& told,
                   const Labels& labels, size_t buckets, double (*bound_s)(size_t)) {
  const json counts = told.value("counts", json::array());
  double sum = 0;
  for (size_t i = 0; i + 1 < buckets; ++i) {
    if (i < counts.size()) sum += counts[i].get<double>();
    page.add(name, "histogram", help, with(labels, "le", number(bound_s(i))), sum, "_bucket");
  }
  if (counts.size() == buckets) sum += counts.back().get<double>();
  page.add(name, "histogram", help, with(labels, "le", "+Inf"), sum, "_bucket");
  page.add(name, "histogram", help, labels, told.value("sum_us", 0.0) / 1e6, "_sum");
  page.add(name, "histogram", help, labels, sum, "_count");
}

void add_waits(Page& page, const json& waits, const Labels& labels) {
  add_histogram(page, "heddle_client_wait_seconds", "How long launches waited for their grants",
                waits, labels, core::Waits::kBuckets,
                [](size_t i) { return core::Waits::bound_us(i) / 1e6; });
}

// Of the policy that runs on a GPU: each hook that was called.
void add_hooks(Page& page, const json& policy, const std::string& gpu) {
  for (const json& hook : policy.value("hooks", json::array())) {
    const Labels labels{
        {"policy", policy.at("name")}, {"hook", hook.at("hook")}, {"gpu_uuid", gpu}};
    add_histogram(page, "heddle_policy_hook_seconds", "How long the policy's hooks took", hook,
                  labels, policy::HookTimes::kBuckets, [](size_t i) {
                    return static_cast<double>(policy::HookTimes::bound_ns(i)) / 1e9;
                  });
  }
}

void add_client(Page& page, const json& client, const std::map<int, std::string>& gpus) {
  const std::string cgroup = client.value("cgroup", "");
  Labels who{{"client", client.at("id").dump()},
             {"pid", client.at("pid").dump()},
             {"label", client.at("label")},
             {"priority", client.at("priority").dump()},
             {"container_id", container_id_of(cgroup)},
             {"pod_uid", pod_uid_of(cgroup)}};
  const json pod = client.value("pod", json::object());
  for (const char* name : {"namespace", "pod", "container"}) {
    if (pod.contains(name)) who.emplace_back(name, pod[name]);
  }
  const json& counters = client.at("counters");
  page.add("heddle_program_managed", "gauge", "1: the program's launches are scheduled", who,
           client.at("managed") == true ? 1 : 0);
  page.add_table("heddle_program_", server::kClientMetrics, counters, who);
  for (const auto& row : server::kSelfMetrics) {
    page.add("heddle_program_self_launches_total", "counter",
             "Launches that waited for no grant, by reason", with(who, "reason", row.name),
             counters.at("self").value(row.name, 0.0));
  }
  for (const json& device : client.at("devices")) {
    const auto gpu = gpus.find(device.at("device").get<int>());
    const Labels on = with(who, "gpu_uuid", gpu != gpus.end() ? gpu->second : "");
    page.add_table("heddle_client_", server::kClientDeviceMetrics, device, on);
    page.add("heddle_client_active", "gauge", "1: it has work, or had some a moment ago", on,
             device.at("active") == true ? 1 : 0);
    page.add("heddle_client_gated", "gauge", "1: its launches wait until they are let go", on,
             device.at("allowed") == "gate" ? 1 : 0);
    add_waits(page, device.value("waits", json::object()), on);
  }
}

void add_policy(Page& page, const json& policy) {
  const Labels who{{"name", policy.at("name")},
                   {"hash", policy.at("hash")},
                   {"generation", policy.value("generation", json(0)).dump()}};
  page.add("heddle_policy_info", "gauge", "The generation that runs", who, 1);
  page.add_table("heddle_policy_", server::kPolicyMetrics, policy, {});
  page.add("heddle_policy_error", "gauge", "1: the policy's file could not be loaded, or faulted",
           {}, policy.at("error") == "" ? 0 : 1);
  page.add("heddle_policy_quarantined", "gauge", "Policies that faulted too often", {},
           static_cast<double>(policy.value("quarantined", json::array()).size()));
}

constexpr const char* kUp = "heddle_up";
constexpr const char* kUpHelp = "1: the daemon answers";

// The page, whatever the daemon does.
std::string page_now(const std::string& socket) {
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  const Answer status = ask(socket, request);
  const Answer ps = status.code == kOk ? ask_ps(socket) : status;
  if (ps.code != kOk) return prometheus_down();
  try {
    return prometheus_text(status.json, ps.json);
  } catch (const json::exception&) {  // a daemon of another release
    return prometheus_down();
  }
}

int fail_with(const std::string& what, ExitCode code) {
  std::cerr << "heddle: metrics: " << what << '\n';
  return code;
}

// Anybody may ask the daemon: whoever serves strangers needs no more than that, unless they are to
// read whose client each is.
bool drop_privileges() {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) return true;
  return setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0;
}

int serve(const MetricsOptions& options) {
  Result<std::unique_ptr<server::PageServer>> made = server::PageServer::make(
      options.listen, "/metrics", "text/plain; version=0.0.4; charset=utf-8",
      [socket = options.socket] { return page_now(socket); });
  if (!made) return fail_with(made.error().message, kFailed);
  if (!options.all_users && !drop_privileges()) {
    return fail_with("cannot give up root's privileges; run it as another user", kFailed);
  }
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  if (const Answer first = ask(options.socket, request); first.code == kRefused) {
    return show_error(false, first);
  }
  std::cout << "serving http://" << (*made)->address() << "/metrics" << std::endl;
  (*made)->run();
  return kOk;
}

}  // namespace

std::string pod_uid_of(const std::string& cgroup) {
  constexpr size_t kLength = 36;
  for (size_t at = cgroup.find("pod"); at != cgroup.npos; at = cgroup.find("pod", at + 1)) {
    std::string uid = cgroup.substr(at + 3, kLength);
    std::replace(uid.begin(), uid.end(), '_', '-');  // as systemd's units have it
    bool fits = uid.size() == kLength;
    for (size_t i = 0; fits && i < kLength; ++i) {
      const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
      fits = dash ? uid[i] == '-' : is_hex(uid[i]);
    }
    if (fits) return uid;
  }
  return "";
}

std::string prometheus_down() {
  Page page;
  page.add(kUp, "gauge", kUpHelp, {}, 0);
  return page.text();
}

std::string prometheus_text(const json& status, const json& ps) {
  Page page;
  page.add(kUp, "gauge", kUpHelp, {}, 1);
  page.add("heddle_build_info", "gauge", "The daemon's release",
           {{"version", status.at("version")}}, 1);
  const json config = status.value("config", json::object());
  page.add("heddle_config_error", "gauge",
           "1: the configuration was refused, the old one is in force", {},
           config.value("error", "") == "" ? 0 : 1);
  page.add("heddle_config_restart_needed", "gauge",
           "1: a change of the configuration awaits a restart", {},
           config.value("needs_restart", json::array()).empty() ? 0 : 1);
  page.add("heddle_uptime_seconds", "gauge", "Time since the daemon began", {},
           status.at("uptime_s").get<double>());
  page.add("heddle_bypass", "gauge", "1: every launch runs freely, no policy is asked", {},
           status.at("bypass") == true ? 1 : 0);
  page.add("heddle_clients", "gauge", "Programs that are attached", {},
           status.at("clients").get<double>());
  page.add("heddle_clients_shown", "gauge", "Of these, those with metrics of their own", {},
           static_cast<double>(ps.at("clients").size()));
  page.add_table("heddle_daemon_", server::kDaemonMetrics, status.at("counters"), {});
  add_policy(page, status.at("policy"));
  std::map<int, std::string> gpus;
  for (const json& device : status.at("devices")) {
    const std::string uuid = gpus[device.at("index").get<int>()] = device.value("uuid", "");
    page.add_table("heddle_gpu_", server::kDeviceGauges, device, {{"gpu_uuid", uuid}});
    page.add_table("heddle_gpu_", server::kDeviceMetrics, device.at("stats"), {{"gpu_uuid", uuid}});
    if (const json can_stop = device.value("can_stop", json()); can_stop.is_boolean()) {
      page.add("heddle_gpu_can_stop", "gauge",
               "1: kernels that run there can be stopped. Missing: the GPU was not asked",
               {{"gpu_uuid", uuid}}, can_stop.get<bool>() ? 1 : 0);
    }
    for (const char* by : {"policy", "client", "gpu"}) {
      page.add("heddle_gpu_stalls_total", "counter",
               "Launches that the starvation bound let go although the GPU could have run them, by "
               "who held it",
               {{"gpu_uuid", uuid}, {"by", by}},
               device.value("stalls", json::object()).value(by, 0.0));
    }
    add_hooks(page, device.value("policy", json::object()), uuid);
  }
  for (const json& client : ps.at("clients")) add_client(page, client, gpus);
  return page.text();
}

int run_metrics(const MetricsOptions& options) {
  if (!options.listen.empty()) return serve(options);
  const std::string page = page_now(options.socket);
  if (options.textfile.empty()) {
    std::cout << page;
  } else if (const Result<void> written = replace_file(options.textfile, page, 0644); !written) {
    return fail_with(written.error().message, kFailed);
  }
  return page == prometheus_down() ? kNoDaemon : kOk;
}

}  // namespace heddle::cli
