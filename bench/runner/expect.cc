#include "bench/runner/expect.h"

#include <algorithm>
#include <optional>
#include <sstream>

namespace heddle::bench {
namespace {

using scenario::Expectation;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The value of a figure: an object with its interval, or a number.
double value_of(const Json& figure) {
  return figure.is_object() ? figure.at("value").get<double>() : figure.get<double>();
}

class Judge {
 public:
  Judge(const scenario::Scenario& scenario, const std::vector<Row>& rows,
        const std::vector<Block>& blocks, const Json& figures, const Json& idle)
      : scenario_(scenario), rows_(rows), blocks_(blocks), figures_(figures), idle_(idle) {}

  Json operator()(const Expectation& e) const {
    Json out = {{"expected", e.text}, {"source", e.source}, {"met", nullptr}};
    const auto unknown = [&](const std::string& why) {
      out["why"] = why;
      return out;
    };
    if (!figures_.contains(e.row)) return unknown("row " + e.row + " was not measured");
    double bound = e.bound;
    if (!e.idle_of.empty()) {
      if (!idle_.contains(e.idle_of)) return unknown("no profile of " + e.idle_of + " alone");
      bound *= idle_of(idle_[e.idle_of]);
    }
    std::string over = e.over;
    if (over == "static") {
      const auto mine = over_alone(e.row, first_latency(), "mean_over_alone");
      if (!mine) return unknown("no latency job was measured in " + e.row);
      over = best_static(words_of(e.figure)[0], *mine);
      if (over.empty()) {
        out["met"] = true;
        return unknown("no thread percentage or split keeps the latency job as low");
      }
      out["over"] = over;
    }
    const Json got = over.empty() ? figure(e) : ratio(e, over);
    if (got.contains("few")) return unknown("too few requests: " + got["few"].dump());
    if (got.is_object() && got.value("n", kForInterval) < kForInterval) {
      return unknown("too few slices: " + got["n"].dump());
    }
    if (got.is_null())
      return unknown(e.figure + " was not measured" +
                     (over.empty() ? "" : " in the repetitions of " + over));
    out["value"] = value_of(got);
    if (got.is_object()) out.update({{"lo", got["lo"]}, {"hi", got["hi"]}});
    out["bound"] = bound;
    out["met"] = e.at_most ? value_of(got) <= bound : value_of(got) >= bound;
    return out;
  }

 private:
  // By its path, as `table --all` prints it: "H jct_ms mean", or "stp" of the row.
  Json figure(const Expectation& e) const {
    const Json* found = &figures_[e.row];
    const std::vector<std::string> words = words_of(e.figure);
    if (found->at("jobs").contains(words[0])) found = &found->at("jobs");
    for (const std::string& word : words) {
      // Counters that did not grow are left out.
      if (found->is_object() && !found->contains(word) && words[0] == "counters") return 0;
      if (!found->is_object() || !found->contains(word)) return nullptr;
      found = &found->at(word);
    }
    return found->is_number() || found->contains("lo") || found->contains("few") ? *found : Json();
  }

  Json ratio(const Expectation& e, const std::string& over) const {
    const std::vector<std::string> words = words_of(e.figure);
    if (words.size() != 2) return nullptr;
    const auto each = paired(scenario_, rows_, blocks_, {e.row, over, words[0], words[1]});
    return each.each.empty() ? Json() : to_json(median(each));
  }

  std::optional<double> over_alone(const std::string& row, const std::string& job,
                                   const char* key) const {
    const Json& jobs = figures_[row]["jobs"];
    if (!jobs.contains(job) || !jobs[job].contains(key)) return std::nullopt;
    return value_of(jobs[job][key]);
  }

  std::string first_latency() const {
    for (const scenario::Job& job : scenario_.jobs) {
      if (job.role == scenario::Role::kLatency) return job.name;
    }
    return "";
  }

  // Of those under which the first latency job takes at most `slowdown` times as long as alone.
  std::string best_static(const std::string& job, double slowdown) const {
    std::string best;
    double most = 0;
    for (const Row& row : rows_) {
      const bool fixed = row.name.rfind("mps:", 0) == 0 || row.name.rfind("split:", 0) == 0;
      if (!fixed || !figures_.contains(row.name)) continue;
      const auto theirs = over_alone(row.name, first_latency(), "mean_over_alone");
      const auto rate = over_alone(row.name, job, "per_s_over_alone");
      if (!theirs || !rate || *theirs > slowdown || *rate <= most) continue;
      most = *rate;
      best = row.name;
    }
    return best;
  }

  const scenario::Scenario& scenario_;
  const std::vector<Row>& rows_;
  const std::vector<Block>& blocks_;
  const Json &figures_, &idle_;
};

}  // namespace

Json judge(const scenario::Scenario& scenario, const std::vector<Row>& rows,
           const std::vector<Block>& blocks, const Json& figures, const Json& idle) {
  const Judge one(scenario, rows, blocks, figures, idle);
  Json out = Json::array();
  for (const Expectation& e : scenario.expect) out.push_back(one(e));
  return out;
}

Json idle_fractions(const scenario::Scenario& scenario, const std::vector<Block>& blocks,
                    const Json& profiles) {
  Json out = Json::object();
  for (const scenario::Job& job : scenario.jobs) {
    const Json p = profiles.value(job.name, Json::object());
    const double kernel_s = p.value("kernel_s", 0.0), wall_s = p.value("wall_s", 0.0);
    const double iterations = p.value("iterations", 0.0);
    if (wall_s <= 0 || iterations <= 0) continue;
    // The profiler's run is a closed loop, whatever the arrivals.
    const bool closed = job.arrivals.kind == scenario::ArrivalKind::kClosed;
    if (closed) out[job.name]["traced"] = rounded(std::max(0.0, 1 - kernel_s / wall_s));
    for (const bool mps : {false, true}) {
      std::vector<double> idle;
      for (const Block& block : blocks) {
        if (block.row != alone_name(job.name, mps)) continue;
        const Samples& samples = block.jobs.at(job.name);
        if (samples.span_s <= 0) continue;
        idle.push_back(std::max(0.0, 1 - kernel_s / iterations * rate(samples)));
      }
      if (idle.empty()) continue;
      const size_t slices = slices_in(scenario.block_s);
      out[job.name]["untraced"] = to_json(share(of_blocks(median(idle), slices)));
      break;
    }
  }
  return out;
}

double idle_of(const Json& job) {
  return job.contains("traced") ? job["traced"].get<double>()
                                : job["untraced"].at("value").get<double>();
}

}  // namespace heddle::bench
