// `heddle ps`: a line of at most 80 columns for each client and GPU. Notes on them are for -v.
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

constexpr size_t kLabel = 3;  // its place in a row

// Cut in the middle, with a sign that it was: names of one kind differ at their ends.
std::string cut_middle(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t tail = width / 2;
  return text.substr(0, width - tail - 1) + '~' + text.substr(text.size() - tail);
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

// Five characters at most, for three years.
std::string seconds_text(const json& us) {
  const double s = us.get<double>() / 1e6;
  if (s < 999.95) return fixed("%.1f", s);
  return s < 99'999.5 ? fixed("%.0f", s) : fixed("%.0fk", s / 1e3);
}

// A process of another PID namespace has no number here.
std::string pid_text(const json& client) {
  return client.at("pid") == 0 ? "?" : client.at("pid").dump();
}

std::string added_ms(const json& device) {
  if (device.at("added_us_max").is_null()) return "none";
  const double ms = device.at("added_us_max").get<double>() / 1e3;
  if (ms == 0) return "-";
  const std::string over = device.at("gaps_exceeded") == 0 ? "" : "!";
  return fixed(ms < 99.995 ? "%.2f" : ms < 99'999.5 ? "%.0f" : "%.0e", ms) + over;
}

// How far the measurement stage is, by its runs; short ones go on for a while.
std::string profile_text(const json& device) {
  if (device.at("profiled")) return "measured";
  const double wanted = std::max(1.0, device.at("measure_runs").get<double>());
  return fixed("measured to %.0f %%",
               std::min(99.0, 100 * device.at("runs").get<double>() / wanted));
}

// Its state, and whether that is as somebody wanted: -v says what is not.
std::string state_of(const json& client, const json& device) {
  const std::vector<PromiseText> promises = promise_texts(device);
  const bool wrong =
      client.at("managed") == false || client.at("unseen") != "" ||
      client.at("counters").at("self").value("forced", 0.0) > 0 ||
      device.value("memory_refused", 0.0) > 0 ||
      std::any_of(promises.begin(), promises.end(), [](const auto& p) { return p.broken; });
  const std::string memory_at = client.value("memory_at", "resident");
  const std::string state = client.at("managed") == false     ? "free"
                            : client.at("connected") == false ? "closed"
                            : memory_at != "resident"         ? memory_at
                            : device.at("active")             ? "active"
                                                              : "idle";
  return state + (wrong ? "!" : "");
}

std::string program_of(const json& client) {
  return printable(std::filesystem::path(client.at("exe").get<std::string>()).filename().string());
}

// The label of who has none is the program's name.
Row row_of(const json& client, const json& device) {
  const std::string label = client.at("label");
  return {client.at("id").dump(),
          pid_text(client),
          "Q" + client.at("priority").dump(),
          label.empty() ? program_of(client) : printable(label),
          device.at("device").dump(),
          device.at("allowed"),
          device.at("queued").dump(),
          count_text(device.at("launches")),
          seconds_text(device.at("gpu_us")),
          added_ms(device),
          memory_text(device),
          state_of(client, device)};
}

// Labels have the room that the longest of the other cells leave.
void cut_labels(std::vector<Row>& rows) {
  size_t others = 0;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    size_t widest = 0;
    for (const Row& row : rows) widest = std::max(widest, row[i].size());
    if (i != kLabel) others += widest + 1;
  }
  const size_t head = rows[0][kLabel].size();
  const size_t room = std::max(head, kColumns - std::min(others, kColumns));
  for (Row& row : rows) row[kLabel] = cut_middle(row[kLabel], room);
}

// What a client that uses no GPU yet would have.
json nowhere() {
  return {{"device", 0},   {"active", false},   {"allowed", "lease"}, {"queued", 0},
          {"launches", 0}, {"granted", 0},      {"gpu_us", 0},        {"added_us_max", 0},
          {"runs", 0},     {"measure_runs", 0}, {"profiled", false}};
}

// What -v says of a client, and of each of its GPUs.
void print_notes(std::ostream& out, const json& client) {
  const std::string who = "client " + client.at("id").dump() + ": ";
  const json& self = client.at("counters").at("self");
  out << who << program_of(client) << ", rule " << rule_text(client);
  for (const json& device : client.at("devices")) {
    out << "; on GPU " << device.at("device") << " grants " << count_text(device.at("granted"))
        << ", " << profile_text(device);
  }
  out << '\n';
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
  std::string held;
  for (const json& device : client.at("devices")) {
    if (held.empty()) held = held_text(client, device);
    if (device.at("added_us_max") != 0) out << who << added_text(device) << '\n';
    for (const PromiseText& promise : promise_texts(device)) {
      out << who << promise.text << promise.by << '\n';
    }
    if (const std::string uses = ceilings_text(device); !uses.empty()) {
      out << who << uses << '\n';
    }
    if (const std::string stops = stops_text(client, device); !stops.empty()) {
      out << who << stops << '\n';
    }
    if (device.value("memory_refused", 0.0) > 0) {
      out << who << count_text(device.at("memory_refused"))
          << " allocations refused by its limit\n";
    }
  }
  if (!held.empty()) out << who << held << '\n';
}

// One word where all are alike, as they mostly are; else each client's with `notes`.
void print_modes(std::ostream& out, const json& clients, bool notes) {
  std::set<std::string> modes;
  for (const json& client : clients) modes.insert(client.at("mode"));
  std::string words;
  for (const std::string& mode : modes) words += (words.empty() ? "mode: " : ", ") + mode;
  if (!modes.empty()) out << words << '\n';
  if (modes.size() < 2 || !notes) return;
  for (const json& client : clients) {
    out << "client " << client.at("id") << ": mode " << client.at("mode").get<std::string>()
        << '\n';
  }
}

void print_all(std::ostream& out, const json& answer, bool notes) {
  json clients = answer.at("clients");
  std::sort(clients.begin(), clients.end(), [](const json& a, const json& b) {
    const auto rank = [](const json& client) {
      return std::tuple(client.value("hidden", false), client.at("priority").get<int>(),
                        client.at("id").get<uint64_t>());
    };
    return rank(a) < rank(b);
  });
  std::vector<Row> rows{{"ID", "PID", "PRI", "LABEL", "GPU", "MAY", "WAIT", "LAUNCH", "GPU s",
                         "ADD ms", "MEM GiB", "STATE"}};
  bool wrong = false;
  for (const json& client : clients) {
    json devices = client.at("devices");
    if (devices.empty()) devices.push_back(nowhere());
    for (const json& device : devices) {
      rows.push_back(row_of(client, device));
      wrong = wrong || rows.back().back().back() == '!';
    }
  }
  cut_labels(rows);
  print_table(out, rows, 1);
  if (wrong && !notes) out << "active!, idle!, free!: heddle ps -v says what is wrong\n";
  if (answer.at("truncated") == true) {
    out << "(of " << answer.at("total") << " clients: this heddled tells of no more; restart it)\n";
  }
  print_modes(out, clients, notes);
  if (notes) {
    for (const json& client : clients) print_notes(out, client);
  }
  const json& unattached = answer.at("unattached");
  for (const json& process : unattached) {
    const std::string line = "not held back: pid " + process.at("pid").dump() + ' ';
    out << line << cut_middle(printable(process.at("exe")), kColumns - line.size()) << '\n';
  }
  if (!unattached.empty()) out << "(they are not attached; start them with heddle run)\n";
}

}  // namespace

std::vector<PromiseText> promise_texts(const json& device) {
  std::vector<PromiseText> texts;
  for (const auto& [key, name] :
       {std::pair("promise", "promise "), std::pair("promise_p99", "promise p99 ")}) {
    const json promise = device.value(key, json());
    if (promise.is_null()) continue;
    const json &now = promise.at("slowdown"), &most = promise.at("slowdown_max");
    PromiseText& out =
        texts.emplace_back(PromiseText{name + fixed("%.2f", most.get<double>()) + ": ", ""});
    if (now.is_null()) {
      out.text += "no block has ended yet";
      continue;
    }
    out.broken = promise.value("broken_now", now > most);  // an older daemon does not say
    out.text += "now " + fixed("%.2f", now.get<double>()) + ", " + promise.at("broken").dump() +
                " of " + promise.at("blocks").dump() + " blocks broken";
    if (const json& by = promise.at("broken_by"); !by.is_null()) out.by = ", by " + printable(by);
  }
  if (const json compute = device.value("compute", json()); !compute.is_null()) {
    const auto percent = [](const json& of) { return fixed("%.0f %%", 100 * of.get<double>()); };
    std::string text;
    if (compute.at("request") != 0) text = "requests " + percent(compute.at("request"));
    if (compute.at("limit") != 0) {
      text += (text.empty() ? "limit " : ", limit ") + percent(compute.at("limit"));
    }
    const json& got = compute.at("got");
    text += ": got " + percent(got.at(1)) + " of 10 s (" + percent(got.at(0)) + " of 1 s, " +
            percent(got.at(2)) + " of 60 s)";
    texts.push_back({text, "", compute.at("short") == true || compute.at("over") == true});
  }
  return texts;
}

void print_ps(std::ostream& out, const json& answer) { print_all(out, answer, false); }
void print_ps_notes(std::ostream& out, const json& answer) { print_all(out, answer, true); }

std::string ps_help() {
  return R"(Columns:
  ID       number of the client, as heddle explain takes it
  PID      its process; ?: it is of another PID namespace
  PRI      Q0 (most important) to Q9
  LABEL    of heddle run --label or its rule, else its program
  GPU      number of the GPU: a client of two GPUs has two lines
  MAY      lease: it launches freely; open: the same, and what has not begun can
           be held; gate: its launches wait until they are let go
  WAIT     launches that wait now
  LAUNCH   launches that heddle knows of
  GPU s    seconds of GPU time that it has had
  ADD ms   most that others add to one of its gaps; -: nothing; none: no limit;
           !: a gap took more
  MEM GiB  its device memory, or of all who share its limit / the limit
  STATE    active: it has work; idle: none; closed: it is about to end;
           free: not managed; leaving, parked, waits for room, returning: its
           memory is on the host, or on its way; !: something is wrong, and -v
           says what

)";
}

}  // namespace heddle::cli
