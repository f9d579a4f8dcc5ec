// What containers bring: programs for which heddled had no place, and clocks of their own.
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {

using nlohmann::json;
using Level = Finding::Level;

std::vector<Finding> examine_containers(const json& facts) {
  constexpr double kRecentS = 600;
  std::vector<Finding> findings;
  if (!facts.at("daemon").contains("status")) return findings;
  const json refused = facts.at("daemon").at("status").value("refusals", json::object());
  if (refused.value("count", 0) != 0 && refused.at("last_s_ago") <= kRecentS) {
    const std::string last = refused.at("last");  // "": this asker may not know
    findings.push_back(
        {Level::kWarn, "refused",
         refused.at("count").dump() +
             " times heddled had no place for a program, which then is not held back" +
             (last.empty() ? "" : "; the last: " + printable(last)),
         last.empty() ? "root's heddle doctor says who" : "end the programs that hold the places"});
  }
  for (const json& client : facts.at("daemon").at("ps").at("clients")) {
    if (client.value("clock_ahead_s", 0.0) == 0) continue;
    findings.push_back({Level::kNone, "clock",
                        "client " + client.at("id").dump() + ": " + clock_text(client), ""});
  }
  return findings;
}

}  // namespace heddle::cli
