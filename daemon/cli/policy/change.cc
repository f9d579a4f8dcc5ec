#include "daemon/cli/policy/policy.h"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// So many without a fault tell as much as a second does.
constexpr uint64_t kDecisions = 100;
constexpr std::chrono::milliseconds kLookAgain(20);

std::string last_fault(const json& status) {
  for (const json& device : status.value("devices", json::array())) {
    const std::string fault = device.value("policy", json::object()).value("fault", "");
    if (!fault.empty()) return printable(fault);
  }
  return "heddle status shows the last one";
}

// An older daemon does not say what it has decided since: then all of `wait_s` is waited.
bool has_decided(const json& status) {
  const json& policy = status.at("policy");
  if (policy.value("decisions", uint64_t{0}) >= kDecisions &&
      policy.value("faults", uint64_t{0}) == 0) {
    return true;
  }
  return status.value("clients", 1) == 0;  // who could launch anything?
}

// How many launches a policy kept from idle GPUs until the daemon let them go.
uint64_t stalls(const json& status) {
  uint64_t all = 0;
  for (const json& device : status.value("devices", json::array())) {
    all += device.value("stalls", json::object()).value("policy", uint64_t{0});
  }
  return all;
}

bool has_let_go(const json& status) {
  return status.at("policy").value("decisions", uint64_t{1}) > 0;
}

// What of the policy with this hash was seen to fail, "" if nothing.
std::string quarantined(const json& policy, const std::string& hash) {
  const json faulted = policy.value("faulted", json());
  if (!faulted.is_object() || faulted.value("hash", "") != hash) return "";
  const std::string now = policy.value("hash", "");
  return "policy " + printable(faulted.value("name", "")) +
         " was quarantined: " + printable(faulted.value("fault", "")) + "; " +
         (now.empty() ? "the built-in decides" : "the last good generation decides, " + now) +
         "; mend the file, saving it loads it";
}

// What the linter finds in a file, "" if nothing. What cannot be read here, the daemon may.
std::string mistakes_in(const std::string& policy) {
  if (!policy.starts_with('/')) return "";
  const auto loaded = policy::load_policy_file(policy);
  std::string all;
  if (!loaded) return all;
  for (const std::string& mistake : (*loaded)->mistakes()) all += mistake + '\n';
  return all.empty() ? all
                     : all + "nothing was changed; mend that, or load it all the same: --unchecked";
}

}  // namespace

std::string policy_named(const std::string& word) {
  namespace fs = std::filesystem;
  const bool path =
      word.find('/') != std::string::npos || (word.ends_with(".lua") && fs::exists(word));
  return path ? fs::absolute(word).string() : word;
}

int change_policy(const PolicyChange& change) {
  using Clock = std::chrono::steady_clock;
  if (const std::string why = change.unchecked ? "" : mistakes_in(change.request.policy);
      !why.empty()) {
    return show_error(change.as_json, {kFailed, why, {}});
  }
  Answer answer = ask(change.socket, change.request);
  if (answer.code != kOk) return show_error(change.as_json, answer);
  const std::string hash = answer.json.at("policy").value("hash", "");
  const auto end = Clock::now() + std::chrono::duration<double>(change.wait_s);
  std::optional<uint64_t> stalls_before;
  uint64_t stalled = 0;
  for (;;) {
    answer = ask(change.socket, {});
    if (answer.code != kOk) return show_error(change.as_json, answer);
    const json& policy = answer.json.at("policy");
    if (hash.empty()) break;
    if (const std::string why = quarantined(policy, hash); !why.empty()) {
      return show_error(change.as_json, {kFailed, why, {}});
    }
    if (policy.value("hash", "") != hash || has_decided(answer.json)) break;
    if (!stalls_before) stalls_before = stalls(answer.json);
    stalled = has_let_go(answer.json) ? 0 : stalls(answer.json) - *stalls_before;
    if (stalled > 0 || Clock::now() >= end) break;
    std::this_thread::sleep_for(kLookAgain);
  }
  const json policy = answer.json.at("policy");
  if (change.as_json) {
    write_json({{"policy", policy}});
  } else {
    print_policy(std::cout, {{"policy", policy}});
  }
  int status = kOk;
  if (const uint64_t faults = policy.value("faults", uint64_t{0}); faults > 0) {
    std::cerr << "heddle: it faulted " << faults
              << " times, and the built-in decided instead: " << last_fault(answer.json) << '\n';
    if (change.wait_s > 0) status = kFailed;  // else it is chance whether it has faulted yet
  }
  for (const json& promise :
       answer.json.value("config", json::object()).value("unkept", json::array())) {
    std::cerr << "heddle: " << printable(promise) << '\n';
  }
  if (stalled > 0) {
    std::cerr << "heddle: it is live and lets nothing go from an idle GPU: " << stalled
              << " launches stalled; heddle explain says why, heddle policy rollback goes back\n";
    status = kFailed;
  }
  return status;
}

}  // namespace heddle::cli
