#include "bench/runner/table.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "bench/runner/kept.h"
#include "bench/runner/markdown.h"
#include "bench/runner/result.h"

namespace heddle::bench {
namespace {

const Json* at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* found = &json;
  for (const char* key : keys) {
    const auto next = found->find(key);
    if (next == found->end()) return nullptr;
    found = &*next;
  }
  return found;
}

std::string word(const Json& text) { return text.get<std::string>(); }

bool few(const Json* figure) { return figure != nullptr && figure->contains("few"); }

std::string value(const Json* figure) {
  if (few(figure)) return "few";
  return figure == nullptr ? "–" : three((*figure).at("value"));
}

// Fewer blocks than kForInterval have none, of what each has one value of; nor have few slices.
std::string interval(const Json& figure) {
  if (few(&figure) || !figure.contains("hi") || figure["hi"].is_null()) return "–";
  return "[" + three(figure.at("lo")) + ", " + three(figure["hi"]) + "]";
}

std::string with_interval(const Json* figure) {
  const std::string bounds = figure == nullptr ? "–" : interval(*figure);
  return value(figure) + (bounds == "–" ? "" : " " + bounds);
}

// Where the value alone would say more than was measured: the interval is wider than 10 % either
// way.
std::string with_doubt(const Json* figure) {
  if (figure == nullptr || interval(*figure) == "–") return value(figure);
  const Json &v = (*figure).at("value"), &hi = (*figure).at("hi");
  const bool sure =
      v.is_number() && hi.get<double>() - (*figure).at("lo").get<double>() <= 0.2 * v.get<double>();
  return sure ? value(figure) : with_interval(figure);
}

// The least n of a line's figures: how many slices they are of.
class Least {
 public:
  void count(const Json* figure) {
    if (figure == nullptr || few(figure)) return;
    n_ = std::min(n_, (*figure).at("n").get<size_t>());
  }
  std::string text() const { return n_ == SIZE_MAX ? "–" : std::to_string(n_); }

 private:
  size_t n_ = SIZE_MAX;
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
  for (const Json& job : result.at("jobs")) {
    const std::string name = job.at("name");
    if (job.at("role") == "latency") {
      all.push_back({name + " mean ms", name, {"jct_ms", "mean"}});
      all.push_back({"p50", name, {"jct_ms", "p50"}});
      all.push_back({"p95", name, {"jct_ms", "p95"}});
      all.push_back({"p99", name, {"jct_ms", "p99"}});
      all.push_back({"CV", name, {"cv"}});
      all.push_back({"mean ÷ alone", name, {"mean_over_alone"}});
      all.push_back({"p50 ÷ alone", name, {"p50_over_alone"}});
      all.push_back({"p99 ÷ alone", name, {"p99_over_alone"}});
      all.push_back({"mean ÷ time-slicing", name, {"mean_over_timeslice"}});
      all.push_back({"mean ÷ itself alone", name, {"mean_over_self"}});
      all.push_back({"p99 ÷ itself alone", name, {"p99_over_self"}});
      all.push_back({"in 1.1 p99", name, {"in_1.1_p99"}});
      all.push_back({"in 1.25 p99", name, {"in_1.25_p99"}});
      all.push_back({"within SLO", name, {"slo_attainment"}});
      all.push_back({"promise kept", name, {"promise_kept"}});
    } else {
      all.push_back({name + " / s", name, {"per_s"}});
      all.push_back({"÷ alone", name, {"per_s_over_alone"}});
      if (job.contains("requests")) {
        all.push_back({name + " mean ms", name, {"jct_ms", "mean"}});
        all.push_back({"CV", name, {"cv"}});
      }
    }
    all.push_back({"TBT p50 ms", name, {"tbt_ms", "p50"}});
    all.push_back({"TBT p99 ms", name, {"tbt_ms", "p99"}});
    all.push_back({"TBT p99 ÷ alone", name, {"tbt_p99_over_alone"}});
    all.push_back({"TTFT p90 ms", name, {"ttft_ms", "p90"}});
    all.push_back({"TTFT p90 ÷ alone", name, {"ttft_p90_over_alone"}});
    all.push_back({"TTFT p99 ÷ alone", name, {"ttft_p99_over_alone"}});
    all.push_back({"cost of heddle, typical", name, {"cost", "typical"}});
    all.push_back({"mean", name, {"cost", "mean"}});
    all.push_back({"shim CPU", name, {"shim_cpu"}});
  }
  for (const auto& [title, key] : {std::pair("STP", "stp"),
                                   {"ANTT", "antt"},
                                   {"makespan s", "makespan_s"},
                                   {"throughput ÷ alone", "throughput_over_alone"},
                                   {"worst p95 ÷ alone", "worst_p95_over_alone"},
                                   {"power W", "power_w"},
                                   {"J / iteration", "energy_per_iteration_j"},
                                   {"energy ÷ alone", "energy_over_alone"},
                                   {"daemon CPU", "daemon_cpu"},
                                   {"decisions / s", "decisions_per_s"},
                                   {"in hooks ÷ time", "in_hooks"},
                                   {"faults", "faults"}}) {
    all.push_back({title, "", {key}});
  }
  std::vector<Column> used;
  for (const Column& column : all) {
    for (const auto& [name, row] : result.at("figures").items()) {
      if (cell(row, column) == nullptr) continue;
      used.push_back(column);
      break;
    }
  }
  return used;
}

bool is_ratio(const Column& column) {
  const std::string first = column.path.front();
  return first.find("_over_") != std::string::npos || first == "cost";
}

std::string rows_table(const Json& result) {
  const std::vector<Column> all = columns(result);
  std::vector<std::string> header = {""};
  for (const Column& column : all) header.push_back(column.title);
  header.emplace_back("n");
  Table table(header);
  for (const auto& [name, row] : result.at("figures").items()) {
    std::vector<std::string> cells = {name};
    Least least;
    for (const Column& column : all) {
      const Json* figure = cell(row, column);
      cells.push_back(is_ratio(column) ? with_interval(figure) : value(figure));
      least.count(figure);
    }
    cells.push_back(least.text());
    table.row(cells);
  }
  return table.text();
}

std::string ratios_table(const Json& result) {
  std::vector<std::string> header = {"in the same repetitions"};
  std::vector<std::pair<Json, Json>> columns;  // job, metric
  std::vector<std::pair<std::string, std::vector<const Json*>>> rows;
  for (const Json& r : result.at("ratios")) {
    const std::pair column(r.at("job"), r.at("metric"));
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
      columns.push_back(column);
      header.push_back(r.at("job").get<std::string>() + " " +
                       (r.at("metric") == "per_s"     ? "rate"
                        : r.at("metric") == "tbt_p99" ? "TBT p99"
                                                      : r.at("metric").get<std::string>()));
    }
    const std::string of = r.at("of");
    if (rows.empty() || rows.back().first != of) rows.push_back({of, {}});
    rows.back().second.push_back(&r);
  }
  header.emplace_back("n");
  Table table(header);
  for (const auto& [of, ratios] : rows) {
    std::vector<std::string> cells = {"`" + of + "` ÷ `" +
                                      (*ratios.front()).at("over").get<std::string>() + "`"};
    for (const auto& [job, metric] : columns) {
      const auto is_it = [&job = job, &metric = metric](const Json* r) {
        return (*r).at("job") == job && (*r).at("metric") == metric;
      };
      const auto found = std::find_if(ratios.begin(), ratios.end(), is_it);
      cells.push_back(with_interval(found == ratios.end() ? nullptr : *found));
    }
    cells.push_back((*ratios.front()).at("n").dump());
    table.row(cells);
  }
  return table.empty() ? "" : "\n" + table.text();
}

const char* answer(const Json& met) { return met.is_null() ? "–" : met.get<bool>() ? "yes" : "no"; }

// What the scenario expected, before it was measured.
std::string expectations_table(const Json& result) {
  Table table({"expected", "is", "95 %", "bound", "met", "source"});
  for (const Json& e : result.value("expect", Json::array())) {
    const std::string text = e.at("expected");
    std::vector<std::string> cells = {text.substr(0, text.find(" ("))};
    if (e.contains("value")) {
      cells.push_back(three(e.at("value")) +
                      (e.contains("over") ? " ÷ " + word(e.at("over")) : ""));
      cells.push_back(interval(e));
      cells.push_back(three(e.at("bound")));
    } else {
      cells.insert(cells.end(), {word(e.at("why")), "–", "–"});
    }
    cells.insert(cells.end(), {answer(e.at("met")), word(e.at("source"))});
    table.row(cells);
  }
  return table.empty() ? "" : "\n" + table.text();
}

// The same over several results: how many meet each, and which do not.
std::string expectations_brief(const std::vector<Json>& results) {
  struct Count {
    size_t met = 0, judged = 0, unopposed = 0;  // met because there is nothing to hold it against
    std::string missed, source;
  };
  std::vector<std::string> order;
  std::map<std::string, Count> counts;
  for (const Json& result : results) {
    for (const Json& e : result.value("expect", Json::array())) {
      const std::string text = e.at("expected");
      if (counts.count(text) == 0) order.push_back(text);
      Count& count = counts[text];
      count.source = e.at("source");
      if (e.at("met").is_null()) continue;
      const bool met = e.at("met");
      ++count.judged;
      count.met += met ? 1 : 0;
      count.unopposed += met && !e.contains("value") ? 1 : 0;
      if (met) continue;
      count.missed += (count.missed.empty() ? "" : ", ") + word(result.at("name")) +
                      (e.contains("value") ? " " + three(e.at("value")) : "");
    }
  }
  Table table({"expected", "met", "not met by", "source"});
  for (const std::string& text : order) {
    const Count& count = counts[text];
    if (count.judged == 0) continue;
    table.row(
        {text.substr(0, text.find(" (")),
         std::to_string(count.met) + " of " + std::to_string(count.judged) +
             (count.unopposed == 0 ? "" : " (" + std::to_string(count.unopposed) + " unopposed)"),
         count.missed.empty() ? "–" : count.missed, count.source});
  }
  return table.empty() ? "" : "\n" + table.text();
}

// Every figure in `found`, however deep, by its path.
void add_figures(const std::string& row, const std::string& path, const Json& found, Table& table) {
  if (!found.is_object()) return;
  if (found.contains("spread")) {
    return table.row({row, path, three(found.at("value")), interval(found),
                      three(found.at("spread")), found.at("n").dump()});
  }
  for (const auto& [key, inner] : found.items()) {
    const std::string name = key == "jobs" ? "" : key;
    add_figures(row, path + (path.empty() || name.empty() ? "" : " ") + name, inner, table);
  }
}

std::string figures_table(const Json& result) {
  Table table({"row", "figure", "value", "95 %", "spread", "n"});
  for (const auto& [name, row] : result.at("figures").items()) add_figures(name, "", row, table);
  const Json fractions = result.value("idle_fraction", Json::object());
  add_figures("alone", "", {{"idle_fraction", fractions}}, table);
  return "\n" + table.text();
}

std::string equality(const Json& equal) {
  return equal.is_null() ? "not compared" : equal.get<bool>() ? "bit-equal" : "DIFFERENT";
}

// Of which heddle: a result that was gone on with can be of several.
std::string commits(const Json& sessions) {
  std::string text;
  for (const Json& session : sessions) {
    const std::string one = session.at("commit");
    if (text.find(one) == text.npos) text += (text.empty() ? "commit " : " and ") + one;
  }
  return text;
}

// What was measured where, how often.
std::string origin(const Json& result) {
  const Json& last = result.at("sessions").back();
  std::string text = result.at("gpu");
  if (result.at("mode") == "simulated") {
    text +=
        std::string(text.find("GPU") == text.npos ? " GPU" : "") + ": every figure is simulated";
  } else {
    text += ", driver " + last.at("driver").get<std::string>();
  }
  const double settle_s = result.value("settle_s", 0.0);
  return text + "; " + last.at("date").get<std::string>().substr(0, 10) + ", " +
         commits(result.at("sessions")) + ", seed " + result.at("seed").dump() + ", blocks of " +
         three(result.at("block_s")) + " s, " +
         (settle_s > 0 ? "policies settled for " + three(settle_s) + " s, " : "") +
         result.at("repetitions_done").dump() + " repetitions in " +
         std::to_string(result.at("sessions").size()) + " sessions";
}

// Of no ratio to alone: iterations longer than a block, requests not begun, what MPS costs alone.
std::string beside_ratios(const Json& result) {
  std::string text;
  for (const auto& [row, figures] : result.at("figures").items()) {
    for (const auto& [job, found] : figures.at("jobs").items()) {
      if (at(found, {"mean_over_timesliced", "value"}) != nullptr) {
        const Json* mps = at(found, {"mean_over_timesliced"});
        text += " Under MPS " + job + " alone takes " + with_doubt(mps) + " times as long.";
      }
      if (const Json* unserved = at(found, {"unserved"}); unserved != nullptr) {
        text += " " + row + ": " + value(unserved) + " requests of " + job +
                " a block were not begun in time, and count in no time.";
      } else if (found.value("samples", 1) == 0) {
        text += " " + row + ": no iteration of " + job + " ended in a block.";
      }
    }
  }
  return text;
}

std::string findings(const Json& result) {
  std::string text;
  const Json fractions = result.value("idle_fraction", Json::object());
  for (const auto& [job, idle] : fractions.items()) {
    const Json* untraced = at(idle, {"untraced", "value"});
    const double judged = idle_of(idle), other = untraced ? untraced->get<double>() : judged;
    text += " " + job + " alone leaves the GPU idle " + three(100 * judged) + " % of its time";
    text += other != judged ? " (untraced " + three(100 * other) + " %)." : ".";
  }
  text += beside_ratios(result);
  if (const Json* outputs = at(result, {"outputs"})) {
    text += " Outputs: bare against bare " + equality((*outputs).at("control_equal")) +
            ", heddle against bare " + equality((*outputs).at("heddle_equal")) + ".";
  }
  const size_t errors = result.at("errors").size();
  if (errors > 0) text += " " + std::to_string(errors) + " errors; see the file.";
  for (const Json& m : result.value("missing", Json::array())) {
    text += " " + word(m.at("row")) + ": not available, " + word(m.at("why")) + ".";
  }
  return text;
}

std::string method(const Json& result) {
  return origin(result) + "; `" + word(result.at("sessions").back().at("command")) + "`." +
         findings(result) + "\n";
}

// Some papers hold their figures against time-slicing, and so do the scenarios of their pairs.
bool judged_by_timeslice(const Json& result) {
  const Json all = result.value("expect", Json::array());
  return std::any_of(all.begin(), all.end(), [](const Json& e) {
    return word(e.at("expected")).find(" mean / timeslice ") != std::string::npos;
  });
}

// A result's cells of a brief table, by the rows in its header.
std::vector<std::string> brief_line(const Json& result, const std::vector<std::string>& header,
                                    const Column& column) {
  std::vector<std::string> cells = {word(result.at("name")) + ": " + column.title};
  Least least;
  for (size_t i = 1; i + 1 < header.size(); ++i) {
    const Json* row = at(result, {"figures", header[i].c_str()});
    const Json* figure = row != nullptr ? cell(*row, column) : nullptr;
    cells.push_back(with_doubt(figure));
    least.count(figure);
  }
  cells.push_back(least.text());
  return cells;
}

}  // namespace

std::string markdown(const Json& measured, bool all) {
  const Json result = shown(measured);
  std::string text = "**" + result.at("name").get<std::string>() + "**";
  if (!result.at("about").get<std::string>().empty()) {
    text += ": " + result.at("about").get<std::string>();
  }
  return text + "\n\n" + rows_table(result) + ratios_table(result) + expectations_table(result) +
         (all ? figures_table(result) : "") + "\n" + method(result);
}

std::string brief(const std::vector<Json>& measured) {
  std::vector<Json> results;
  for (const Json& result : measured) results.push_back(shown(result));
  bool over_alone = false;
  std::vector<std::string> header = {""};
  for (const Json& result : results) {
    for (const auto& [name, row] : result.at("figures").items()) {
      const bool alone = name.rfind("alone/", 0) == 0;
      const bool there = std::find(header.begin(), header.end(), name) != header.end();
      over_alone |= alone;
      if (!alone && !there) header.push_back(name);
    }
  }
  header[0] = std::string(over_alone ? "÷ alone, median" : "Median") + " over repetitions" +
              " [95 % where wider than ± 10 %]; n: slices of 1 s";
  header.emplace_back("n");
  Table table(header);
  for (const Json& result : results) {
    for (const Json& job : result.at("jobs")) {
      const std::string name = job.at("name");
      // Of requests that come by themselves as many are served as come: their time tells.
      const bool timed = job.at("role") == "latency" || job.contains("requests");
      const auto line = [&](const char* title, const std::vector<const char*>& path) {
        return brief_line(result, header, {name + title, name, path});
      };
      if (!over_alone) {
        table.row(timed ? line(" mean ms", {"jct_ms", "mean"}) : line(" / s", {"per_s"}));
        if (timed) table.row(line(" CV", {"cv"}));
        continue;
      }
      const auto relative =
          timed ? line(" mean", {"mean_over_alone"}) : line(" rate", {"per_s_over_alone"});
      table.row(relative);
      if (timed && judged_by_timeslice(result)) {
        table.row(line(" mean ÷ time-slicing", {"mean_over_timeslice"}));
      }
      const bool promised = job.contains("slowdown_max") || job.contains("slowdown_p99_max");
      if (timed) table.row(line(" p99", {"p99_over_alone"}));
      const auto tokens = line(" TBT p99", {"tbt_p99_over_alone"});
      if (tokens.back() != "–") table.row(tokens);
      if (job.at("role") == "latency") {
        table.row(line(" in 1.1 p99", {"in_1.1_p99"}));
        table.row(line(" in 1.25 p99", {"in_1.25_p99"}));
      }
      if (promised) table.row(line(" promise kept", {"promise_kept"}));
      // Of bare jobs both are the same.
      const auto itself = line(" mean ÷ itself alone", {"mean_over_self"});
      bool differs = false;
      for (size_t i = 1; i + 1 < itself.size(); ++i) {
        differs |= itself[i] != "–" && itself[i] != relative[i];
      }
      if (timed && differs) table.row(itself);
    }
    const Json& jobs = result.at("jobs");
    const auto latency = [](const Json& job) { return job.at("role") == "latency"; };
    if (!over_alone || std::any_of(jobs.begin(), jobs.end(), latency)) continue;
    table.row(brief_line(result, header, {"throughput", "", {"throughput_over_alone"}}));
    table.row(brief_line(result, header, {"worst p95", "", {"worst_p95_over_alone"}}));
  }
  std::string text = header.size() == 2 ? "No row has a figure yet.\n" : table.text();
  text += results.size() == 1 ? expectations_table(results[0]) : expectations_brief(results);
  for (const Json& result : results) {
    text += (&result == results.data() ? "\n- **" : "- **") + result.at("name").get<std::string>() +
            "**: " + origin(result) + "." + findings(result) + "\n";
  }
  return text;
}

int print_tables(const std::vector<std::string>& files, const TableStyle& style) {
  std::vector<Json> results;
  for (const std::string& file : files) {
    Json result = read_json(file);
    if (result.value("benchmark", "") != "scenario") {
      throw std::runtime_error(file + ": no result of heddle-bench run");
    }
    result = whole({file}, [&] { return figured(std::move(result), file); });
    if (!result.contains("figures")) {
      throw std::runtime_error(file + ": was cut short before its figures; finish it by --resume");
    }
    results.push_back(std::move(result));
  }
  if (!style.wide && !style.all) {
    std::cout << whole(files, [&] { return brief(results); });
    return 0;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string text = whole({files[i]}, [&] { return markdown(results[i], style.all); });
    std::cout << (i == 0 ? "" : "\n") << text;
  }
  return 0;
}

}  // namespace heddle::bench
