// Environment variables that say yes or no. They are read only when the driver is loaded and at the
// first cuInit: later the program's own threads may be changing the environment.
#pragma once

#include <stdlib.h>
#include <string.h>

namespace heddle::shim {

inline bool is_set(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

inline bool is_off(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr && strcmp(value, "0") == 0;
}

}  // namespace heddle::shim
