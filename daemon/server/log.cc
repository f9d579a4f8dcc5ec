#include "daemon/server/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/server/log_writer.h"

namespace heddle::server {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

int64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// The journal has the time of each line: systemd names the stream that it reads.
bool goes_to_journal() {
  const char* stream = getenv("JOURNAL_STREAM");
  struct stat error;
  if (stream == nullptr || fstat(STDERR_FILENO, &error) != 0) return false;
  return std::to_string(error.st_dev) + ':' + std::to_string(error.st_ino) == stream;
}

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit WriterSink(std::shared_ptr<LogWriter> writer) : writer_(std::move(writer)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    writer_->put({line.data(), line.size()});
  }
  void flush_() override {}

  const std::shared_ptr<LogWriter> writer_;
};

}  // namespace

std::string quoted(std::string_view text) {
  std::string out;
  bool escaped = text.empty() || text.find_first_of(" \"=\\") != std::string_view::npos;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      escaped = true;
    } else {
      out += c;
    }
  }
  return escaped ? '"' + out + '"' : out;
}

Log::Log(LogLevel least)
    : writer_(LogWriter::start()),
      logger_(std::make_unique<spdlog::logger>("heddled", std::make_shared<WriterSink>(writer_))) {
  logger_->set_level(to_spdlog(least));
  logger_->set_pattern(goes_to_journal() ? "level=%l %v" : "time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v",
                       spdlog::pattern_time_type::utc);
}

Log::~Log() {
  end_window();
  writer_->stop();
}

uint64_t Log::lost() const { return writer_->lost(); }

bool Log::admits(LogLevel level, Causer by, std::string_view event) {
  if (!logger_->should_log(to_spdlog(level))) return false;
  tell_left_out();
  return limit_.admits(by, event, steady_ns());
}

void Log::tell_left_out() {
  if (limit_.due(steady_ns())) end_window();
}

void Log::end_window() {
  for (const auto& [by, left_out] : limit_.take()) {
    warning("lines_left_out", {{"uid", by == kSomeClient ? -1 : int64_t{by.uid}},
                               {"privileged", by.privileged},
                               {"more", left_out.more},
                               {"last", left_out.event}});
  }
}

void Log::write(LogLevel level, std::string_view event, Fields fields) {
  if (!logger_->should_log(to_spdlog(level))) return;
  if (const uint64_t lost = writer_->lost(); lost != std::exchange(told_lost_, lost)) {
    warning("log_lines_lost", {{"in_all", lost}});
  }
  std::string line = "event=" + std::string(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      line += quoted(*text);
    } else if (const auto* number = std::get_if<int64_t>(&field.value)) {
      line += std::to_string(*number);
    } else {
      line += fmt::format("{:.3f}", std::get<double>(field.value));
    }
  }
  logger_->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace heddle::server
