#include "daemon/server/log.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// Whether the journal reads standard error, and adds the time itself: systemd names its stream.
bool goes_to_journal() {
  const char* stream = getenv("JOURNAL_STREAM");
  struct stat error;
  if (stream == nullptr || fstat(STDERR_FILENO, &error) != 0) return false;
  return std::to_string(error.st_dev) + ':' + std::to_string(error.st_ino) == stream;
}

constexpr std::chrono::seconds kLastWords(1);

// Text that standard error does not take (the disk is full, or the reader has gone) is lost.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {  // another process made it non-blocking
      pollfd writable{STDERR_FILENO, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// spdlog's own sink holds the lock of standard error while it waits for a reader.
class ErrorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::atomic<bool> flushed{false};

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_all({line.data(), line.size()});
  }
  void flush_() override { flushed = true; }
};

std::shared_ptr<spdlog::details::thread_pool> one_thread() {
  sigset_t all, before;  // signals are the loop's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto pool = std::make_shared<spdlog::details::thread_pool>(Log::kLines, 1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pool;
}

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
    : thread_(one_thread()),
      logger_(
          std::make_shared<spdlog::async_logger>("heddled", std::make_shared<ErrorSink>(), thread_,
                                                 spdlog::async_overflow_policy::overrun_oldest)) {
  logger_->set_level(to_spdlog(least));
  logger_->set_pattern(goes_to_journal() ? "level=%l %v" : "time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v",
                       spdlog::pattern_time_type::utc);
}

Log::~Log() {
  end_window();
  logger_->flush();
  const auto until = std::chrono::steady_clock::now() + kLastWords;
  const auto& sink = static_cast<const ErrorSink&>(*logger_->sinks().front());
  while (!sink.flushed && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (sink.flushed) return;
  // The writing thread may hang in a write, so it outlives the log, until the process ends.
  static auto* const outlive = new std::vector<std::shared_ptr<spdlog::details::thread_pool>>();
  outlive->push_back(std::move(thread_));
}

uint64_t Log::lost() const { return thread_->overrun_counter(); }

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
  if (const uint64_t count = lost(); count != std::exchange(told_lost_, count)) {
    warning("log_lines_lost", {{"in_all", count}});
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
