// Answers to the command line: JSON documents, which `heddle` formats. Anybody may look (containers
// at all but command lines); only the privileged (origin.h) may change anything.
#pragma once

#include <string>

#include "daemon/server/engine.h"
#include "daemon/server/messages.h"
#include "ipc/socket.h"

namespace heddle::server {

// What the answers say of the process rather than of its engine.
struct ServerFacts {
  std::string socket;
  core::TimeNs started_at = 0;
  uint64_t naps = 0;
  uint64_t connections = 0;
  const Config* config = nullptr;
};

// Who asks: the connection, and whom the kernel says is behind it.
struct Asker {
  int socket;
  const ipc::Peer& peer;
};

Reply answer(const Request& request, const Asker& asker, core::TimeNs now, const ServerFacts& facts,
             Engine& engine, PolicyStore& store, const ProfileStore& profiles);

}  // namespace heddle::server
