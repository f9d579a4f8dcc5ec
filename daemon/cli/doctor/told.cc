// What heddled tells of itself and of its clients that somebody should see to.
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {

using nlohmann::json;
using Level = Finding::Level;

std::vector<Finding> examine_policy(const json& status) {
  const json& p = status.at("policy");
  const std::string name = printable(p.at("name")), error = p.at("error");
  const uint64_t faults = p.value("faults", uint64_t{0});  // not its predecessors'
  if (error.empty() && faults == 0) return {{Level::kOk, "policy", name, ""}};
  if (error.empty()) {
    return {{Level::kWarn, "policy",
             name + " failed " + std::to_string(faults) + " times; the built-in decided instead",
             "heddle status shows the last fault"}};
  }
  if (p.value("faulted", json()).is_object()) {
    return {{Level::kWarn, "policy", name + " runs; " + printable(error),
             "mend the file; saving it loads it"}};
  }
  // Its remedy stands behind "; ". What the configuration names is looked for again at SIGHUP.
  const size_t end = error.find("; ");
  std::string remedy = "mend the file; saving it loads it";
  if (end != std::string::npos) remedy = printable(error.substr(end + 2));
  if (name == "builtin") remedy += ", then send heddled SIGHUP";
  return {{Level::kWarn, "policy",
           name + " runs; the last load failed: " + printable(error.substr(0, end)), remedy}};
}

std::vector<Finding> examine_promises(const json& ps) {
  std::vector<Finding> findings;
  size_t promises = 0;
  for (const json& client : ps.at("clients")) {
    for (const json& device : client.value("devices", json::array())) {
      for (const PromiseText& promise : promise_texts(device)) {
        ++promises;
        if (!promise.broken) continue;
        findings.push_back(
            {Level::kWarn, "promise",
             "client " + client.at("id").dump() + " (pid " + client.at("pid").dump() + ", " +
                 printable(client.at("label")) + "): " + promise.text + promise.by,
             "run auto, the default policy, which keeps it; under it, keep its neighbours on "
             "fewer SMs (sms of their rule)"});
      }
    }
  }
  if (promises > 0 && findings.empty()) {
    findings.push_back({Level::kOk, "promise",
                        promises == 1
                            ? "the promise is kept now"
                            : "all " + std::to_string(promises) + " promises are kept now",
                        ""});
  }
  return findings;
}

std::vector<Finding> examine_kept(const json& status) {
  std::vector<Finding> findings;
  // heddled's texts have their remedy behind "; ".
  const auto warn = [&](const char* topic, const std::string& begin, const std::string& text,
                        const char* otherwise) {
    const size_t end = text.find("; ");
    findings.push_back({Level::kWarn, topic, begin + printable(text.substr(0, end)),
                        end == std::string::npos ? otherwise : printable(text.substr(end + 2))});
  };
  if (const std::string error = status.value("state_error", ""); !error.empty()) {
    warn("state", "quarantines and the history of policies are not kept: ", error,
         "give heddled a directory that it can write");
  }
  const json profiles = status.value("profiles", json::object());
  for (const std::string error : profiles.value("errors", json::array())) {
    warn("state", "a profile: ", error, "see its file");
  }
  const json config = status.value("config", json::object());
  for (const std::string promise : config.value("unkept", json::array())) {
    warn("promise", "", promise, "heddle policy load auto");
  }
  return findings;
}

std::vector<Finding> examine_containers(const json& facts) {
  constexpr double kRecentS = 600;
  std::vector<Finding> findings;
  if (!facts.at("daemon").contains("status")) return findings;
  const json refused = facts.at("daemon").at("status").value("refusals", json::object());
  if (refused.value("count", 0) != 0 && refused.at("last_s_ago") <= kRecentS) {
    const std::string last = refused.at("last");  // "": this asker may not know
    findings.push_back({Level::kWarn, "refused",
                        refused.at("count").dump() +
                            " times heddled refused a program, which then is not held back" +
                            (last.empty() ? "" : "; the last: " + printable(last)),
                        last.empty()
                            ? "root's heddle doctor says who"
                            : "end programs that hold places, or give all the same heddle"});
  }
  for (const json& client : facts.at("daemon").at("ps").at("clients")) {
    if (client.value("clock_ahead_s", 0.0) == 0) continue;
    findings.push_back({Level::kNone, "clock",
                        "client " + client.at("id").dump() + ": " + clock_text(client), ""});
  }
  return findings;
}

// A daemon of another protocol lets none of those go who are attached.
std::vector<Finding> examine_protocol(const json& facts) {
  std::vector<Finding> findings;
  const json& daemon = facts.at("daemon");
  if (daemon.at("status").at("protocol") == facts.at("protocol")) return findings;
  for (const json& client : daemon.at("ps").at("clients")) {
    if (client.value("fail", "open") != "closed") continue;
    findings.push_back({Level::kError, "closed",
                        "pid " + client.at("pid").dump() +
                            " fails closed, and waits for good once heddled speaks this protocol",
                        "end it before heddled is restarted"});
  }
  return findings;
}

}  // namespace heddle::cli
