// Structured logs: one event a line in logfmt,
// `time=2026-11-29T03:40:00.123Z level=info event=client_attached pid=7 ...`; the journal has its
// own time, so that it gets none. Levels say who must read them: error: the administrator must act;
// warning: should look; info: what happened; debug: for who develops heddle. Nothing on the launch
// path logs, and who logs never waits: a thread of its own writes the lines, and what it cannot
// write in time is dropped, the oldest first, and counted. So is what one user's programs cause too
// often.
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

// A key and its value. The text is only read during the call that it is passed to.
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

// Writes to standard error. Text that came from a client is quoted and escaped, so that a label
// cannot forge a line.
class Log {
 public:
  using Fields = std::initializer_list<Field>;
  static constexpr size_t kLines = 2048;  // that wait; the oldest beyond are lost

  explicit Log(LogLevel least);
  // Waits a second at most for what is still to be written.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(std::string_view event, Fields fields = {}) { write(LogLevel::kDebug, event, fields); }
  void info(std::string_view event, Fields fields = {}) { write(LogLevel::kInfo, event, fields); }
  void warning(std::string_view event, Fields fields = {}) {
    write(LogLevel::kWarning, event, fields);
  }
  void error(std::string_view event, Fields fields = {}) { write(LogLevel::kError, event, fields); }
  // The same of what a client can cause as often as it likes: its user has so many lines in ten
  // seconds (log_limit.h). What is beyond is counted, and told by tell_left_out().
  void info(Causer by, std::string_view event, Fields fields) {
    if (admits(LogLevel::kInfo, by, event)) info(event, fields);
  }
  void warning(Causer by, std::string_view event, Fields fields) {
    if (admits(LogLevel::kWarning, by, event)) warning(event, fields);
  }

  // To be called now and then, while it says that anything was left out.
  bool left_out() const { return limit_.left_out(); }
  void tell_left_out();

  // Lines that were lost so far; a line says so too.
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

// `text` as it stands if it needs no quoting, else in double quotes with escapes.
std::string quoted(std::string_view text);

}  // namespace heddle::server
