// Answers to the command line: JSON documents, which `heddle` formats. Anybody may look (containers
// at all but command lines); only the privileged (origin.h) may change anything.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "daemon/server/engine.h"
#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "daemon/server/mps_watch.h"
#include "ipc/socket.h"

namespace heddle::server {

// What the answers say of the process rather than of its engine.
struct ServerFacts {
  std::string socket;
  core::TimeNs started_at = 0;
  uint64_t naps = 0;
  uint64_t connections = 0;
  // Connections and clients that got no place, and what was told of the newest.
  struct Refusals {
    uint64_t count = 0;
    std::string last;
    core::TimeNs at = 0;
  };
  Refusals refused;
  const Config* config = nullptr;  // as it was at the start
  const std::vector<Rule>* rules = nullptr;
  core::TimeNs config_read_at = 0;
  std::string config_error;                  // why it could not be read then
  std::vector<std::string> config_restarts;  // tables that have changed and wait for a restart
  Log* log = nullptr;
  const MpsWatch* mps = nullptr;
  const MemoryAccounts* memory = nullptr;
  // A policy that was loaded for a while: then back to what ran before. Or promoted: then it stays,
  // but faults, or runs of clients that take `slowdown_max` times what they take alone, end it.
  struct Trial {
    uint64_t generation, back_to;
    core::TimeNs until;
    double slowdown_max = 0;  // 0: it was not promoted
    core::RunTimes before;    // what was known of runs when it was
    bool going_back = false;
  };
  std::optional<Trial> trial;
};

// Who asks: the connection, and whom the kernel says is behind it.
struct Asker {
  int socket;
  const ipc::Peer& peer;
};

// {managed, wanted, pipe_directory, log_directory, answers, pid, shares_cgroup, servers: [{pid,
// uid, clients: [{pid, uid}]}], waiting: [{pid, uid}], error}; a uid is null if it is not seen from
// here.
nlohmann::json mps_json(const MpsWatch& mps);

// {count, last, last_s_ago}. Who was refused, and why, may tell of other users' programs: only
// where they may be `named`.
nlohmann::json refusals_json(core::TimeNs now, const ServerFacts::Refusals& refused, bool named);

// How much longer runs took than alone since the promotion; 0: too few to say.
double slowdown_since(const ServerFacts::Trial& trial, const Engine& engine);
// {back_to, left_s, promoted, slowdown_max, slowdown}; null: what runs does not for a while only.
nlohmann::json trial_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine);

// What takes as long as a disk: answer() only says whether the asker may, the rest is the server's.
bool is_policy_order(Request::Kind kind);
Reply after_policy_change(const Result<void>& result, core::TimeNs now, const ServerFacts& facts,
                          const Engine& engine, const PolicyStore& store);
Reply policy_list(nlohmann::json policies, const Engine& engine);

Reply answer(const Request& request, const Asker& asker, core::TimeNs now, ServerFacts& facts,
             Engine& engine, PolicyStore& store, const ProfileStore& profiles);

}  // namespace heddle::server
