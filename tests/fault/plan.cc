#include "tests/fault/plan.h"

#include <random>
#include <sstream>

#include "tests/fault/board.h"

namespace heddle::fault {
namespace {

using Random = std::mt19937_64;

// How often a point is passed in a round, about: the NTH is drawn up to that.
struct Point {
  const char* name;
  unsigned often;
};

constexpr Point kShimPoints[] = {
    {"slot: ask written, not published", 20},
    {"slot: ask published", 20},
    {"slot: granted, not closed", 15},
    {"slot: given up, not withdrawn", 2},
    {"slot: withdrawn", 2},
    {"slot: taken, not counted", 3},
    {"ring: record written, not published", 60},
    {"ring: record published", 60},
    {"doorbell: about to ring", 10},
    {"gate: about to sleep", 10},
    {"gate: admitted, not launched", 30},
    {"gate: launched, not recorded", 30},
    {"attach: connected, not told", 1},
    {"attach: mapped, not current", 1},
    {"retire: not woken", 1},
    {"retire: not unmapped", 1},
};

constexpr Point kDaemonPoints[] = {
    {"slot: ask copied", 20},
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
};

int up_to(Random& random, int most) {
  return static_cast<int>(random() % static_cast<uint64_t>(most));
}
bool one_in(Random& random, uint64_t n) { return random() % n == 0; }

template <size_t N>
std::string draw_fault(Random& random, const Point (&points)[N], const char* action, int ms) {
  const Point& point = points[random() % N];
  return std::string(point.name) + '|' + std::to_string(1 + random() % point.often) + '|' + action +
         '|' + std::to_string(ms) + ';';
}

ClientPlan draw_client(Random& random) {
  ClientPlan client;
  client.threads = 1 + up_to(random, 3);
  client.launches = 5 + up_to(random, 25);
  if (one_in(random, 6)) client.launches += 150;  // long enough for the shim to attach again
  client.priority = up_to(random, 10);
  const char* actions[] = {"kill", "kill", "end", "end", "stop", "delay", "fork"};
  for (int faults = up_to(random, 3); faults > 0; --faults) {
    const std::string action = actions[random() % std::size(actions)];
    client.punctual = client.punctual && (action == "kill" || action == "end");
    client.faults += draw_fault(random, kShimPoints, action.c_str(), 1 + up_to(random, 8));
  }
  if (one_in(random, 8)) client.kill_at_ms = up_to(random, 60);
  return client;
}

DaemonPlan draw_daemon(Random& random) {
  DaemonPlan daemon;
  const char* actions[] = {"kill", "kill", "stop", "delay"};
  daemon.faults =
      draw_fault(random, kDaemonPoints, actions[random() % std::size(actions)], up_to(random, 20));
  // Now and then longer than any launch may be held, and longer than the heartbeat may be silent.
  const int stops_ms[] = {450, 700};
  daemon.stop_ms = one_in(random, 6) ? stops_ms[random() % 2] : 5 + up_to(random, 60);
  if (one_in(random, 4)) daemon.kill_at_ms = up_to(random, 60);
  return daemon;
}

}  // namespace

Plan draw_plan(uint64_t campaign, uint64_t round) {
  std::seed_seq both{campaign, campaign >> 32, round, round >> 32};
  Random random(both);
  Plan plan;
  plan.seed = random();
  const char* policies[] = {"builtin", "gapfill", "priority", "fifo", "coin", "hold"};
  plan.policy = policies[random() % std::size(policies)];
  plan.starvation_ms = plan.policy == "hold" ? 5 : 20 + up_to(random, 60);
  plan.restart_ms = up_to(random, 30);
  plan.daemon_first = !one_in(random, 4);
  if (one_in(random, 6)) plan.hostile = one_in(random, 2) ? Hostile::kTalker : Hostile::kScribbler;
  for (int daemons = up_to(random, 3); daemons > 0; --daemons) {
    plan.daemons.push_back(draw_daemon(random));
  }
  plan.daemons.emplace_back();
  const int clients = 1 + up_to(random, static_cast<int>(kClients) - 1);
  for (int i = 0; i < clients; ++i) plan.clients.push_back(draw_client(random));
  return plan;
}

std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << "policy " << plan.policy << ", starvation " << plan.starvation_ms << " ms, hostile "
      << static_cast<int>(plan.hostile) << (plan.daemon_first ? "" : ", clients first");
  for (const DaemonPlan& daemon : plan.daemons) {
    out << "\n  daemon: " << daemon.faults << " killed at " << daemon.kill_at_ms << " ms";
  }
  for (const ClientPlan& client : plan.clients) {
    out << "\n  client Q" << client.priority << ", " << client.threads << " x " << client.launches
        << " launches: " << client.faults << " killed at " << client.kill_at_ms << " ms";
  }
  return out.str();
}

std::vector<std::string> fault_points() {
  std::vector<std::string> all;
  for (const Point& point : kShimPoints) all.emplace_back(point.name);
  for (const Point& point : kDaemonPoints) all.emplace_back(point.name);
  return all;
}

}  // namespace heddle::fault
