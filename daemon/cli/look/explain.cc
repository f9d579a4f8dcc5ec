#include "daemon/cli/look/look.h"

#include <algorithm>
#include <iostream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// Not `duration`, which top.cc has of a number: compiled as one, the two would be overloads.
std::string told_time(const json& us) {
  if (us.is_string()) return us;  // "unlimited"
  char text[32];
  const double value = us.get<double>();
  if (value < 1e3) {
    snprintf(text, sizeof text, "%.0f us", value);
  } else if (value < 1e6) {
    snprintf(text, sizeof text, "%.1f ms", value / 1e3);
  } else {
    snprintf(text, sizeof text, "%.1f s", value / 1e6);
  }
  return text;
}

// "gapfill, generation 7", or who it was that spoke.
std::string speaker(const json& held, const json& device) {
  if (held.at("by") != "policy") return "the built-in";
  if (held.at("generation").is_null()) return "an earlier policy";
  return printable(device.at("policy")) + ", generation " + held.at("generation").dump();
}

std::string saw(const json& held) {
  std::string text;
  for (const auto& [key, name] : {std::pair("gap_us", "gap "), {"inflight_us", "in flight "}}) {
    if (const json& us = held.at(key); us != "not asked") text += name + told_time(us) + ", ";
  }
  return text + held.at("waiting").dump() + " waiting";
}

void print_now(std::ostream& out, const json& wait, const json& device) {
  out << "  waits now, for " << told_time(wait.at("waited_us")) << ": "
      << printable(wait.at("kernel"));
  if (wait.at("placed") == true) out << ", in queue " << printable(wait.at("queue"));
  out << '\n';
  const json& held = wait.at("held");
  if (!held.is_null() && held.at("by") == "policy") {
    const std::string reason = held.at("reason");
    out << "    " << told_time(held.at("us_ago")) << " ago dispatch of " << speaker(held, device)
        << " said IDLE" << (reason.empty() ? ", without a reason" : ": " + printable(reason))
        << "\n    it saw: " << saw(held) << '\n';
  }
  const bool early = wait.value("early", false);
  if (early || wait.at("placed") == false) {
    out << (wait.value("withheld", false) ? "    its rule holds it back: "
            : early                       ? "    the core holds it back: "
                                          : "    the built-in serves it: ")
        << printable(wait.at("why")) << '\n';
  }
}

void print_past(std::ostream& out, const json& wait, const json& device) {
  out << "  " << told_time(wait.at("us_ago")) << " ago, waited " << told_time(wait.at("waited_us"))
      << ": " << printable(wait.at("kernel")) << '\n';
  if (const json& held = wait.at("held"); !held.is_null()) {
    const std::string reason = held.at("reason");
    out << "    held by " << speaker(held, device)
        << (reason.empty() ? "" : ": " + printable(reason)) << " (" << saw(held) << ")\n";
  }
  if (wait.value("withheld", false)) {
    out << "    held by its rule: its client had used all that it may of a channel\n";
  }
  if (wait.value("early", false)) {
    out << "    held by the core: a more important client's pause had just begun\n";
  }
  const std::string reason = wait.at("reason");
  out << "    let go by the " << wait.at("let_go_by").get<std::string>()
      << (reason.empty() ? "" : ": " + printable(reason)) << '\n';
}

// Empty: all is known of the channels that a rule limits.
std::string measure_text(const json& client, const json& device) {
  const json ceilings = device.value("ceilings", json::array());
  const bool unknown = std::any_of(ceilings.begin(), ceilings.end(),
                                   [](const json& c) { return c.at("unknown") > 0; });
  if (!unknown) return {};
  const std::string command = printable(client.value("command", ""));
  return "to measure what is unknown: heddle profile collect-metrics -- " +
         (command.empty() ? "PROGRAM" : command) + "; without Nsight Compute, heddle profile probe";
}

// Empty: its memory is on the GPU.
std::string residence_text(const json& client) {
  const std::string at = client.value("memory_at", "resident");
  if (at == "leaving") return "its memory is on its way to the host: others need the room";
  if (at == "parked") return "its memory is on the host: its next call brings it back";
  if (at == "waits for room") return "waits for its memory, for which others leave no room";
  return at == "returning" ? "waits for its memory, which is on its way back" : "";
}

}  // namespace

uint64_t client_meant(const json& ps, const std::string& who) {
  for (const char* key : {"pid", "id", "label"}) {
    uint64_t found = 0;
    int count = 0;
    for (const json& client : ps.at("clients")) {
      const json& value = client.at(key);
      if ((value.is_string() ? value.get<std::string>() : value.dump()) != who) continue;
      found = client.at("id");
      ++count;
    }
    if (count == 1) return found;
    if (count > 1) return 0;
  }
  return 0;
}

void print_explanation(std::ostream& out, const json& client, const json& answer) {
  for (const json& device : answer.at("devices")) {
    out << "client " << client.at("id") << ' ' << printable(client.at("label")) << ", pid "
        << client.at("pid") << ", " << client.at("priority_text").get<std::string>() << ", GPU "
        << device.at("device") << ": " << device.at("granted") << " grants, " << device.at("waited")
        << " of them after a wait\n";
    for (const json& own : client.value("devices", json::array())) {
      if (own.at("device") != device.at("device")) continue;
      for (const PromiseText& promise : promise_texts(own)) {
        out << "  " << promise.text << promise.by << '\n';
      }
      for (const std::string& text :
           {held_text(client, own), stops_text(client, own), ceilings_text(own),
            measure_text(client, own), residence_text(client)}) {
        if (!text.empty()) out << "  " << text << '\n';
      }
    }
    for (const json& wait : device.at("now")) print_now(out, wait, device);
    if (device.at("now").empty()) out << "  waits for nothing now\n";
    for (const json& wait : device.at("past")) print_past(out, wait, device);
  }
}

int explain(const std::string& socket, const std::string& who, bool as_json) {
  const Answer ps = ask_ps(socket);
  if (ps.code != kOk) return show_error(as_json, ps);
  server::Request request;
  request.kind = server::Request::Kind::kExplain;
  request.client = client_meant(ps.json, who);
  if (request.client == 0) {
    return show_error(as_json, {kFailed,
                                "explain: '" + printable(who) + "' is not the PID, ID or label " +
                                    "of one client; see heddle ps",
                                {}});
  }
  const Answer answer = ask(socket, request);
  if (answer.code != kOk) return show_error(as_json, answer);
  if (as_json) {
    write_json(answer.json);
    return kOk;
  }
  const json& clients = ps.json.at("clients");
  const auto is_it = [&](const json& client) { return client.at("id") == request.client; };
  print_explanation(std::cout, *std::find_if(clients.begin(), clients.end(), is_it), answer.json);
  return kOk;
}

}  // namespace heddle::cli
