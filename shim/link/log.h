// HEDDLE_LOG=stderr or a file's path makes the shim speak. Never called on the launch path.
#pragma once

namespace heddle::shim {

// One line, at most 512 bytes and 20 lines a second; what is above that is dropped.
__attribute__((format(printf, 1, 2))) void log_line(const char* format, ...);

}  // namespace heddle::shim
