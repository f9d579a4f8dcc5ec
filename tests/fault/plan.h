// What happens in one round of the campaign, drawn from its seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::fault {

struct ClientPlan {
  int threads = 1;
  int launches = 10;  // of each thread
  int priority = 5;
  std::string faults;    // HEDDLE_FAULTS
  bool punctual = true;  // nothing of its own can make it late
  int kill_at_ms = -1;   // SIGKILL from outside, -1: never
};

struct DaemonPlan {
  std::string faults;
  int kill_at_ms = -1;  // after its start
  int stop_ms = 20;     // how long it stays stopped once it is
};

enum class Hostile : uint8_t { kNobody, kScribbler, kTalker };

struct Plan {
  uint64_t seed = 0;
  std::string policy;
  int starvation_ms = 50;
  std::vector<DaemonPlan> daemons;  // one after the other; the last has no faults
  int restart_ms = 5;               // from a daemon's death to the next
  bool daemon_first = true;         // clients start when it listens
  Hostile hostile = Hostile::kNobody;
  std::vector<ClientPlan> clients;
};

Plan draw_plan(uint64_t campaign, uint64_t round);

// One line, for who looks into a failed round.
std::string describe(const Plan& plan);

// Every fault point that a plan may name.
std::vector<std::string> fault_points();

}  // namespace heddle::fault
