// Where the owner of the simulated GPU listens: $HEDDLE_SIM_SOCKET, else one per user.
#pragma once

#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace heddle::sim {

inline std::string socket_path() {
  if (const char* path = getenv("HEDDLE_SIM_SOCKET"); path != nullptr && *path != 0) return path;
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  const std::string directory = runtime != nullptr && *runtime != 0 ? runtime : "/tmp";
  return directory + "/heddle-sim-" + std::to_string(getuid()) + ".sock";
}

// False if the path is too long for a Unix socket.
inline bool socket_address(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

}  // namespace heddle::sim
