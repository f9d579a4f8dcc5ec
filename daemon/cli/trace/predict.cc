// `heddle trace predict`: how well the core predicts what traces show.
#include <cmath>
#include <cstdio>
#include <iostream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/trace/trace.h"
#include "daemon/trace/predict.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

json errors(const std::vector<trace::Prediction>& predictions) {
  const trace::ErrorSummary s = trace::errors_of(predictions);
  return {{"count", s.count},
          {"known", s.known},
          {"error_p50_us", s.median_us},
          {"error_mean_us", s.mean_us},
          {"error_p50_relative", s.relative_median},
          {"bias_us", s.bias_us}};
}

json gaps(const std::vector<trace::Prediction>& predictions) {
  const trace::GapSummary s = trace::gaps_of(predictions);
  return {{"count", s.count},
          {"known", s.known},
          {"real_us", s.real_us},
          {"useful", s.useful},
          {"missed", s.missed},
          {"overshoot_p50_us", s.overshoot_p50_us},
          {"overshoot_p90_us", s.overshoot_p90_us}};
}

json figures(const trace::TaskPredictions& t) {
  return {{"name", t.name},
          {"seconds", t.seconds},
          {"launches", t.launches},
          {"idle", t.idle()},
          {"durations", errors(t.durations)},
          {"gaps_synchronized", gaps(t.gaps_synchronized)},
          {"gaps_launching", gaps(t.gaps_launching)},
          {"queue_ends", errors(t.queue_ends)},
          {"prompt_ends", t.prompt_ends},
          {"prompt_overrun", t.prompt_overrun}};
}

// A number of the width of its column; a dash for nothing.
std::string cell(const json& value, int width, int digits, double times = 1) {
  char text[32];
  const bool none = value.is_null() || !std::isfinite(value.get<double>());
  if (none) {
    snprintf(text, sizeof text, "%*s", width, "-");
  } else {
    snprintf(text, sizeof text, "%*.*f", width, digits, value.get<double>() * times);
  }
  return text;
}

void print_errors(std::ostream& out, const char* what, const json& s) {
  out << "  " << what << cell(s["count"], 7, 0) << cell(s["known"], 7, 0)
      << cell(s["error_p50_us"], 9, 1) << cell(s["error_p50_relative"], 6, 0, 100) << '%'
      << cell(s["error_mean_us"], 9, 1) << cell(s["bias_us"], 10, 1) << '\n';
}

void print_gaps(std::ostream& out, const char* what, const json& s) {
  out << "  " << what << cell(s["count"], 7, 0) << cell(s["known"], 7, 0)
      << cell(s["real_us"], 9, 0) << cell(s["useful"], 6, 0, 100) << '%'
      << cell(s["missed"], 8, 0, 100) << '%' << cell(s["overshoot_p50_us"], 9, 1) << ' '
      << cell(s["overshoot_p90_us"], 8, 1) << '\n';
}

void print(std::ostream& out, const json& t) {
  out << printable(t["name"]) << ": " << t["launches"] << " launches, believed idle"
      << cell(t["idle"], 3, 0, 100) << "%\n"
      << "                   count  known   p50 us    rel  mean us   bias us\n";
  print_errors(out, "durations        ", t["durations"]);
  print_errors(out, "queue ends       ", t["queue_ends"]);
  out << "                   count  known  real us useful   missed  over p50      p90\n";
  print_gaps(out, "gaps synchronized", t["gaps_synchronized"]);
  print_gaps(out, "gaps launching   ", t["gaps_launching"]);
  out << "  " << t["prompt_overrun"] << " of " << t["prompt_ends"]
      << " synchronizing calls that returned at once found it thought busy\n";
}

}  // namespace

int trace_predict(const TraceOptions& options) {
  json tasks = json::array();
  trace::TaskPredictions all;
  for (const std::string& file : options.files) {
    Result<trace::Reader> reader = trace::Reader::open(file);
    if (!reader) return show_error(options.as_json, {kFailed, reader.error().message, {}});
    const auto scored = trace::score_predictions(*reader);
    if (!scored) return show_error(options.as_json, {kFailed, scored.error().message, {}});
    for (const trace::TaskPredictions& t : *scored) {
      all.add(t);
      tasks.push_back(figures(t));
      tasks.back()["file"] = file;
    }
  }
  all.name = "all";
  if (options.as_json) {
    write_json({{"tasks", tasks}, {"all", figures(all)}});
    return kOk;
  }
  for (const json& t : tasks) print(std::cout, t);
  if (tasks.size() != 1) print(std::cout, figures(all));
  return kOk;
}

}  // namespace heddle::cli
