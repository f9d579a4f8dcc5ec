
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/policy/policy.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using server::Request;

std::string number(const char* format, double value) {
  char text[48];
  snprintf(text, sizeof text, format, value);
  return text;
}

// "80.0%": of all launches that were let go.
std::string part(const json& client, const char* what) {
  double all = 0;
  for (const char* one : {"alike", "sooner", "later", "unseen"})
    all += client.at(one).get<double>();
  if (all == 0) return "-";
  return number("%.1f%%", 100 * client.at(what).get<double>() / all);
}

std::string waits(const json& client, const char* quantile) {
  return number("%.0f", client.at("live").at(quantile)) + " -> " +
         number("%.0f", client.at("candidate").at(quantile));
}

void print_cost(std::ostream& out, const json& device) {
  const double calls = device.at("calls");
  out << "  " << device.at("calls") << " hooks, "
      << number("%.2f us each", calls > 0 ? device.at("spent_us").get<double>() / calls : 0)
      << number(", %.0f us the longest", device.at("longest_us"))
      << number("; %.2f%% of the time", 100 * device.at("share").get<double>());
  if (device.at("skipped") != 0) {
    out << "; " << device.at("skipped") << " hooks left out, they would have cost more than 5%";
  }
  out << '\n';
}

int show_shadow(const std::string& socket, bool as_json) {
  const Answer answer = ask_for_document(socket, Request::Kind::kPolicyShadowTold);
  if (answer.code != kOk) return show_error(as_json, answer);
  if (as_json) {
    write_json(answer.json);
  } else {
    print_shadow(std::cout, answer.json);
  }
  return answer.json.at("fault") == "" ? kOk : kFailed;
}

int shadow(const ShadowOptions& options, const std::string& socket, bool as_json) {
  if (options.file.empty() && !options.stop) return show_shadow(socket, as_json);
  Request request;
  request.kind = options.stop ? Request::Kind::kPolicyShadowStop : Request::Kind::kPolicyShadow;
  request.policy = policy_named(options.file);
  const Answer answer = ask(socket, request);
  if (answer.code != kOk) return show_error(as_json, answer);
  if (options.stop) return show_shadow(socket, as_json);
  if (as_json) {
    write_json(answer.json);
  } else {
    std::cout << printable(answer.json.at("shadow")) << " ("
              << answer.json.at("hash").get<std::string>() << ") runs beside "
              << printable(answer.json.at("live"))
              << ", and decides nothing; heddle policy shadow shows what it would do\n";
  }
  return kOk;
}

}  // namespace

void print_shadowed_clients(std::ostream& out, const json& clients) {
  std::vector<Row> rows{{"CLIENT", "PRIO", "ASKED", "ALIKE", "SOONER", "LATER", "UNSEEN",
                         "WAIT P50 us", "P99 us", "ALLOWED"}};
  for (const json& c : clients) {
    const bool others = c.at("id") == 0;
    const std::string label = c.at("label");
    uint64_t asked = 0;
    for (const char* one : {"alike", "sooner", "later", "unseen"})
      asked += c.at(one).get<uint64_t>();
    const std::string live = c.at("live_allowed"), mine = c.at("allowed");
    const std::string allowed = live == mine ? live : live + " -> " + mine;
    rows.push_back(
        {others
             ? "others"
             : c.at("id").dump() + " " +
                   printable(label.empty() ? c.at("name").get<std::string>() : label).substr(0, 20),
         others ? "-" : "Q" + c.at("priority").dump(), std::to_string(asked), part(c, "alike"),
         part(c, "sooner"), part(c, "later"), part(c, "unseen"), waits(c, "p50_us"),
         waits(c, "p99_us"), c.at("there") == true ? allowed : "gone"});
  }
  print_table(out, rows);
}

void print_shadow(std::ostream& out, const json& shadow) {
  out << printable(shadow.at("name")) << " (" << shadow.at("hash").get<std::string>() << ") beside "
      << printable(shadow.at("live").at("name")) << ", generation "
      << shadow.at("live").at("generation");
  const std::string ended = shadow.at("ended");
  out << (ended.empty() ? "" : "; it has ended: " + printable(ended)) << '\n';
  if (shadow.at("fault") != "") out << "  fault: " << printable(shadow.at("fault")) << '\n';
  for (const json& device : shadow.at("devices")) {
    out << "device " << device.at("device") << ", " << number("%.1f s", device.at("seconds"))
        << ": launches that asked, live -> candidate\n";
    print_shadowed_clients(out, device.at("clients"));
    print_cost(out, device);
    for (const json& said : device.at("policy").value("said", json::array())) {
      out << "  " << said.at("verdict").get<std::string>() << ' ' << printable(said.at("reason"))
          << ": " << said.at("count") << " times\n";
    }
  }
  if (shadow.at("devices").empty()) out << "no client has come to a GPU yet\n";
}

void add_policy_shadow(CLI::App& policy, ShadowOptions& options, const std::string& socket,
                       const bool& as_json, int& exit_code) {
  CLI::App* beside = policy.add_subcommand(
      "shadow",
      "Ask a candidate beside what runs, and do nothing of it; without FILE: what it "
      "would have done");
  auto* file =
      beside->add_option("file", options.file, "a name of the policy directory, or a path");
  beside->add_flag("--stop", options.stop, "end it, and show what it would have done")
      ->excludes(file);
  beside->callback([&] { exit_code = shadow(options, socket, as_json); });
  CLI::App* promote = policy.add_subcommand(
      "promote", "Make the candidate live; it goes back by itself if it faults or slows others");
  promote
      ->add_option("--slowdown", options.slowdown_max,
                   "back if runs take so many times what they take alone (1.2)")
      ->check(between(1.001, 100));
  promote->add_option("--watch", options.watch_s, "for so long; then it stays (10m)")
      ->transform(as_seconds())
      ->check(between(0.1, 30 * kDayS));
  promote->add_option("--wait", options.wait_s, "as for load")->check(between(0, 3600));
  promote->callback([&] {
    Request request;
    request.kind = Request::Kind::kPolicyPromote;
    request.slowdown_max = options.slowdown_max;
    request.for_s = options.watch_s;
    exit_code = change_policy({socket, request, options.wait_s, as_json});
  });
}

}  // namespace heddle::cli
