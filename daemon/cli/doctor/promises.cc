// Promises of rules: whom others slow by more than they may.
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {

using nlohmann::json;
using Level = Finding::Level;

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
             "run a policy that keeps it, such as combined, or auto for a p99; under one, keep "
             "its neighbours on fewer SMs (sms of their rule)"});
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

}  // namespace heddle::cli
