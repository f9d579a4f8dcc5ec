#include "daemon/server/stop_asking.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/utc_text.h"
#include "daemon/server/gpus.h"

namespace heddle::server {
namespace {

using nlohmann::json;

constexpr size_t kFileMost = 256 << 10;
constexpr size_t kAnswersMost = 256;  // GPUs come and go; the oldest answers make room
constexpr const char* kRemedy = "remove it, then heddle doctor --stop";

// Failed: the JSON is no answer.
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

StopAsking::StopAsking(uv_loop_t* loop, const Config& config, const GpuNumbers& gpus,
                       StopAnswers& answers, Jobs& jobs, Log& log)
    : loop_(loop), config_(config), gpus_(gpus), answers_(answers), jobs_(jobs), log_(log) {
  if (answers_.file().empty()) return;
  const std::string folder = std::filesystem::path(answers_.file()).parent_path().string();
  watch_ = std::make_unique<DirectoryWatch>(loop, folder, [this](const char* name) {
    if (std::string_view(name) == kStopsFile) reread();
  });
}

StopAsking::~StopAsking() {
  if (process_) uv_process_kill(process_->get(), SIGKILL);
}

void StopAsking::begin(size_t count) {
  count_ = std::min<size_t>(count, ipc::kDevices);
  tell();
  if (answers_.setting() != StopsSetting::kAsked || count_ == 0) return;
  if (access("/dev/nvidiactl", F_OK) != 0) return not_asked("no /dev/nvidiactl here");
  // The probe would be a client of MPS, and might keep others out.
  const bool mps = config_.gpu_mode == GpuMode::kMps || config_.mps.manage ||
                   access((config_.mps.pipe_directory + "/control").c_str(), F_OK) == 0;
  if (mps) return not_asked("MPS is on the GPU");
  ask_next();
}

void StopAsking::reread() {
  auto read = std::make_shared<Result<std::vector<StopAnswer>>>();
  jobs_.add([this, read] { *read = read_stops(answers_.file()); },
            [this, read] { take(std::move(*read)); });
}

void StopAsking::take(Result<std::vector<StopAnswer>> answers) {
  if (!answers_.take(std::move(answers))) return;
  bool all = true;
  for (size_t i = 0; i < count_; ++i) {
    all &= answers_.of(gpus_.id(static_cast<uint8_t>(i))) != nullptr;
  }
  if (all) answers_.set_not_asked("");  // another process has asked
  tell();
}

void StopAsking::tell() const {
  if (answers_.setting() != StopsSetting::kAsked) return;
  if (!answers_.error().empty()) {
    log_.warning("stops_not_read", {{"error", answers_.error()}});
  }
  for (const StopAnswer& answer : answers_.all()) {
    log_.info("stops", {{"gpu", answer.gpu},
                        {"answer", answer.yes ? "yes" : "no"},
                        {"why", answer.why},
                        {"stop_us", answer.stop_us},
                        {"go_us", answer.go_us},
                        {"asked", answer.at}});
  }
}

void StopAsking::not_asked(const std::string& why) {
  answers_.set_not_asked(why);
  log_.warning("stops_not_asked", {{"why", why}, {"hint", "heddle doctor --stop"}});
}

void StopAsking::ask_next() {
  while (next_ < count_ && answers_.of(gpus_.id(static_cast<uint8_t>(next_))) != nullptr) ++next_;
  if (next_ == count_) return;
  std::string program = stop_probe_path(), option = "--gpu";
  std::string gpu = gpus_.text(static_cast<uint8_t>(next_++));
  char* arguments[] = {program.data(), option.data(), gpu.data(), nullptr};
  printed_ = Descriptor(memfd_create("heddle-stop-probe", MFD_CLOEXEC));
  uv_stdio_container_t files[3] = {};
  files[0].flags = files[2].flags = UV_IGNORE;
  files[1].flags = UV_INHERIT_FD;
  files[1].data.fd = printed_.get();
  uv_process_options_t options{};
  options.file = program.c_str();
  options.args = arguments;
  options.stdio = files;
  options.stdio_count = 3;
  options.exit_cb = [](uv_process_t* process, int64_t status, int) {
    Process::call(process->data, status);
  };
  process_ = std::make_unique<Process>([this](int64_t) { ended(); });
  if (const int error = uv_spawn(loop_, process_->get(), &options); error != 0) {
    process_.reset();
    not_asked(program + ": " + uv_strerror(error));
  }
}

void StopAsking::ended() {
  char text[2048];
  const ssize_t size = pread(printed_.get(), text, sizeof text, 0);
  const Result<StopAnswer> answer =
      parse_probe(std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0))));
  process_.reset();
  if (!answer) {
    not_asked(answer.error().message);
    return ask_next();
  }
  answers_.set_not_asked("");
  auto error = std::make_shared<std::string>();
  jobs_.add(
      [this, error, answer = *answer] {
        if (answers_.file().empty()) return;
        if (const auto kept = keep_stop(answers_.file(), answer); !kept) {
          *error = kept.error().message;
        }
      },
      [this, error, answer = *answer] {
        if (!error->empty()) log_.warning("stops_not_kept", {{"error", *error}});
        std::vector<StopAnswer> all = answers_.all();
        std::erase_if(all, [&](const StopAnswer& other) { return other.gpu == answer.gpu; });
        all.push_back(answer);
        take(std::move(all));
        ask_next();
      });
}

// The first word of digits and dots, with at least one dot: "580.159.04".
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
