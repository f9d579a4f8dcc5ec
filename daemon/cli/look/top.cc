#include "daemon/cli/look/look.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/core/waits.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

constexpr const char* kSorts[] = {"gpu", "priority", "wait"};
constexpr const char* kKeys = "q quit; sort by g GPU, p priority, w wait";

// A device of a client, by both their numbers.
using Place = std::pair<uint64_t, int>;

struct Seen {
  const json* client;
  const json* device;
};

std::map<Place, Seen> devices_of(const json& ps) {
  std::map<Place, Seen> all;
  for (const json& client : ps.at("clients")) {
    for (const json& device : client.at("devices")) {
      all[{client.at("id").get<uint64_t>(), device.at("device").get<int>()}] = {&client, &device};
    }
  }
  return all;
}

double grown(const json& after, const json* before, const char* key) {
  const double now = after.value(key, 0.0);
  return std::max(0.0, now - (before != nullptr ? before->value(key, 0.0) : 0.0));
}

core::Waits::Counts counts_of(const json* device) {
  core::Waits::Counts counts{};
  if (device == nullptr || !device->contains("waits")) return counts;
  const json& told = device->at("waits").at("counts");
  for (size_t i = 0; i < std::min(counts.size(), told.size()); ++i) counts[i] = told[i];
  return counts;
}

json client_row(const Seen& now, const Seen* before, double seconds) {
  const json& client = *now.client;
  const json& device = *now.device;
  const json* earlier = before != nullptr ? before->device : nullptr;
  core::Waits::Counts waits = counts_of(&device);
  const core::Waits::Counts old = counts_of(earlier);
  uint64_t waited = 0;
  for (size_t i = 0; i < waits.size(); ++i) {
    waits[i] -= std::min(waits[i], old[i]);
    waited += waits[i];
  }
  // What a program that need not report launches, it counts all the same; of one GPU that is all.
  const bool alone = client.at("devices").size() == 1;
  const double launched =
      alone ? grown(client.at("counters"),
                    before != nullptr ? &before->client->at("counters") : nullptr, "launches")
            : grown(device, earlier, "launches");
  const std::string label = client.at("label");
  const std::string exe = client.value("exe", "");
  return {{"id", client.at("id")},
          {"pid", client.at("pid")},
          {"label", label.empty() ? std::filesystem::path(exe).filename().string() : label},
          {"priority", client.at("priority")},
          {"device", device.at("device")},
          {"gpu_pct", 100 * grown(device, earlier, "gpu_us") / 1e6 / seconds},
          {"stood_pct", 100 * grown(device, earlier, "stopped_us") / 1e6 / seconds},
          {"stops_per_s", grown(device, earlier, "stops") / seconds},
          {"launches_per_s", launched / seconds},
          {"grants_per_s", static_cast<double>(waited) / seconds},
          {"wait_p50_us", core::quantile_us(waits, 0.5)},
          {"wait_p99_us", core::quantile_us(waits, 0.99)},
          {"allowed", device.at("allowed")},
          {"waiting", device.at("queued")},
          {"memory", memory_text(device)},
          {"memory_bytes", device.value("memory_bytes", json(0))},
          {"memory_limit_bytes", device.value("memory_limit_bytes", json(0))},
          {"memory_group_bytes", device.value("memory_group_bytes", json(0))},
          {"sms", client.value("sm_set", 0u) != 0 ? client.value("sm_count", json()) : json()},
          {"compute", device.value("compute", json())},
          {"promise", device.value("promise", json())},
          {"promise_p99", device.value("promise_p99", json())},
          {"managed", client.at("managed")},
          {"active", device.at("active")},
          {"runs_now", device.value("outstanding_us", 0.0) > 0}};
}

json gpu_row(const json& now, const json* before, double seconds) {
  const json& stats = now.at("stats");
  const json* old = before != nullptr ? &before->at("stats") : nullptr;
  return {{"index", now.at("index")},
          {"uuid", now.value("uuid", "")},
          {"sm_total", now.at("sm_total")},
          {"waiting", now.at("waiting")},
          {"grants_per_s", grown(stats, old, "granted") / seconds},
          {"builtin_per_s", grown(stats, old, "by_builtin") / seconds},
          {"faults", stats.at("policy_faults")},
          {"starved", stats.at("starved")},
          {"gpu_pct", 0.0}};
}

std::string duration(double us) {
  if (us <= 0) return "-";
  if (us < 999.5) return fixed("%.0fus", us);
  if (us < 9.95e3) return fixed("%.1fms", us / 1e3);
  return us < 999.5e3 ? fixed("%.0fms", us / 1e3) : fixed("%.1fs", us / 1e6);
}

std::string allowed_of(const json& row) {
  return row.at("managed") == false ? "free" : row.at("allowed").get<std::string>();
}

// Cut to `width`, or filled up to it on the right, or on the left for numbers.
std::string cell(std::string text, size_t width, bool right) {
  if (text.size() > width) text = text.substr(0, width - 1) + '~';
  const std::string fill(width - text.size(), ' ');
  return right ? fill + text : text + fill;
}

struct Column {
  const char* head;
  size_t width;
  bool right;
  const char* meaning;  // for --help
  std::string (*text)(const json& row);
  const char* mode = nullptr;  // in which it says something; nullptr: in each
};

const Column kTable[] = {
    {"", 1, false, "*: its work is on the GPU now",
     [](const json& r) { return std::string(r.at("runs_now") ? "*" : " "); }},
    {"PID", 7, true, "its process; ?: it is of another PID namespace",
     [](const json& r) { return r.at("pid") == 0 ? "?" : r.at("pid").dump(); }},
    {"Q", 1, true, "0 (most important) to 9",
     [](const json& r) { return r.at("priority").dump(); }},
    {"LABEL", 10, false, "of heddle run --label or its rule, else its program",
     [](const json& r) { return printable(r.at("label")); }},
    {"GPU", 3, true, "number of the GPU: a client of two GPUs has two lines",
     [](const json& r) { return r.at("device").dump(); }},
    {"GPU%", 5, true, "part of the interval in which its kernels ran",
     [](const json& r) { return fixed("%.1f", r.at("gpu_pct")); }},
    {"SHARE", 5, true, "its part of the GPU time that all clients there had",
     [](const json& r) { return fixed("%.0f%%", r.at("share_pct")); }},
    {"LNCH/S", 6, true, "its launches a second",
     [](const json& r) { return fixed("%.0f", r.at("launches_per_s")); }},
    {"P50", 5, true, "how long its held launches waited, the median; -: none was",
     [](const json& r) { return duration(r.at("wait_p50_us")); }},
    {"P99", 5, true, "and the longest but 1 %",
     [](const json& r) { return duration(r.at("wait_p99_us")); }},
    {"MAY", 6, true, "lease, open or gate, as in heddle ps; free: not managed", allowed_of},
    {"SMS", 3, true, "under MPS: how many SMs it may use",
     [](const json& r) { return r.at("sms").is_null() ? "all" : r.at("sms").dump(); }, "mps"},
    {"STOOD", 5, true, "time-sliced: part of the interval in which it was stopped",
     [](const json& r) {
       const double pct = r.at("stood_pct");
       return pct > 0 ? fixed(pct < 9.95 ? "%.1f%%" : "%.0f%%", pct) : "-";
     },
     "timeslice"},
    {"MEM GiB", 9, true, "its device memory, or of all who share its limit / the limit",
     [](const json& r) { return r.at("memory").get<std::string>(); }},
};

void sort_rows(std::vector<json>& rows, const std::string& by) {
  const auto key = [&](const json& row) -> double {
    if (by == "priority") return row.at("priority");
    return -row.at(by == "wait" ? "wait_p99_us" : "gpu_pct").get<double>();
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const json& a, const json& b) {
    return std::pair(key(a), a.at("id").get<uint64_t>()) <
           std::pair(key(b), b.at("id").get<uint64_t>());
  });
}

std::string cut(std::string line) { return line.substr(0, kColumns) + '\n'; }

std::string heading(const json& top) {
  const json& policy = top.at("policy");
  std::string text =
      cut("policy " + printable(policy.at("name")) + ' ' + policy.value("hash", "") + ", mode " +
          top.at("mode").get<std::string>() + ", " + policy.value("faults", json(0)).dump() +
          " faults" + (top.at("bypass") == true ? ", BYPASSED: no policy is asked" : ""));
  if (const std::string error = policy.value("error", ""); !error.empty()) {
    text += cut("error: " + printable(error));
  }
  for (const json& gpu : top.at("gpus")) {
    text += cut("GPU " + gpu.at("index").dump() + ": " + fixed("%.0f", gpu.at("gpu_pct")) +
                " % busy, " + gpu.at("waiting").dump() + " waiting, " +
                fixed("%.0f", gpu.at("grants_per_s")) + " grants/s (built-in " +
                fixed("%.0f", gpu.at("builtin_per_s")) + "), starved " + gpu.at("starved").dump());
  }
  for (const json& row : top.at("clients")) {
    const std::vector<PromiseText> promises = promise_texts(row);
    const auto broken = std::find_if(promises.begin(), promises.end(),
                                     [](const PromiseText& promise) { return promise.broken; });
    if (broken == promises.end()) continue;
    text += cut(broken->text + ": pid " + row.at("pid").dump() + ' ' + printable(row.at("label")));
    break;  // the others' are in heddle ps
  }
  return text;
}

std::optional<TopSample> sample(const TopOptions& options, Answer& failed) {
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  Answer status = ask(options.socket, request);
  Answer ps = status.code == kOk ? ask_ps(options.socket) : status;
  if (ps.code != kOk) {
    failed = ps;
    return std::nullopt;
  }
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return TopSample{std::move(status.json), std::move(ps.json), now.count()};
}

// A terminal that shows each key at once, on a screen of its own; as it was when this ends.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO));
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    draw("\x1b[?1049h\x1b[?25l");
    struct sigaction action {};
    action.sa_handler = [](int) { ended_ = 1; };
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  }
  ~Screen() {
    draw("\x1b[?25h\x1b[?1049l");
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static bool ended() { return ended_ != 0; }
  static size_t lines() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row : 24u;
  }
  static void show(const std::string& text) {
    std::string out = "\x1b[H";
    for (const char c : text) out += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    draw(out + "\x1b[J");
  }
  // The next key within `ms`, 0 if none was pressed; its own end is a q.
  static char key(int ms) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, std::max(0, ms)) <= 0) return 0;
    char c = 0;
    return read(STDIN_FILENO, &c, 1) == 1 ? c : 'q';
  }

 private:
  // Past std::cout, which keeps its control bytes from a terminal.
  static void draw(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
      if (written < 0 && errno != EINTR) return;
      text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
    }
  }

  static inline volatile sig_atomic_t ended_ = 0;
  termios before_{};
};

int show_once(const TopOptions& options, const TopSample& first) {
  usleep(static_cast<useconds_t>(options.interval_s * 1e6));
  Answer failed;
  const std::optional<TopSample> second = sample(options, failed);
  if (!second) return show_error(options.as_json, failed);
  const json top = top_between(first, *second);
  if (options.as_json) {
    write_json(top);
  } else {
    std::cout << top_text(top, options.sort, SIZE_MAX);
  }
  return kOk;
}

}  // namespace

json top_between(const TopSample& before, const TopSample& after) {
  const double seconds = std::max(1e-3, after.at_s - before.at_s);
  const std::map<Place, Seen> old = devices_of(before.ps);
  json clients = json::array(), gpus = json::array();
  std::map<int, double> busy_pct;
  for (const auto& [place, seen] : devices_of(after.ps)) {
    const auto earlier = old.find(place);
    json row = client_row(seen, earlier != old.end() ? &earlier->second : nullptr, seconds);
    busy_pct[place.second] += row.at("gpu_pct").get<double>();
    clients.push_back(std::move(row));
  }
  for (json& row : clients) {
    const double all = busy_pct[row.at("device").get<int>()];
    row["share_pct"] = all > 0 ? 100 * row.at("gpu_pct").get<double>() / all : 0;
  }
  for (const json& device : after.status.at("devices")) {
    const json& earlier = before.status.at("devices");
    const auto same = std::find_if(earlier.begin(), earlier.end(), [&](const json& other) {
      return other.at("index") == device.at("index");
    });
    json row = gpu_row(device, same != earlier.end() ? &*same : nullptr, seconds);
    row["gpu_pct"] = busy_pct[device.at("index").get<int>()];
    gpus.push_back(std::move(row));
  }
  return {{"interval_s", seconds},
          {"mode", after.status.at("mode")},
          {"bypass", after.status.at("bypass")},
          {"policy", after.status.at("policy")},
          {"gpus", std::move(gpus)},
          {"clients", std::move(clients)}};
}

std::string top_help() {
  std::string text = "Columns:\n";
  for (const Column& column : kTable) {
    text += "  " + cell(column.head, 9, false) + column.meaning + '\n';
  }
  return text + '\n';
}

std::string top_text(const json& top, const std::string& sort, size_t lines) {
  std::string text = heading(top);
  std::string line;
  std::vector<Column> table;
  for (const Column& column : kTable) {
    if (column.mode == nullptr || top.at("mode") == column.mode) table.push_back(column);
  }
  for (const Column& column : table) line += cell(column.head, column.width, column.right) + ' ';
  text += cut(line);
  std::vector<json> rows(top.at("clients").begin(), top.at("clients").end());
  sort_rows(rows, sort);
  const auto used = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (used + i + 1 >= lines && i + 1 < rows.size()) {
      return text + "(" + std::to_string(rows.size() - i) + " more)\n";
    }
    line.clear();
    for (const Column& column : table) {
      line += cell(column.text(rows[i]), column.width, column.right) + ' ';
    }
    text += cut(line);
  }
  return text;
}

int run_top(const TopOptions& options) {
  Answer failed;
  std::optional<TopSample> last = sample(options, failed);
  if (!last) return show_error(options.as_json, failed);
  const bool terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0;
  if (options.once || options.as_json || !terminal) return show_once(options, *last);
  std::string sort = options.sort;
  TopSample before = *last;
  {
    const Screen screen;
    for (double due = last->at_s; !Screen::ended();) {
      const json top = top_between(before, *last);
      Screen::show(top_text(top, sort, Screen::lines() - 1) + kKeys);
      const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
      if (now.count() >= due + options.interval_s) {
        std::optional<TopSample> next = sample(options, failed);
        if (!next) break;
        due = next->at_s;
        before = std::exchange(*last, std::move(*next));
        continue;
      }
      const char key =
          Screen::key(static_cast<int>((due + options.interval_s - now.count()) * 1e3) + 1);
      if (key == 'q') return kOk;
      for (const char* name : kSorts) {
        if (key == name[0]) sort = name;
      }
    }
  }
  return failed.code == kOk ? kOk : show_error(false, failed);
}

}  // namespace heddle::cli
