// What is told of clients: `heddle ps`, and what other answers say as it does.
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

inline constexpr size_t kTextMax = 256;  // of what `heddle ps` shows of a path or a command

// Text that clients chose may be any bytes; JSON has only UTF-8.
std::string dump(const nlohmann::json& document);

// What a process is, and for whom it works, is its user's and the administrator's to know; a
// container sees no command line but its own. Arguments may hold secrets.
struct Reader {
  explicit Reader(const Asker& asker)
      : uid(asker.peer.uid), local(is_local(asker.peer)), all(is_privileged(asker.peer)) {}
  bool owns(const Identity& who) const { return all || (uid == who.uid && uid != 0); }

  uid_t uid;
  bool local, all;
};

nlohmann::json terms_json(const Terms& terms);
// What its rule promised, and how it was kept; null: nothing.
nlohmann::json promises_json(const core::ClientStatus& status);
// How long others may hold up one of its gaps, and how often it was longer.
// The kernel that did it is another client's, "" unless `named`.
nlohmann::json bound_json(const core::ClientStatus& status, bool named);
// Clients whose numbers are above `after`, in their order, as many as have room in so many bytes:
// `truncated` says that there are more. No turn of the loop describes a whole crowd.
nlohmann::json ps_json(const Engine& engine, const ServerFacts& facts, const Reader& reader,
                       core::ClientId after, size_t room);

// `heddle explain`: why a client's launches wait, as JSON.
const char* decider_text(core::Decider decider);
// What was charged most in the last block that broke the promise; "": nothing was.
std::string_view channel_text(const core::PromiseStatus& promise);

// {client, devices: [{device, policy, generation, granted, waited, now: [...], past: [...]}]};
// null if there is no such client. Kernels, and what policies say of them, are "" unless `named`.
nlohmann::json explain_json(const Engine& engine, core::ClientId id, bool named);

const char* stall_text(core::Staller by);
// {policy, client, gpu: how often; last: {by, client, waited, waited_us, stalled_us}}.
nlohmann::json stall_json(const core::Scheduler& scheduler);

}  // namespace heddle::server
