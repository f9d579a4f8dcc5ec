#include "daemon/cli/policy/policy.h"

#include <algorithm>
#include <iostream>
#include <sstream>
#include <vector>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr size_t kAround = 3;
// Lines that are compared each with each; of more only the beginning and the end that are alike.
constexpr size_t kComparedMax = 4'000;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// One line of a script that makes `after` of `before`.
struct Step {
  char sign;  // ' ', '-' or '+'
  const std::string* line;
};

// By the longest common subsequence.
void compare(const Lines& a, size_t a0, size_t a1, const Lines& b, size_t b0, size_t b1,
             std::vector<Step>& steps) {
  const size_t rows = a1 - a0, columns = b1 - b0;
  std::vector<std::vector<uint16_t>> longest(rows + 1, std::vector<uint16_t>(columns + 1));
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = columns; j-- > 0;) {
      longest[i][j] = a[a0 + i] == b[b0 + j] ? static_cast<uint16_t>(longest[i + 1][j + 1] + 1)
                                             : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  size_t i = 0, j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && a[a0 + i] == b[b0 + j]) {
      steps.push_back({' ', &a[a0 + i]});
      ++i, ++j;
    } else if (j == columns || (i < rows && longest[i + 1][j] >= longest[i][j + 1])) {
      steps.push_back({'-', &a[a0 + i++]});
    } else {
      steps.push_back({'+', &b[b0 + j++]});
    }
  }
}

std::string by_text(const json& row) {
  std::string text = row.at("how");
  if (const auto as = row.value("as", uint64_t{0}); as != 0) {
    text += ", as generation " + std::to_string(as) + " was";
  }
  if (!row.at("uid").is_null()) text += ", uid " + row.at("uid").dump();
  if (row.at("pid") != 0) text += " pid " + row.at("pid").dump();
  return text;
}

}  // namespace

void print_exit(std::ostream& out, const json& exit) {
  const auto line = [&](const std::string& text) { out << "-- " << printable(text) << '\n'; };
  const auto lines = [&](const std::string& what) {
    std::istringstream all(exit.value(what, ""));
    for (std::string one; std::getline(all, one);) line("  " + one);
  };
  line(exit.value("name", "") + " " + exit.value("hash", "") +
       " was quarantined: " + exit.value("fault", ""));
  lines("traceback");
  lines("dump");
  for (const json& q : exit.value("queues", json::array())) {
    line("  queue " + q.at("name").get<std::string>() + ": " + q.at("waiting").dump() + " waited");
  }
  for (const json& m : exit.value("maps", json::array())) {
    line("  map " + m.at("name").get<std::string>() + ": " + m.at("entries").dump() + " of " +
         m.at("max").dump());
  }
  for (const json& d : exit.value("decisions", json::array())) {
    line("  " + d.at("ms_before").dump() + " ms before: client " + d.at("client").dump() +
         " thread " + d.at("thread").dump() + " by " + d.at("by").get<std::string>());
  }
}

void print_history(std::ostream& out, const json& answer) {
  for (const json& row : answer.at("generations")) {
    const bool runs = row.at("generation") == answer.at("running");
    out << (runs ? "* " : "  ") << row.at("generation") << "  " << row.at("at").get<std::string>()
        << "  " << printable(row.at("name")) << "  "
        << (row.at("hash") == "" ? "-" : row.at("hash").get<std::string>()) << "  " << by_text(row)
        << '\n';
    if (!row.at("ended_at").is_null()) {
      out << "     ended " << row.at("ended_at").get<std::string>() << ": "
          << printable(row.at("ended")) << (row.at("kept") == true ? "" : "; its text is gone")
          << '\n';
    }
  }
}

int show_policy(const std::string& socket, bool as_json) {
  const Answer answer = ask_for_document(socket, server::Request::Kind::kPolicyShow);
  if (answer.code != kOk) return show_error(as_json, answer);
  const json& what = answer.json;
  if (as_json) {
    write_json(what);
    return kOk;
  }
  std::cout << "-- " << printable(what.at("name")) << ' ' << what.value("hash", "") << ' '
            << printable(what.value("path", "")) << '\n';
  const json live = what.value("live", json::object());
  const json values = what.value("values", json::object());
  for (const auto& [name, value] : values.items()) {
    std::cout << "-- " << printable(name) << " = " << printable(value) << " by "
              << (live.contains(name) ? "heddle policy set" : "the configuration") << '\n';
  }
  std::cout << what.value("text", "-- the built-in policy is no file\n");
  if (const json exit = what.value("last_exit", json()); exit.is_object()) {
    print_exit(std::cout, exit);
  }
  return kOk;
}

int diff_policy(const std::string& socket, const std::string& file, bool as_json) {
  const Answer answer = ask_for_document(socket, server::Request::Kind::kPolicyShow);
  if (answer.code != kOk) return show_error(as_json, answer);
  const std::string runs = answer.json.value("text", "");
  const std::string path = file.empty() ? answer.json.value("wanted", "") : file;
  if (path.empty()) {
    return show_error(as_json, {kFailed, "policy diff: the built-in runs; name a file", {}});
  }
  const Result<std::string> text = policy::read_source(path);
  if (!text) return show_error(as_json, {kFailed, text.error().message, {}});
  const std::string diff = line_diff(runs, *text);
  if (as_json) {
    write_json({{"file", path}, {"running", answer.json.value("path", "")}, {"diff", diff}});
  } else if (!diff.empty()) {
    std::cout << "--- running: " << printable(answer.json.at("name")) << ' '
              << answer.json.value("hash", "") << "\n+++ file: " << printable(path) << '\n'
              << diff;
  }
  return diff.empty() ? kOk : kFailed;
}

std::string line_diff(const std::string& before, const std::string& after) {
  if (before == after) return "";
  const Lines a = lines_of(before), b = lines_of(after);
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (tail < a.size() - head && tail < b.size() - head &&
         a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) {
    ++tail;
  }
  std::vector<Step> steps;
  for (size_t i = 0; i < head; ++i) steps.push_back({' ', &a[i]});
  if (a.size() - head - tail > kComparedMax || b.size() - head - tail > kComparedMax) {
    for (size_t i = head; i < a.size() - tail; ++i) steps.push_back({'-', &a[i]});
    for (size_t i = head; i < b.size() - tail; ++i) steps.push_back({'+', &b[i]});
  } else {
    compare(a, head, a.size() - tail, b, head, b.size() - tail, steps);
  }
  for (size_t i = a.size() - tail; i < a.size(); ++i) steps.push_back({' ', &a[i]});
  std::string text;
  size_t line = 0, shown = 0;  // of `before`; so many steps were looked at
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].sign != '+') ++line;
    const size_t from = i < kAround ? 0 : i - kAround;
    const size_t to = std::min(steps.size(), i + kAround + 1);
    const bool near = std::any_of(steps.begin() + static_cast<ptrdiff_t>(from),
                                  steps.begin() + static_cast<ptrdiff_t>(to),
                                  [](const Step& step) { return step.sign != ' '; });
    if (!near) continue;
    if (text.empty() || i != shown)
      text += "@@ line " + std::to_string(std::max<size_t>(1, line)) + '\n';
    text += steps[i].sign + *steps[i].line + '\n';
    shown = i + 1;
  }
  // All lines are alike: the end of the last one is not.
  return text.empty() ? "@@ the last line's end\n" : text;
}

}  // namespace heddle::cli
