// The shim's log, which HEDDLE_LOG=stderr or a file's path turns on. Not for the launch path.
#pragma once

namespace heddle::shim {

// Writes one line of at most 512 bytes. Lines beyond 20 a second are dropped.
__attribute__((format(printf, 1, 2))) void log_line(const char* format, ...);

}  // namespace heddle::shim
