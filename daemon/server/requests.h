// Answers to the command line: JSON documents, which `heddle` formats. All users may look
// (containers see no command lines); only the privileged (origin.h) may change settings.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "daemon/server/config_changes.h"
#include "daemon/server/connections.h"
#include "daemon/server/engine.h"
#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "daemon/server/mps_watch.h"
#include "daemon/server/parking.h"
#include "daemon/server/policy_changes.h"
#include "ipc/socket.h"

namespace heddle::server {

// Facts for the answers about the process rather than its engine.
struct ServerFacts {
  std::string socket;
  core::TimeNs started_at = 0;
  uint64_t naps = 0;
  const Config* config = nullptr;  // as it was at the start
  Log* log = nullptr;
  const Connections* connections = nullptr;
  const ConfigChanges* config_changes = nullptr;
  PolicyChanges* policy_changes = nullptr;
  const MpsWatch* mps = nullptr;
  const MemoryAccounts* memory = nullptr;
  const Parking* parking = nullptr;
};

// The asker: the connection, and its peer by the kernel.
struct Asker {
  int socket;
  const ipc::Peer& peer;
};

// {managed, wanted, pipe_directory, log_directory, answers, pid, shares_cgroup, servers: [{pid,
// uid, clients: [{pid, uid}]}], waiting: [{pid, uid}], error}; a uid is null if it cannot be seen
// from here.
nlohmann::json mps_json(const MpsWatch& mps);

// Whether the request changes the policy, which may wait for a disk. answer() only checks whether
// the asker may do so; the server does the rest.
bool is_policy_order(Request::Kind kind);
Reply after_policy_change(const Result<void>& result, core::TimeNs now, const ServerFacts& facts,
                          const Engine& engine, const PolicyStore& store);
Reply policy_list(nlohmann::json policies, const Engine& engine);

// These answers are too long for a packet, and are sent as a memfd.
Reply show_profile(const Engine& engine, const ProfileStore& profiles, core::ClientId id,
                   Descriptor& memory);
Reply show_policy(const Engine& engine, const PolicyStore& store, Descriptor& memory);
Reply show_shadow(const Engine& engine, Descriptor& memory);

Reply answer(const Request& request, const Asker& asker, core::TimeNs now, ServerFacts& facts,
             Engine& engine, PolicyStore& store, const ProfileStore& profiles);

}  // namespace heddle::server
