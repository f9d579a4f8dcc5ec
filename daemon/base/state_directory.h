// Where heddled keeps what it remembers, and heddle looks where no heddled says it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace heddle {

// What systemd made for us, or the usual place; "" if there is none. It may not be there yet.
inline std::string state_directory() {
  if (const char* given = getenv("STATE_DIRECTORY")) return given;
  if (geteuid() == 0) return "/var/lib/heddle";
  if (const char* state = getenv("XDG_STATE_HOME")) return std::string(state) + "/heddle";
  if (const char* home = getenv("HOME")) return std::string(home) + "/.local/state/heddle";
  return "";
}

}  // namespace heddle
