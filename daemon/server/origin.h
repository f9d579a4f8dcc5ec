// Who a connected process is, in the kernel's words: what rules go by. Numbers are as the daemon's
// own namespaces see them; what they do not see is left out, never guessed, and `unseen` says why.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ipc/socket.h"

namespace heddle::server {

struct Origin {
  pid_t pid = 0;             // 0: of a PID namespace that the daemon's does not contain
  bool local = false;        // of the daemon's own PID namespace, not of a container's
  std::optional<uid_t> uid;  // none: a user whom the daemon's user namespace does not map
  std::vector<gid_t> gids;   // the effective one first; unmapped ones are left out
  std::string exe;           // as the process' own mount namespace names it, "" if it is not seen
  std::vector<std::string> cgroups;  // paths in all hierarchies, v1 and v2; empty if not seen
  std::string unseen;                // what is missing and why, "" if nothing is
};

// Reads /proc behind a pidfd: facts of a process that ended meanwhile, whose number may be
// another's by now, are dropped. `socket` is the connection that `peer` was taken from.
Origin origin_of(int socket, const ipc::Peer& peer);

// Who shares what a user may take of places: his processes of one PID namespace and of the same
// cgroups. Those of which neither is seen are together.
struct Container {
  uid_t uid = 0;
  std::string pid_namespace, cgroups;  // "": not seen
  bool operator==(const Container&) const = default;
};
Container container_of(const ipc::Peer& peer);

// False without a pidfd (-1): nothing is known then.
bool has_ended(int pidfd);

// Of the daemon's own PID namespace?
bool is_local(const ipc::Peer& peer);

// Root or the daemon's own user in the daemon's own PID namespace: who may change things, and whom
// no limit holds. Root of a container without a user namespace is uid 0 to the socket as well.
bool is_privileged(const ipc::Peer& peer);

// The paths in the text of a /proc/PID/cgroup, each once.
std::vector<std::string> cgroup_paths(const std::string& text);

}  // namespace heddle::server
