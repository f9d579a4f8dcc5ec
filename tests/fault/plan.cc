#include "tests/fault/plan.h"

#include <random>
#include <sstream>

#include "tests/fault/board.h"

namespace heddle::fault {
namespace {

using Random = std::mt19937_64;

// How often a point is passed in a round, about: the NTH is drawn up to that. And where it is
// passed, if not everywhere.
struct Point {
  const char* name;
  unsigned often;
  Scene scene = Scene::kMixed;
};

constexpr Point kShimPoints[] = {
    {"ticket: drawn, not told", 20},
    {"ticket: told", 20},
    {"ticket: gone, not launched", 15},
    {"ticket: given up, not gone", 1, Scene::kUnserved},
    {"slot: taken, not counted", 3},
    {"ring: record written, not published", 60},
    {"ring: record published", 60},
    {"doorbell: about to ring", 10},
    {"gate: about to sleep", 10},
    {"gate: admitted, not launched", 30},
    {"gate: launched, not recorded", 30},
    {"attach: connected, not told", 1},
    {"attach: mapped, not current", 1},
    {"retire: word still read", 1, Scene::kOrphan},
    {"retire: not woken", 1, Scene::kOrphan},
    {"retire: not unmapped", 1, Scene::kOrphan},
    {"row: skipped, not launched", 400, Scene::kRows},
    {"row: launched, not told", 400, Scene::kRows},
    {"row: counted, not told", 20, Scene::kRows},
    {"row: ended by a wait, not told", 5, Scene::kRows},
    {"unobserved: counted, not launched", 500, Scene::kAlone},
    {"unobserved: reported in half", 5, Scene::kAlone},
    {"detour: left, not awaited", 15, Scene::kParts},
    {"detour: launched, not back", 15, Scene::kParts},
    {"detour: back, not awaited", 15, Scene::kParts},
    {"lane: made, not known", 2, Scene::kParts},
    {"lane: forgotten, not left", 1, Scene::kParts},
    {"gate: floor open, word not", 1, Scene::kGates},
};

constexpr Point kDaemonPoints[] = {
    {"slot: answer written, not published", 20},
    {"slot: answer published", 20},
    {"ring: record copied", 60},
    {"daemon: granted, not woken", 10},
    {"daemon: connection accepted", 3},
    {"daemon: message decoded", 6},
    {"daemon: client made, not known", 2},
    {"daemon: client known, not told", 2},
    {"daemon: client told, not watched", 2},
    {"daemon: client gone, not forgotten", 1},
    {"daemon: claims taken, not handled", 30},
    {"daemon: about to nap", 30},
    {"daemon: rows allowed, not told", 1, Scene::kRows},
    {"daemon: row told, not counted", 20, Scene::kRows},
    {"daemon: unobserved, not told", 1, Scene::kAlone},
    {"daemon: observed again, not heard of", 1, Scene::kAlone},
    {"gate: stored, floor not read", 4, Scene::kGates},
    {"gate: stopped, floor not read", 4, Scene::kGates},
};

int up_to(Random& random, int most) {
  return static_cast<int>(random() % static_cast<uint64_t>(most));
}
bool one_in(Random& random, uint64_t n) { return random() % n == 0; }

std::string fault_text(Random& random, const Point& point, const std::string& action, int ms) {
  return std::string(point.name) + '|' + std::to_string(1 + random() % point.often) + '|' + action +
         '|' + std::to_string(ms) + ';';
}

void add_fault(Random& random, const Point& point, ClientPlan& client) {
  const char* actions[] = {"kill", "kill", "end", "end", "stop", "delay", "fork"};
  std::string action = actions[random() % std::size(actions)];
  // Nobody ends the thread that opens gates: it is the shim's own.
  if (point.scene == Scene::kGates && action == "end") action = "delay";
  const int ms = 1 + up_to(random, 8);
  if (action == "stop") client.slack_ms += kClientStopMs;
  if (action == "delay" || action == "fork") client.slack_ms += ms;
  client.faults += fault_text(random, point, action, ms);
}

void add_fault(Random& random, const Point& point, DaemonPlan& daemon) {
  const char* actions[] = {"kill", "kill", "stop", "delay"};
  daemon.faults +=
      fault_text(random, point, actions[random() % std::size(actions)], up_to(random, 20));
}

ClientPlan draw_client(Random& random) {
  ClientPlan client;
  client.threads = 1 + up_to(random, static_cast<int>(kThreads));
  client.launches = 5 + up_to(random, 25);
  if (one_in(random, 6)) client.launches += 150;  // long enough for the shim to attach again
  client.priority = up_to(random, 10);
  for (int faults = up_to(random, 3); faults > 0; --faults) {
    add_fault(random, kShimPoints[random() % std::size(kShimPoints)], client);
  }
  if (one_in(random, 8)) client.kill_at_ms = up_to(random, 60);
  return client;
}

DaemonPlan draw_daemon(Random& random) {
  DaemonPlan daemon;
  add_fault(random, kDaemonPoints[random() % std::size(kDaemonPoints)], daemon);
  // Now and then longer than any launch may be held, and longer than the heartbeat may be silent.
  const int stops_ms[] = {450, 700};
  daemon.stop_ms = one_in(random, 6) ? stops_ms[random() % 2] : 5 + up_to(random, 60);
  if (one_in(random, 4)) daemon.kill_at_ms = up_to(random, 60);
  return daemon;
}

// The first client becomes launch-bound, for long enough to be measured, reviewed and told of. It
// is left in peace until then, and mostly afterwards, as is its daemon.
void stage_rows(Random& random, Plan& plan) {
  const bool alone = plan.scene == Scene::kAlone;
  const char* policies[] = {"builtin", "priority", "fifo"};
  plan.policy = policies[random() % std::size(policies)];
  plan.starvation_ms = 20 + up_to(random, 60);
  plan.daemon_first = true;
  if (!one_in(random, 4)) plan.daemons.clear();
  for (DaemonPlan& daemon : plan.daemons) daemon.kill_at_ms = -1;
  plan.hostile = Hostile::kNobody;
  ClientPlan first;
  first.launches = 5;
  first.paced_ms = alone ? 350 : 250;
  first.priority = up_to(random, 5);
  plan.clients[0] = first;
  if (plan.clients.size() > 2) plan.clients.resize(2);
  for (size_t i = 1; i < plan.clients.size(); ++i) {
    plan.clients[i].priority = 5 + up_to(random, 5);
    plan.clients[i].start_ms = (alone ? 250 : 100) + up_to(random, 60);
  }
}

// The first client outlives its daemon, and finds another.
void stage_orphan(Random& random, Plan& plan) {
  DaemonPlan mortal;
  mortal.kill_at_ms = 40 + up_to(random, 60);
  plan.daemons.assign(1, mortal);
  plan.daemon_first = true;
  plan.clients[0].paced_ms = 200;
  plan.clients[0].faults.clear();
  plan.clients[0].slack_ms = 0;
  plan.clients[0].kill_at_ms = -1;
}

// So does a client whose launches stand at gates.
void stage_gates(Random& random, Plan& plan) {
  stage_orphan(random, plan);
  plan.gates = true;
  plan.policy = "gates";
  plan.starvation_ms = 20 + up_to(random, 60);
  plan.hostile = Hostile::kNobody;
}

// The daemon stops as it reads of a ticket, for longer than any may wait.
void stage_unserved(Random& random, Plan& plan) {
  DaemonPlan stopped;
  stopped.faults = "ring: record copied|" + std::to_string(20 + random() % 50) + "|stop|0;";
  stopped.stop_ms = 100 + up_to(random, 100);
  plan.daemons.assign(1, stopped);
  plan.daemon_first = true;
  plan.policy = "fences";  // everybody asks
  plan.starvation_ms = 5;
  plan.hostile = Hostile::kNobody;
  for (ClientPlan& client : plan.clients) {
    client.launches = 200;
    client.faults.clear();
    client.slack_ms = 0;
    client.kill_at_ms = -1;
  }
}

void stage_parts(Random& random, Plan& plan) {
  if (one_in(random, 2)) plan.policy = "fences";
  const char* parts[] = {"25%", "25%-100%", "50%", ""};
  for (ClientPlan& client : plan.clients) {
    client.sms = parts[random() % (plan.policy == "fences" ? 4 : 3)];
    client.launches += 20;
  }
  plan.clients[0].kill_at_ms = -1;
}

size_t turn_of(uint64_t round) {
  return round % (std::size(kShimPoints) + std::size(kDaemonPoints));
}
const Point& point_of(size_t turn) {
  return turn < std::size(kShimPoints) ? kShimPoints[turn]
                                       : kDaemonPoints[turn - std::size(kShimPoints)];
}

// The fault that is this round's turn to have.
void add_theme(Random& random, size_t turn, Plan& plan) {
  if (turn < std::size(kShimPoints)) {
    add_fault(random, point_of(turn), plan.clients[0]);
    return;
  }
  DaemonPlan daemon;
  daemon.stop_ms = 5 + up_to(random, 60);
  add_fault(random, point_of(turn), daemon);
  plan.daemons.insert(plan.daemons.begin(), daemon);
}

void draw_policy(Random& random, Plan& plan) {
  const char* policies[] = {"builtin",   "gapfill", "priority", "fifo", "fair",
                            "exclusive", "fikit",   "coin",     "hold", "fences"};
  plan.policy = policies[random() % std::size(policies)];
  // Under these a launch may wait for the bound each time.
  const bool strict = plan.policy == "hold" || plan.policy == "exclusive" || plan.policy == "fikit";
  plan.starvation_ms = strict ? 5 : 20 + up_to(random, 60);
}

}  // namespace

Plan draw_plan(uint64_t campaign, uint64_t round) {
  std::seed_seq both{campaign, campaign >> 32, round, round >> 32};
  Random random(both);
  Plan plan;
  plan.seed = random();
  draw_policy(random, plan);
  plan.mps = one_in(random, 2);
  plan.restart_ms = up_to(random, 30);
  plan.daemon_first = !one_in(random, 4);
  if (one_in(random, 5)) plan.hostile = static_cast<Hostile>(1 + up_to(random, 4));
  for (int daemons = up_to(random, 3); daemons > 0; --daemons) {
    plan.daemons.push_back(draw_daemon(random));
  }
  const int clients = 1 + up_to(random, static_cast<int>(kClients) - 1);
  for (int i = 0; i < clients; ++i) plan.clients.push_back(draw_client(random));

  const size_t turn = turn_of(round);
  plan.scene = point_of(turn).scene;
  if (plan.scene == Scene::kMixed && one_in(random, 8)) plan.scene = Scene::kParts;
  if (plan.scene == Scene::kRows || plan.scene == Scene::kAlone) stage_rows(random, plan);
  if (plan.scene == Scene::kOrphan) stage_orphan(random, plan);
  if (plan.scene == Scene::kParts) stage_parts(random, plan);
  if (plan.scene == Scene::kGates) stage_gates(random, plan);
  if (plan.scene == Scene::kMixed) plan.gates = one_in(random, 3);
  if (plan.scene == Scene::kUnserved) stage_unserved(random, plan);
  add_theme(random, turn, plan);
  plan.daemons.emplace_back();
  return plan;
}

std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << "scene " << static_cast<int>(plan.scene) << ", policy " << plan.policy
      << (plan.mps ? " under MPS" : "") << (plan.gates ? ", with gates" : "") << ", starvation "
      << plan.starvation_ms << " ms, hostile " << static_cast<int>(plan.hostile)
      << (plan.daemon_first ? "" : ", clients first");
  for (const DaemonPlan& daemon : plan.daemons) {
    out << "\n  daemon: " << daemon.faults << " killed at " << daemon.kill_at_ms << " ms";
  }
  for (const ClientPlan& client : plan.clients) {
    out << "\n  client Q" << client.priority << " from " << client.start_ms << " ms, "
        << client.threads << " x " << client.launches << " launches, paced " << client.paced_ms
        << " ms, SMs '" << client.sms << "': " << client.faults << " killed at "
        << client.kill_at_ms << " ms";
  }
  return out.str();
}

std::string theme_of(uint64_t round) { return point_of(turn_of(round)).name; }

std::vector<std::string> fault_points() {
  std::vector<std::string> all;
  for (const Point& point : kShimPoints) all.emplace_back(point.name);
  for (const Point& point : kDaemonPoints) all.emplace_back(point.name);
  return all;
}

}  // namespace heddle::fault
