#include "daemon/server/stop_answers.h"

#include <time.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "daemon/base/json.h"
#include "daemon/base/read_file.h"
#include "daemon/base/replace_file.h"
#include "daemon/base/utc_text.h"
#include "daemon/server/driver_gpus.h"

namespace heddle::server {
namespace {

using nlohmann::json;

constexpr size_t kFileMost = 256 << 10;
constexpr size_t kAnswersMost = 256;  // GPUs come and go; the oldest make room
constexpr const char* kRemedy = "remove it, then heddle doctor --stop";

// Failed: what is there is none.
Result<StopAnswer> parse(const json& from) {
  try {
    StopAnswer answer;
    const auto text = [&](const char* key) { return from.value(key, std::string()); };
    answer.gpu = text("gpu");
    answer.name = text("name");
    answer.driver = text("driver");
    answer.at = text("at");
    answer.why = text("why");
    answer.stop_us = from.value("stop_us", 0.0);
    answer.go_us = from.value("go_us", 0.0);
    answer.slice_ratio = from.value("slice_ratio", 0.0);
    const std::string said = text("answer");
    answer.yes = said == "yes";
    if (said == "not asked") return fail(answer.why);
    if ((!answer.yes && said != "no") || !parse_gpu_id(answer.gpu)) return fail("no answer");
    return answer;
  } catch (const json::exception& error) {
    return fail(error.what());
  }
}

json to_json(const StopAnswer& a) {
  return {{"gpu", a.gpu},
          {"name", a.name},
          {"driver", a.driver},
          {"at", a.at},
          {"answer", a.yes ? "yes" : "no"},
          {"why", a.why},
          {"stop_us", a.stop_us},
          {"go_us", a.go_us},
          {"slice_ratio", a.slice_ratio}};
}

}  // namespace

// The first word that is made of digits and more than one dot, or one: "580.159.04".
std::string kernel_driver(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos) {
      return word;
    }
  }
  return "";
}

std::string stop_probe_path() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "libexec/heddle/heddle-stop-probe").string();
}

Result<StopAnswer> parse_probe(const std::string& printed) {
  const json said = parse_json(printed);
  if (!said.is_object()) return fail("heddle-stop-probe ended without an answer");
  Result<StopAnswer> answer = parse(said);
  if (!answer) return answer;
  answer->driver = kernel_driver();
  answer->at = utc_text(time(nullptr));
  return answer;
}

Result<std::vector<StopAnswer>> read_stops(const std::string& file) {
  std::vector<StopAnswer> answers;
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error)) return answers;
  const Result<std::string> text = read_file(file, kRemedy, kFileMost);
  if (!text) return fail(text.error().message);
  const json all = parse_json(*text);
  if (!all.is_array()) return fail(file + ": is no list of answers; " + kRemedy);
  for (const json& each : all) {
    Result<StopAnswer> answer =
        each.is_object() ? parse(each) : Result<StopAnswer>(fail("no answer"));
    if (!answer) return fail(file + ": " + answer.error().message + "; " + kRemedy);
    answers.push_back(std::move(*answer));
  }
  return answers;
}

Result<void> keep_stop(const std::string& file, const StopAnswer& answer) {
  Result<std::vector<StopAnswer>> kept = read_stops(file);
  std::vector<StopAnswer> all = kept ? std::move(*kept) : std::vector<StopAnswer>();
  std::erase_if(all, [&](const StopAnswer& other) { return other.gpu == answer.gpu; });
  if (all.size() >= kAnswersMost) all.erase(all.begin());
  all.push_back(answer);
  const std::string text =
      stops_json(all).dump(1, ' ', false, json::error_handler_t::replace) + '\n';
  return replace_file(file, text, 0644);
}

json stops_json(const std::vector<StopAnswer>& answers) {
  json all = json::array();
  for (const StopAnswer& answer : answers) all.push_back(to_json(answer));
  return all;
}

StopAnswers::StopAnswers(StopsSetting setting, const std::string& state)
    : setting_(setting),
      file_(state.empty() ? "" : state + '/' + kStopsFile),
      driver_(kernel_driver()) {
  take(read_stops(file_));
}

bool StopAnswers::take(Result<std::vector<StopAnswer>> answers) {
  const std::vector<StopAnswer> before = std::move(answers_);
  const std::string error = std::exchange(error_, answers ? "" : answers.error().message);
  answers_ = answers ? std::move(*answers) : std::vector<StopAnswer>();
  const auto counts = [&](const StopAnswer& answer) {
    return answer.driver == driver_ || parse_gpu_id(answer.gpu) == kSimulatedGpu;
  };
  std::erase_if(answers_, [&](const StopAnswer& answer) { return !counts(answer); });
  able_.clear();
  if (of(kSimulatedGpu) == nullptr) able_.push_back(kSimulatedGpu);
  for (const StopAnswer& answer : answers_) {
    if (answer.yes) able_.push_back(*parse_gpu_id(answer.gpu));
  }
  return answers_ != before || error_ != error;
}

const StopAnswer* StopAnswers::of(const GpuId& gpu) const {
  const auto found = std::find_if(answers_.begin(), answers_.end(), [&](const StopAnswer& answer) {
    return parse_gpu_id(answer.gpu) == gpu;
  });
  return found != answers_.end() ? &*found : nullptr;
}

}  // namespace heddle::server
