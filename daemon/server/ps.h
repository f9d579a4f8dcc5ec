// The answers about clients: `heddle ps`, and parts of it that other answers share.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "daemon/server/engine.h"
#include "daemon/server/origin.h"
#include "daemon/server/requests.h"
#include "ipc/limits.h"

namespace heddle::server {

// Room in a reply for the message around the document.
inline constexpr size_t kDocumentMax = ipc::kReplyBytes - 1024;

inline constexpr size_t kTextMax = 256;  // of a path or command that `heddle ps` shows

// Text that clients chose may be any bytes; JSON has only UTF-8.
std::string dump(const nlohmann::json& document);

// The reader of an answer. Only a process's own user and the administrator may see what it is; and
// a container sees no command lines but its own, because arguments may hold secrets.
struct Reader {
  explicit Reader(const Asker& asker)
      : uid(asker.peer.uid), local(is_local(asker.peer)), all(is_privileged(asker.peer)) {}
  bool owns(const Identity& who) const { return all || (uid == who.uid && uid != 0); }

  uid_t uid;
  bool local, all;
};

nlohmann::json terms_json(const Terms& terms);
// A client's promises, and how they were kept; null: it has none.
nlohmann::json promises_json(const core::ClientStatus& status);
// The bound of a client's gaps, and how often it was exceeded. The worst kernel belongs to another
// client: its name is "" unless `named`.
nlohmann::json bound_json(const core::ClientStatus& status, bool named);
// The clients with numbers above `after`, in order, as many as fit into `room` bytes. `truncated`:
// there are more. So no turn of the loop describes too many.
nlohmann::json ps_json(const Engine& engine, const ServerFacts& facts, const Reader& reader,
                       core::ClientId after, size_t room);

// `heddle explain`: why a client's launches wait, as JSON.
const char* decider_text(core::Decider decider);
// The channel that was charged most in the last block that broke the promise; "": none.
std::string_view channel_text(const core::PromiseStatus& promise);

// {client, devices: [{device, policy, generation, granted, waited, now: [...], past: [...]}]};
// null: there is no such client. Kernel names and policies' reasons are "" unless `named`.
nlohmann::json explain_json(const Engine& engine, core::ClientId id, bool named);

const char* stall_text(core::Staller by);
// {policy, client, gpu: how often; last: {by, client, waited, waited_us, stalled_us}}.
nlohmann::json stall_json(const core::Scheduler& scheduler);

}  // namespace heddle::server
