// What happens in one round of the campaign, drawn from its seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::fault {

struct ClientPlan {
  int threads = 1;
  int launches = 10;  // of each thread
  int paced_ms = 0;   // then it launches for so long as a launch-bound program does
  int start_ms = 0;   // after the round began
  int priority = 5;
  std::string sms;      // HEDDLE_SMS: it asks to be kept on these
  std::string faults;   // HEDDLE_FAULTS
  int slack_ms = 0;     // how late these may make one launch
  int kill_at_ms = -1;  // SIGKILL from outside after its start, -1: never
};

// How long a client that stops itself stays stopped.
inline constexpr int kClientStopMs = 20;

struct DaemonPlan {
  std::string faults;
  int kill_at_ms = -1;  // after its start
  int stop_ms = 20;     // how long it stays stopped once it is
};

enum class Hostile : uint8_t {
  kNobody,
  kScribbler,  // random bytes wherever a client may write
  kTalker,     // asks without end and leaves before it is answered
  kMute,       // a hundred connections that never read
  kJumper,     // honest, but for its clock
};

// What the clients do, and so which of the ways that a launch can go they take.
enum class Scene : uint8_t {
  kMixed,
  kRows,      // one under a lease, launch-bound, beside others: told in rows
  kAlone,     // the same one alone for a while: unobserved
  kParts,     // on some of the SMs
  kOrphan,    // one that outlives its daemon
  kUnserved,  // asks that nobody answers in time
  kGates,     // launches that stand at gates on the GPU, one that outlives its daemon among them
};

struct Plan {
  uint64_t seed = 0;
  Scene scene = Scene::kMixed;
  std::string policy;
  bool mps = false;    // what the daemon takes the GPU for
  bool gates = false;  // launches may stand at gates
  int starvation_ms = 50;
  std::vector<DaemonPlan> daemons;  // one after the other; the last has no faults
  int restart_ms = 5;               // from a daemon's death to the next
  bool daemon_first = true;         // clients start when it listens
  Hostile hostile = Hostile::kNobody;
  std::vector<ClientPlan> clients;
};

// The fault points take turns: round N has one at the Nth, and whatever else is drawn.
Plan draw_plan(uint64_t campaign, uint64_t round);
// The fault point whose turn it is in that round.
std::string theme_of(uint64_t round);

// One line, for who looks into a failed round.
std::string describe(const Plan& plan);

// Every fault point that a plan may name.
std::vector<std::string> fault_points();

}  // namespace heddle::fault
