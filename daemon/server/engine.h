// The server without its loop and sockets: it owns the parts below, and joins them on the way from
// what a client wrote to what the core decides and back. Loop thread only; it makes no system call
// but futex wake-ups, and is told the time.
//
//   Roster       who is attached            Reports      who need not report each launch
//   Batch        what clients wrote         Contention   who reports finely
//   Stepper      into a core and out        PolicyInForce  generations, quarantine, candidate
//   Devices      a scheduler for each GPU   Alerts       what the log is told now and then
//   Presence     clients on GPUs            Mistakes     heddled's own
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
  uint64_t let_go = 0;  // clients whose memory was impossible
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
  // The rules have changed: true if the client has other terms from now on.
  bool set_terms(Client& client, int priority, const std::string& rule, const Terms& terms,
                 core::TimeNs now);
  // Which GPUs a new client's devices are.
  DeviceMap number_gpus(std::span<const GpuId> ids, uid_t uid, bool privileged);
  void collect_profiles();

  // ---- the launch path ----
  // Takes what clients wrote since (batch.h), and carries out what follows. False: nothing new. An
  // unregistered kernel index calls `fetch_kernels`, whose packets may be still in the socket.
  template <class Fetch>
  bool poll(core::TimeNs now, bool all, Fetch&& fetch_kernels) {
    const bool look = all || now >= stops_looked_at_ + kStopsNs;
    if (look) stops_looked_at_ = now;
    const bool stops = look && presence.tell_stops(roster.managed(), now);
    if (stops) check_decisions(now);
    if (!collect(now, all)) return stops;
    const Client* fetched = nullptr;  // a client's claims lie together
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
  void beat(core::TimeNs now);       // tells all clients that the daemon lives
  void heartbeat(core::TimeNs now);  // the same, and what is looked at as often
  // Nobody asks, and all who are at work have leases, or one alone has open gates: what they post
  // changes nobody's fate, so that it is enough to drain their rings every few ms. False where
  // nobody is at work, and while one has work that may be stopped for others, however long it has
  // been silent.
  bool at_ease(core::TimeNs now) const;
  void fall_asleep(core::TimeNs now);  // before a nap: says how each client must wake the daemon
  void wake_up();
  const EngineCounters& counters() const { return counters_; }

  // ---- what holds for all ----
  // How the attached clients share the GPU; nothing where the configuration says it.
  void set_mode(bool mps, core::TimeNs now);
  void set_bypass(bool on, core::TimeNs now);
  // From now on everything that the cores are told and decide goes to the recorder too, beginning
  // with what is there already; nullptr ends it. The recorder must outlive its use.
  void record(trace::Recorder* recorder, core::TimeNs now);

 private:
  // Between two looks at what shims say of stops, which a nap does not miss.
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
  // ---- the parts, each with its own facts; the later ones know the earlier ones ----
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
