// The origin of a connected process by the kernel: the facts that rules match. Numbers are those of
// the daemon's own namespaces. Facts that cannot be seen are left out, never guessed, and `unseen`
// says why.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ipc/socket.h"

namespace heddle::server {

struct Origin {
  pid_t pid = 0;                     // 0: it is in a PID namespace outside of the daemon's
  bool local = false;                // in the daemon's own PID namespace, not in a container's
  std::optional<uid_t> uid;          // none: the daemon's user namespace does not map the user
  std::vector<gid_t> gids;           // the effective one first; unmapped ones are left out
  std::string exe;                   // path in the process's own mount namespace; "": not seen
  std::vector<std::string> cgroups;  // paths in all hierarchies, v1 and v2; empty: not seen
  std::string unseen;                // missing facts and the reason; "": none is missing
};

// Reads /proc, and checks the pidfd afterwards: if the process ended meanwhile, the facts are
// dropped, because its number may be another process's. `socket`: the connection that `peer` comes
// from.
Origin origin_of(int socket, const ipc::Peer& peer);

// The processes that share a user's part of the places: those of one PID namespace and of the same
// cgroups. Processes for which neither can be seen are one container.
struct Container {
  uid_t uid = 0;
  std::string pid_namespace, cgroups;  // "": not seen
  bool operator==(const Container&) const = default;
};
Container container_of(const ipc::Peer& peer);

// Whether the process has ended. False without a pidfd (-1).
bool has_ended(int pidfd);

// Whether the peer is in the daemon's own PID namespace.
bool is_local(const ipc::Peer& peer);

// Whether the peer is root or the daemon's own user in the daemon's own PID namespace: such a peer
// may change settings, and has no limits. The uid alone is not enough: root of a container without
// a user namespace has uid 0, too.
bool is_privileged(const ipc::Peer& peer);

// The paths in the text of a /proc/PID/cgroup, each once.
std::vector<std::string> cgroup_paths(const std::string& text);

}  // namespace heddle::server
