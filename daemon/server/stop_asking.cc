#include "daemon/server/stop_asking.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace heddle::server {

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
  // Who asks would be a client of it, and might keep others out.
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
  if (all) answers_.set_not_asked("");  // somebody else has asked
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

}  // namespace heddle::server
