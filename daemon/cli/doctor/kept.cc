// What heddled cannot keep: its state on disk, and promises that its policy does not ask about.
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {

using nlohmann::json;
using Level = Finding::Level;

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
    warn("promise", "", promise, "load a policy that does");
  }
  return findings;
}

}  // namespace heddle::cli
