#include "bench/runner/table.h"

#include <cmath>
#include <iostream>
#include <set>

#include "bench/runner/result.h"

namespace heddle::bench {
namespace {

// Three significant digits, no exponent.
std::string three(double value) {
  char text[32];
  const double size = std::fabs(value);
  const int digits = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

const Json* at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* found = &json;
  for (const char* key : keys) {
    const auto next = found->find(key);
    if (next == found->end()) return nullptr;
    found = &*next;
  }
  return found;
}

std::string value(const Json* figure) {
  return figure == nullptr ? "–" : three((*figure)["value"]);
}

std::string with_interval(const Json* figure) {
  if (figure == nullptr) return "–";
  return value(figure) + " [" + three((*figure)["lo"]) + ", " + three((*figure)["hi"]) + "]";
}

class Table {
 public:
  explicit Table(std::vector<std::string> header) : columns_(header.size()) { row(header); }

  void row(const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) text_ += "| " + cell + " ";
    text_ += "|\n";
    if (rows_++ > 0) return;
    text_ += "| ---";
    for (size_t i = 1; i < columns_; ++i) text_ += " | ---:";
    text_ += " |\n";
  }
  const std::string& text() const { return text_; }
  bool empty() const { return rows_ < 2; }

 private:
  const size_t columns_;
  size_t rows_ = 0;
  std::string text_;
};

// Columns that some row of the result has a figure for.
struct Column {
  std::string title;
  std::string job;  // empty: of the row as a whole
  std::vector<const char*> path;
};

const Json* cell(const Json& row, const Column& column) {
  const Json* found = &row;
  if (!column.job.empty()) {
    found = at(row, {"jobs"});
    if (found == nullptr || !found->contains(column.job)) return nullptr;
    found = &(*found)[column.job];
  }
  for (const char* key : column.path) {
    if (found != nullptr) found = at(*found, {key});
  }
  return found;
}

std::vector<Column> columns(const Json& result) {
  std::vector<Column> all;
  for (const Json& job : result["jobs"]) {
    const std::string name = job["name"];
    if (job["role"] == "latency") {
      all.push_back({name + " mean ms", name, {"jct_ms", "mean"}});
      all.push_back({"p50", name, {"jct_ms", "p50"}});
      all.push_back({"p95", name, {"jct_ms", "p95"}});
      all.push_back({"p99", name, {"jct_ms", "p99"}});
      all.push_back({"CV", name, {"cv"}});
      all.push_back({"mean ÷ alone", name, {"mean_over_alone"}});
      all.push_back({"p99 ÷ alone", name, {"p99_over_alone"}});
      all.push_back({"within SLO", name, {"slo_attainment"}});
    } else {
      all.push_back({name + " / s", name, {"per_s"}});
      all.push_back({"÷ alone", name, {"per_s_over_alone"}});
    }
    all.push_back({"TBT p50 ms", name, {"tbt_ms", "p50"}});
    all.push_back({"TBT p99 ms", name, {"tbt_ms", "p99"}});
    all.push_back({"TBT p99 ÷ alone", name, {"tbt_p99_over_alone"}});
    all.push_back({"shim CPU", name, {"shim_cpu"}});
  }
  for (const auto& [title, key] : {std::pair("STP", "stp"),
                                   {"ANTT", "antt"},
                                   {"makespan s", "makespan_s"},
                                   {"power W", "power_w"},
                                   {"J / iteration", "energy_per_iteration_j"},
                                   {"energy ÷ alone", "energy_over_alone"},
                                   {"daemon CPU", "daemon_cpu"},
                                   {"decisions / s", "decisions_per_s"},
                                   {"faults", "faults"}}) {
    all.push_back({title, "", {key}});
  }
  std::vector<Column> used;
  for (const Column& column : all) {
    for (const auto& [name, row] : result["figures"].items()) {
      if (cell(row, column) == nullptr) continue;
      used.push_back(column);
      break;
    }
  }
  return used;
}

bool is_ratio(const Column& column) {
  return std::string(column.path.back()).find("_over_alone") != std::string::npos;
}

std::string rows_table(const Json& result) {
  const std::vector<Column> all = columns(result);
  std::vector<std::string> header = {""};
  for (const Column& column : all) header.push_back(column.title);
  Table table(header);
  for (const auto& [name, row] : result["figures"].items()) {
    std::vector<std::string> cells = {name};
    for (const Column& column : all) {
      const Json* figure = cell(row, column);
      cells.push_back(is_ratio(column) ? with_interval(figure) : value(figure));
    }
    table.row(cells);
  }
  return table.text();
}

std::string ratios_table(const Json& result) {
  Table table({"in the same repetitions", "ratio [95 %]", "repetitions"});
  for (const Json& r : result["ratios"]) {
    std::string metric = r["metric"];
    if (metric == "per_s") metric = "rate";
    if (metric == "tbt_p99") metric = "TBT p99";
    table.row({"`" + r["of"].get<std::string>() + "` ÷ `" + r["over"].get<std::string>() +
                   "`: " + r["job"].get<std::string>() + " " + metric,
               with_interval(&r), std::to_string(r["n"].get<size_t>())});
  }
  return table.empty() ? "" : "\n" + table.text();
}

// Every figure in `found`, however deep, by its path.
void add_figures(const std::string& row, const std::string& path, const Json& found, Table& table) {
  if (!found.is_object()) return;
  if (found.contains("lo")) {
    const std::string interval = "[" + three(found["lo"]) + ", " + three(found["hi"]) + "]";
    return table.row(
        {row, path, three(found["value"]), interval, three(found["spread"]), found["n"].dump()});
  }
  for (const auto& [key, inner] : found.items()) {
    const std::string name = key == "jobs" ? "" : key;
    add_figures(row, path + (path.empty() || name.empty() ? "" : " ") + name, inner, table);
  }
}

std::string figures_table(const Json& result) {
  Table table({"row", "figure", "value", "95 %", "spread", "samples"});
  for (const auto& [name, row] : result["figures"].items()) add_figures(name, "", row, table);
  const Json fractions = result.value("idle_fraction", Json::object());
  add_figures("alone", "", {{"idle_fraction", fractions}}, table);
  return "\n" + table.text();
}

std::string word(const Json& equal) {
  return equal.is_null() ? "not compared" : equal.get<bool>() ? "bit-equal" : "DIFFERENT";
}

std::string method(const Json& result) {
  const Json& last = result["sessions"].back();
  std::string text = "\n" + result["gpu"].get<std::string>();
  if (result["mode"] == "simulated") {
    text += " GPU: every figure is simulated";
  } else {
    text += ", driver " + last["driver"].get<std::string>();
  }
  text += "; " + last["date"].get<std::string>().substr(0, 10) + ", commit " +
          last["commit"].get<std::string>() + ", seed " + result["seed"].dump() + ", blocks of " +
          three(result["block_s"]) + " s, " + result["repetitions_done"].dump() +
          " repetitions in " + std::to_string(result["sessions"].size()) + " sessions; `" +
          last["command"].get<std::string>() + "`.";
  const Json fractions = result.value("idle_fraction", Json::object());
  for (const auto& [job, idle] : fractions.items()) {
    const Json* untraced = at(idle, {"untraced", "value"});
    const double share =
        untraced != nullptr ? untraced->get<double>() : idle["traced"].get<double>();
    text += " " + job + " alone leaves the GPU idle " + three(100 * share) + " % of its time.";
  }
  if (const Json* outputs = at(result, {"outputs"})) {
    text += " Outputs: bare against bare " + word((*outputs)["control_equal"]) +
            ", heddle against bare " + word((*outputs)["heddle_equal"]) + ".";
  }
  for (const Json& m : result.value("missing", Json::array())) {
    text +=
        " " + m["row"].get<std::string>() + ": not available, " + m["why"].get<std::string>() + ".";
  }
  const size_t errors = result["errors"].size();
  if (errors > 0) text += " " + std::to_string(errors) + " errors; see the file.";
  return text + "\n";
}

}  // namespace

std::string markdown(const Json& result, bool all) {
  std::string text = "**" + result["name"].get<std::string>() + "**";
  if (!result["about"].get<std::string>().empty()) {
    text += ": " + result["about"].get<std::string>();
  }
  return text + "\n\n" + rows_table(result) + ratios_table(result) +
         (all ? figures_table(result) : "") + method(result);
}

int print_tables(const std::vector<std::string>& files, bool all) {
  for (const std::string& file : files) {
    Json result = read_json(file);
    if (result.value("benchmark", "") != "scenario") {
      throw std::runtime_error(file +
                               ": no result of heddle-bench run; bench/table.py has those "
                               "of the Python scripts");
    }
    if (!result.contains("figures")) {
      throw std::runtime_error(file + ": was cut short before its figures; finish it by --resume");
    }
    std::cout << (file == files.front() ? "" : "\n") << markdown(result, all);
  }
  return 0;
}

}  // namespace heddle::bench
