// Structured logs: one event a line in logfmt, `time=2026-11-29T03:40:00.123Z level=info
// event=client_attached pid=7 ...`. The journal has times of its own, so lines for it have none.
// Levels by audience: error: the administrator must act; warning: the administrator should look;
// info: events; debug: for developers of heddle. The launch path does not log, and a caller never
// waits: a thread of the log's own writes the lines. Lines that it cannot write in time are
// dropped, the oldest first, and counted. So are lines that one user's programs cause too often.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "daemon/server/log_limit.h"

namespace spdlog {
class async_logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace heddle::server {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// A key and its value. The text must live until the call returns.
struct Field {
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  Field(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
  Field(std::string_view k, bool v) : key(k), value(v ? int64_t{1} : int64_t{0}) {}
  Field(std::string_view k, double v) : key(k), value(v) {}
  template <std::integral T>
  Field(std::string_view k, T v) : key(k), value(static_cast<int64_t>(v)) {}

  std::string_view key;
  std::variant<std::string_view, int64_t, double> value;
};

// Writes to standard error. Text is quoted and escaped, so that a client's label cannot forge a
// line.
class Log {
 public:
  using Fields = std::initializer_list<Field>;
  static constexpr size_t kLines = 2048;  // the most that wait; beyond, the oldest are lost

  explicit Log(LogLevel least);
  // Waits for the lines that are left, a second at most.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(std::string_view event, Fields fields = {}) { write(LogLevel::kDebug, event, fields); }
  void info(std::string_view event, Fields fields = {}) { write(LogLevel::kInfo, event, fields); }
  void warning(std::string_view event, Fields fields = {}) {
    write(LogLevel::kWarning, event, fields);
  }
  void error(std::string_view event, Fields fields = {}) { write(LogLevel::kError, event, fields); }
  // The same for events that a client can cause at will: its user has a number of lines in ten
  // seconds (log_limit.h). Further lines are counted, and tell_left_out() reports them.
  void info(Causer by, std::string_view event, Fields fields) {
    if (admits(LogLevel::kInfo, by, event)) info(event, fields);
  }
  void warning(Causer by, std::string_view event, Fields fields) {
    if (admits(LogLevel::kWarning, by, event)) warning(event, fields);
  }

  // While left_out() is true, tell_left_out() is to be called at intervals.
  bool left_out() const { return limit_.left_out(); }
  void tell_left_out();

  // The number of lines lost so far; a log line says so, too.
  uint64_t lost() const;

 private:
  void write(LogLevel level, std::string_view event, Fields fields);
  bool admits(LogLevel level, Causer by, std::string_view event);
  void end_window();

  std::shared_ptr<spdlog::details::thread_pool> thread_;
  const std::shared_ptr<spdlog::async_logger> logger_;
  uint64_t told_lost_ = 0;
  LogLimit limit_;
};

// `text` as it is if it needs no quoting; otherwise in double quotes with escapes.
std::string quoted(std::string_view text);

}  // namespace heddle::server
