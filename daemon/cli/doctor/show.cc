#include <algorithm>
#include <iostream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;

const char* level_text(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNone:
      return "note";
    case Level::kWarn:
      return "warn";
    case Level::kError:
      return "error";
  }
  return "?";
}

}  // namespace

std::vector<Finding> examine(const json& facts) {
  std::vector<Finding> findings = examine_host(facts);
  const auto add = [&](std::vector<Finding> (*part)(const json&), const json& of) {
    try {
      for (Finding& finding : part(of)) findings.push_back(std::move(finding));
    } catch (const json::exception&) {
      // What a daemon of another release does not say is told once, above.
    }
  };
  add(examine_containers, facts);
  add(examine_memory, facts);
  add(examine_mps, facts);
  const json& daemon = facts.at("daemon");
  if (daemon.at("code") == kOk) {
    add(examine_policy, daemon.at("status"));
    add(examine_promises, daemon.at("ps"));
    add(examine_protocol, facts);
    add(examine_kept, daemon.at("status"));
    add(examine_stops, daemon.at("status"));
    add(examine_mode, daemon.at("status"));
  } else {
    findings.push_back({Level::kNone, "stops", "not known: no heddled answers", ""});
  }
  return findings;
}

int run_doctor(const std::string& socket, bool as_json) {
  const json facts = gather_facts(socket);
  const std::vector<Finding> findings = examine(facts);
  const bool failed = std::any_of(findings.begin(), findings.end(),
                                  [](const Finding& f) { return f.level == Level::kError; });
  json all = json::array();
  for (const Finding& f : findings) {
    all.push_back({{"level", level_text(f.level)},
                   {"topic", f.topic},
                   {"text", f.text},
                   {"remedy", f.remedy}});
    if (as_json) continue;
    std::string level = level_text(f.level), topic = f.topic;
    level.resize(7, ' ');
    topic.resize(std::max<size_t>(topic.size() + 1, 13), ' ');
    std::cout << level << topic << f.text << '\n';
    if (!f.remedy.empty()) std::cout << std::string(20, ' ') << "-> " << f.remedy << '\n';
  }
  if (as_json) {
    write_json({{"findings", all}, {"failed", failed}, {"facts", facts}});
  }
  return failed ? kFailed : kOk;
}

}  // namespace heddle::cli
