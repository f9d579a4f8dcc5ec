// The server without its loop and sockets. It owns the parts below, and connects them on the way
// from clients' records to the core's decisions and back. Loop thread only. It makes no system call
// but futex wake-ups, and the caller passes the time.
//
//   Roster       the attached clients       Reports      clients that need not report each launch
//   Batch        their new records          Contention   clients that report finely
//   Stepper      into a core and out        PolicyInForce  generations, quarantine, candidate
//   Devices      a scheduler for each GPU   Alerts       log lines at intervals
//   Presence     clients on GPUs            Mistakes     failed checks of heddled
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daemon/server/alerts.h"
#include "daemon/server/batch.h"
#include "daemon/server/devices.h"
#include "daemon/server/gate_watch.h"
#include "daemon/server/policy_in_force.h"
#include "daemon/server/presence.h"
#include "daemon/server/reports.h"
#include "daemon/server/roster.h"
#include "daemon/server/stepper.h"
#include "daemon/server/stop_asking.h"

namespace heddle::server {

struct EngineCounters {
  uint64_t claims = 0;
  uint64_t let_go = 0;  // clients that were let go because their memory was impossible
  uint64_t malformed = 0;
};

class Engine {
 public:
  Engine(const Config& config, PolicyStore& store, ProfileStore& profiles, Log& log);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- clients ----
  Client& attach(std::unique_ptr<Client> client, core::TimeNs now);
  void detach(core::ClientId id, core::TimeNs now);  // the process is gone
  // The rules have changed. True: the client has other terms from now on.
  bool set_terms(Client& client, int priority, const std::string& rule, const Terms& terms,
                 core::TimeNs now);
  // The GPUs that a new client's devices are.
  DeviceMap number_gpus(std::span<const GpuId> ids, uid_t uid, bool privileged);
  void collect_profiles();

  // ---- the launch path ----
  // Reads clients' new records (batch.h), and carries out the decisions that follow. False: there
  // is nothing new. For an unregistered kernel index it calls `fetch_kernels`: the registration may
  // still be in the socket.
  template <class Fetch>
  bool poll(core::TimeNs now, bool all, Fetch&& fetch_kernels) {
    const bool look = all || now >= stops_looked_at_ + kStopsNs;
    if (look) stops_looked_at_ = now;
    const bool stops = look && presence.tell_stops(roster.managed(), now);
    if (stops) check_decisions(now);
    if (!collect(now, all)) return stops;
    const Client* fetched = nullptr;  // each client's kernels are fetched once for its claims
    for (const Batch::Entry& entry : batch_.entries()) {
      const uint32_t kernel = batch_.claim(entry).fields.kernel;
      Client* const client = entry.client;
      if (client != fetched && kernel < ipc::kKernels && !client->knows_kernel(kernel)) {
        fetched = client;
        fetch_kernels(*client);
      }
    }
    handle();
    return true;
  }
  void tick(core::TimeNs now);
  void check_decisions(core::TimeNs now);
  void beat(core::TimeNs now);       // writes all clients' heartbeats
  void heartbeat(core::TimeNs now);  // the same, and the checks that are due as often
  // No client waits, and all clients at work have leases, or a single one has open gates. Then no
  // decision depends on their records, and it is enough to drain their rings every few ms. False if
  // no client is at work, and while one has work that may be stopped for others, however long it
  // has been silent.
  bool at_ease(core::TimeNs now) const;
  void fall_asleep(core::TimeNs now);  // before a nap: tells each client when to wake the daemon
  void wake_up();
  const EngineCounters& counters() const { return counters_; }

  // ---- all devices ----
  // Sets how the clients share the GPU; ignored if the configuration says it.
  void set_mode(bool mps, core::TimeNs now);
  void set_bypass(bool on, core::TimeNs now);
  // From now on all events and decisions of the cores go to the recorder, too, after their present
  // state; nullptr ends it. The recorder must outlive this.
  void record(trace::Recorder* recorder, core::TimeNs now);

 private:
  // The interval of looks at shims' news about stops while the daemon is awake.
  static constexpr core::TimeNs kStopsNs = 50'000;

  bool collect(core::TimeNs now, bool all);
  void handle();
  void note_malformed(Client& client, uint64_t before);
  void impossible(Client& client, core::TimeNs now);
  void let_go(Client& client, const std::string& reason, core::TimeNs now);
  void drop(Client& client, core::TimeNs now);
  void open_if_broken(core::TimeNs now);
  void check();

  const Config config_;
  Log& log_;
  Batch batch_;
  core::TimeNs stops_looked_at_ = 0;
  bool asleep_ = false;
  EngineCounters counters_;

 public:
  // ---- the parts; later ones refer to earlier ones ----
  Roster roster;
  Mistakes mistakes;
  Stepper stepper;
  Devices devices;
  Reports reports;
  Contention contention;
  StopAnswers stop_answers;
  PolicyInForce policy;
  Presence presence;
  GateWatch gates;
  Alerts alerts;
};

}  // namespace heddle::server
