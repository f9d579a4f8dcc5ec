// Whether GPUs can stop kernels that run, in words: for status and doctor.
#include "daemon/cli/look/print.h"

namespace heddle::cli {

using nlohmann::json;

std::string stop_text(const json& answer) {
  const std::string asked = ", asked " + printable(answer.value("at", "").substr(0, 10));
  if (answer.at("answer") != "yes") return "no: " + printable(answer.at("why")) + asked;
  const double ms = (answer.value("stop_us", 0.0) + answer.value("go_us", 0.0)) / 1e3;
  return "yes, " + fixed("%.2f", ms) + " ms to stop and go on" + asked;
}

std::vector<std::string> stop_texts(const json& status) {
  if (!status.contains("stops")) return {};
  const json& stops = status.at("stops");
  if (stops.at("setting") != "asked") {
    return {stops.at("setting") == "on" ? "on for every GPU, by [gpu] stops"
                                        : "off, by [gpu] stops"};
  }
  std::vector<std::string> texts;
  for (const json& answer : stops.at("answers")) {
    texts.push_back(stop_text(answer) + " (" + printable(answer.at("name")) + ", " +
                    printable(answer.at("gpu")) + ")");
  }
  const std::string error = stops.at("error"), why = stops.at("not_asked");
  if (!error.empty()) {
    texts.push_back("not asked: " + printable(error));
  } else if (!why.empty() || texts.empty()) {
    texts.push_back("not asked yet" + (why.empty() ? "" : ": " + printable(why)) +
                    "; heddle doctor --stop");
  }
  return texts;
}

}  // namespace heddle::cli
