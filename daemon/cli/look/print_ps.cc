// `heddle ps`: a line for each client and GPU that fits 120 columns, and notes on what does not.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// Cut to its column, with a sign that it was.
std::string cut(std::string text, size_t width) {
  if (text.size() > width) text = text.substr(0, width - 1) + '~';
  return text;
}

// Six characters at most.
std::string count_text(const json& value) {
  const double count = value.get<double>();
  char text[32];
  if (count < 1e6) return value.dump();
  const bool giga = count >= 999.5e6;
  snprintf(text, sizeof text, "%.4g%c", count / (giga ? 1e9 : 1e6), giga ? 'G' : 'M');
  return text;
}

std::string seconds_text(const json& us) {
  const double s = us.get<double>() / 1e6;
  return fixed(s < 9999 ? "%.1f" : "%.0f", s);
}

std::string window_text(const json& window) {
  return window.is_string() ? window.get<std::string>() : count_text(window);
}

// A process of another PID namespace has no number here.
std::string pid_text(const json& client) {
  return client.at("pid") == 0 ? "?" : client.at("pid").dump();
}

std::string added_ms(const json& device) {
  if (device.at("added_us_max").is_null()) return "none";
  const double us = device.at("added_us_max");
  return us == 0 ? "-" : fixed("%.2f", us / 1e3) + (device.at("gaps_exceeded") == 0 ? "" : "!");
}

// How far the measurement stage is, by its runs; short ones go on for a while.
std::string profile_text(const json& device) {
  if (device.at("profiled")) return "yes";
  const double wanted = std::max(1.0, device.at("measure_runs").get<double>());
  return fixed("%.0f%%", std::min(99.0, 100 * device.at("runs").get<double>() / wanted));
}

std::string state_of(const json& client, const json& device) {
  if (!client.at("managed")) return "free";
  if (!client.at("connected")) return "closed";
  return device.at("active") ? "active" : "idle";
}

Row row_of(const json& client, const json& device) {
  const std::string exe = client.at("exe");
  return {client.at("id").dump(),
          pid_text(client),
          "Q" + client.at("priority").dump(),
          cut(printable(std::filesystem::path(exe).filename().string()), 11),
          cut(printable(client.at("label")), 9),
          device.at("device").dump(),
          window_text(device.at("window")),
          device.at("queued").dump(),
          count_text(device.at("launches")),
          count_text(device.at("granted")),
          seconds_text(device.at("gpu_us")),
          added_ms(device),
          memory_text(device),
          profile_text(device),
          cut(printable(client.at("rule")), 9),
          state_of(client, device)};
}

// What a client that uses no GPU yet would have.
json nowhere() {
  return {{"device", 0},   {"active", false},   {"window", "lease"}, {"queued", 0},
          {"launches", 0}, {"granted", 0},      {"gpu_us", 0},       {"added_us_max", 0},
          {"runs", 0},     {"measure_runs", 0}, {"profiled", false}};
}

// What is worth a line of its own.
void print_notes(std::ostream& out, const json& client) {
  const std::string who = "client " + client.at("id").dump() + ": ";
  const json& self = client.at("counters").at("self");
  std::string reasons;
  for (const auto& [reason, count] : self.items()) {
    if (count != 0) reasons += (reasons.empty() ? "" : ", ") + reason + " " + count.dump();
  }
  if (!reasons.empty()) out << who << "launches that waited for no grant: " << reasons << '\n';
  if (const std::string pod = pod_text(client); !pod.empty()) out << who << pod << '\n';
  if (client.at("unseen") != "") {
    out << who << "rules cannot go by its " << printable(client.at("unseen")) << '\n';
  }
  if (client.value("clock_ahead_s", 0.0) != 0) out << who << clock_text(client) << '\n';
  if (client.at("managed") == false) {
    out << who << "unmanaged: " << printable(client.at("reason")) << '\n';
  }
  const std::string rule = rule_text(client);
  if (client.at("rule").get<std::string>().size() > 9 || rule.find('(') != rule.npos) {
    out << who << "rule " << rule << '\n';
  }
  std::string held;
  for (const json& device : client.at("devices")) {
    if (held.empty()) held = held_text(client, device);
    if (device.value("gaps_exceeded", json(0)) != 0) {
      out << who << "others may add to one of its gaps " << added_text(device) << '\n';
    }
    for (const PromiseText& promise : promise_texts(device)) {
      out << who << promise.text << promise.by << '\n';
    }
    if (const std::string uses = ceilings_text(device); !uses.empty()) {
      out << who << uses << '\n';
    }
    if (device.value("memory_refused", 0.0) > 0) {
      out << who << count_text(device.at("memory_refused"))
          << " allocations refused by its limit\n";
    }
  }
  if (!held.empty()) out << who << held << '\n';
}

// One word where all are alike, as they mostly are.
void print_modes(std::ostream& out, const json& clients) {
  std::set<std::string> modes;
  for (const json& client : clients) modes.insert(client.at("mode"));
  if (modes.size() == 1) {
    out << "mode: " << *modes.begin() << '\n';
    return;
  }
  for (const json& client : clients) {
    out << "client " << client.at("id") << ": mode " << client.at("mode").get<std::string>()
        << '\n';
  }
}

}  // namespace

void print_ps(std::ostream& out, const json& answer) {
  json clients = answer.at("clients");
  std::sort(clients.begin(), clients.end(), [](const json& a, const json& b) {
    const auto rank = [](const json& client) {
      return std::tuple(client.value("hidden", false), client.at("priority").get<int>(),
                        client.at("id").get<uint64_t>());
    };
    return rank(a) < rank(b);
  });
  std::vector<Row> rows{{"ID", "PID", "PRI", "NAME", "LABEL", "GPU", "WIN us", "WAIT", "LAUNCH",
                         "GRANTS", "GPU s", "ADD ms", "MEM GiB", "PROF", "RULE", "STATE"}};
  for (const json& client : clients) {
    json devices = client.at("devices");
    if (devices.empty()) devices.push_back(nowhere());
    for (const json& device : devices) rows.push_back(row_of(client, device));
  }
  print_table(out, rows, 1);
  if (answer.at("truncated") == true) {
    out << "(of " << answer.at("total") << " clients: this heddled tells of no more; restart it)\n";
  }
  print_modes(out, clients);
  for (const json& client : clients) print_notes(out, client);
  for (const json& process : answer.at("unattached")) {
    out << "not attached, and so not held back: pid " << process.at("pid") << ' '
        << printable(process.at("exe")) << "; start it with heddle run\n";
  }
}

}  // namespace heddle::cli
