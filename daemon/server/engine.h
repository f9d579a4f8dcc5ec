// The server without its loop and sockets: clients, schedulers, policy generations, and the way
// from what a client wrote to what the core decides and back. Loop thread only; it makes no system
// call but futex wake-ups, and is told the time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/scheduler.h"
#include "daemon/server/attached.h"
#include "daemon/server/config.h"
#include "daemon/server/log.h"
#include "daemon/server/observation.h"
#include "daemon/server/policy_source.h"
#include "daemon/server/probation.h"
#include "daemon/server/profile_store.h"
#include "daemon/server/untold.h"
#include "daemon/trace/ring.h"

namespace heddle::server {

struct EngineCounters {
  uint64_t claims = 0;
  uint64_t let_go = 0;  // clients whose memory was impossible
  uint64_t malformed = 0;
  uint64_t reloads = 0;
  uint64_t reload_errors = 0;
  uint64_t broken_invariants = 0;
};

// A generation with instances of it, made where nobody waits.
struct Prepared {
  Generation generation;
  std::vector<std::unique_ptr<core::Policy>> instances;
};
// Any thread.
Result<Prepared> prepare(Generation generation, size_t instances);

// The newest policy that faulted too often, until another is loaded.
struct Quarantined {
  Generation generation;
  std::string fault;  // the last one: its kind, hook, file and line
  // The exit dump, JSON: what the policy says of itself, its queues, the last decisions. "null":
  // that is not known any more.
  std::string exit = "null";
};

class Engine {
 public:
  struct Device {
    std::unique_ptr<core::Scheduler> scheduler;
    std::unique_ptr<core::Policy> policy;     // null: the built-in
    std::unique_ptr<core::Policy> candidate;  // beside it (shadows.cc); null: there is none
    GpuId gpu{};
    bool sm_total_known = false;  // a privileged client said it, not just who came first
    core::Stats before;           // what was counted when the policy came
    Untold broken_promises;
    core::TimeNs told_stall = std::numeric_limits<core::TimeNs>::min() / 2;  // in the log
  };

  Engine(const Config& config, PolicyStore& store, ProfileStore& profiles, Log& log);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- clients ----
  // GPUs that are there, whatever clients say.
  void keep_gpus(std::span<const GpuId> gpus) { gpus_.keep(gpus); }
  // Which GPUs a new client's devices are.
  DeviceMap number_gpus(std::span<const GpuId> devices, uid_t uid, bool privileged);
  // How the attached clients share the GPU; nothing where the configuration says it.
  void set_mode(bool mps, core::TimeNs now);
  // Hands to the profile store what the measurement stages have finished since.
  void collect_profiles();
  // What was measured of the client's task so far, on all devices.
  core::TaskProfile profile(const Client& client) const;
  Client& attach(std::unique_ptr<Client> client, core::TimeNs now);
  void detach(core::ClientId id, core::TimeNs now);  // the process is gone
  // The rules have changed: true if the client has other terms from now on.
  bool set_terms(Client& client, int priority, const std::string& rule, const Terms& terms,
                 core::TimeNs now);
  void register_kernel(Client& client, const core::KernelBody& kernel, core::TimeNs now);
  Client* find(core::ClientId id);
  const std::unordered_map<core::ClientId, std::unique_ptr<Client>>& clients() const {
    return clients_;
  }
  core::ClientId next_id() { return ++last_id_; }

  // ---- the launch path ----
  // Takes what clients wrote since, each its share of a turn at most, and carries out what follows.
  // False: nothing new. An unregistered kernel index calls `fetch_kernels`, whose packets may be
  // still in the socket. Unless `all`, or somebody else has news, the leased clients are heard
  // every kLeasedNs only: each look makes their next record wait for its cache lines.
  template <class Fetch>
  bool poll(core::TimeNs now, bool all, Fetch&& fetch_kernels) {
    if (!collect(now, all)) return false;
    const Client* fetched = nullptr;  // a client's claims lie together
    for (const auto& [at, claim, client] : batch_) {
      const uint32_t kernel = claims_[claim].fields.kernel;
      if (client != fetched && kernel < ipc::kKernels && !client->knows_kernel(kernel)) {
        fetched = client;
        fetch_kernels(*client);
      }
    }
    handle();
    return true;
  }
  void tick(core::TimeNs now);  // steps every device whose deadline has passed
  core::TimeNs next_deadline() const;
  void beat(core::TimeNs now);       // tells all clients that the daemon lives
  void heartbeat(core::TimeNs now);  // the same, and what is looked at as often
  // Ends, or begins, that a client alone at work need not report its launches; from `next_review`
  // on.
  void review(core::TimeNs now);
  core::TimeNs next_review() const { return observation_.next(); }
  const Client* unobserved() const { return unobserved_; }
  // Nobody asks, and all who are at work have leases, or one alone has a window, whose room it
  // counts itself: what they post changes nobody's fate, so that it is enough to drain their rings
  // every few ms. False where nobody is at work.
  bool at_ease(core::TimeNs now) const;
  void fall_asleep(core::TimeNs now);  // before a nap: says how each client must wake the daemon
  void wake_up();

  // ---- policy ----
  // How many instances adopt() has use for: one for each device, and one for the next.
  size_t instances_wanted() const;
  // Puts the generation to work on every device between two decisions, or on none.
  Result<void> adopt(Prepared fresh, core::TimeNs now);
  // What a policy that was quarantined falls back to, unless somebody has loaded another meanwhile.
  void fall_back(Prepared good, core::TimeNs now);
  // True once after a policy was quarantined: the store has something to remember, and perhaps
  // something to fall back to. Until then the built-in decides.
  bool take_fallback_wanted() { return std::exchange(fallback_wanted_, false); }
  // True once when another generation runs, or it has proved itself: the store has it to remember.
  bool take_to_remember() { return std::exchange(to_remember_, false); }
  Result<void> policy_failed(Error error);  // to load
  // The configured policy is quarantined: where the built-in decides, something is to be fallen
  // back to.
  void refuse_quarantined(const Generation& generation);
  // What runs is what its file says again: it goes on, and starts where it could not.
  void mistake_undone(core::TimeNs now);
  // Runs the candidate beside the live policy on every device, until it ends or is ended; it ends
  // with the generation, too (shadows.cc).
  Result<void> begin_shadow(Prepared candidate, core::TimeNs now);
  void end_shadow(const std::string& why);
  bool shadow_running() const { return shadow_ && shadow_end_.empty(); }
  const std::optional<Generation>& shadow() const { return shadow_; }  // the last one
  nlohmann::json shadow_json() const;  // what it found so far, also once it has ended; null: none
  core::RunTimes runs_above() const;   // Scheduler's, on all devices
  // The last generation was rolled back: why, for `heddle status`.
  void note_rollback(const std::string& why) { policy_error_ = why; }
  void set_bypass(bool on, core::TimeNs now);
  bool bypass() const { return bypass_; }
  // A scheduler's invariant does not hold (core/check.h). Counts; the next tick says so, once for
  // each place, and opens the bypass.
  void note_broken(const core::Broken& broken);

  // From now on everything that the cores are told and decide goes to the recorder too, beginning
  // with what is there already; nullptr ends it. The recorder must outlive its use.
  void record(trace::Recorder* recorder, core::TimeNs now);
  // Somebody waits for a grant, or did a moment ago.
  bool contended() const;

  const Generation& generation() const { return generation_; }
  const std::string& policy_error() const { return policy_error_; }
  const std::optional<Quarantined>& quarantined() const { return quarantined_; }
  // Of the generation that runs, on all devices.
  uint64_t policy_decisions() const;
  uint64_t policy_faults() const;
  bool policy_is_good() const { return probation_.is_good(); }
  const std::array<Device, ipc::kDevices>& devices() const { return devices_; }
  const GpuNumbers& gpus() const { return gpus_; }
  const EngineCounters& counters() const { return counters_; }
  bool mps() const { return mps_; }

 private:
  struct Waiting {
    core::TimeNs at;
    size_t claim;  // in claims_, where they lie as they were collected
    Client* client;
  };

  bool collect(core::TimeNs now, bool all);
  void read(core::TimeNs now, bool leased);
  void handle();
  // `of`, `likely`: whose event it is in a batch, and so whose most of the decisions are; the
  // batch's end wakes whom it granted.
  void step(core::Scheduler& scheduler, const core::Event& event, Client* of = nullptr);
  void start_policy(Device& device, core::TimeNs now);
  void start_shadow(Device& device, core::TimeNs now);
  void check_shadow();
  void check_stalls();  // explain.cc
  void check_promises(core::TimeNs now);
  void check_refused(core::TimeNs now);  // allocations
  std::string init_failure(const Generation& generation, const core::Policy& policy) const;
  void adopt_policy(core::Scheduler& scheduler, core::Policy* policy, const Generation& generation,
                    core::TimeNs now);
  void set_bypass(core::Scheduler& scheduler, bool on, core::TimeNs now);
  trace::PolicyRecord policy_record(uint8_t device, const core::Policy* policy,
                                    const Generation& generation, core::TimeNs now) const;
  void apply(std::span<const core::Decision> decisions, Client* likely = nullptr);
  void wake_granted();
  void hear(Client& client, core::TimeNs now);
  void share_turn();
  core::Scheduler& device(uint8_t index, const Identity& identity, core::TimeNs now);
  void learn_sm_total(Device& device, const Identity& identity, core::TimeNs now);
  void introduce(Client& client, uint8_t gpu, core::TimeNs now);
  void take(Client& client, const Claim& claim);
  void tell_gated(core::TimeNs now);  // the core of the oldest launches at gates
  void begin_on(Client& client, const core::Event& event);  // the first of that GPU
  void collect_profile(const Client& client);
  double switch_us() const;
  void note_malformed(Client& client, uint64_t before);
  void let_go(Client& client, const std::string& reason, core::TimeNs now);
  void remove_from_devices(Client& client, core::TimeNs now);
  bool at_work(const Client& client, core::TimeNs now) const;
  void update_alone(core::TimeNs now);
  void update_contended(core::TimeNs now);
  bool is_contended(const Client& client) const;
  void observe_all(core::TimeNs now);
  void observe_each(core::TimeNs now);
  void set_unobserved(Client* client, core::TimeNs now);
  Client* alone_at_work(core::TimeNs now) const;
  bool is_active(const Client& client) const;
  bool need_not_tell(const Client& client) const;  // each of its launches
  void check_quarantine(core::TimeNs now);
  void check_probation(core::TimeNs now);
  Result<void> swap(Prepared fresh, bool stands_in, core::TimeNs now);
  void open_if_broken(core::TimeNs now);

  const Config config_;
  PolicyStore& store_;
  ProfileStore& profiles_;
  Log& log_;
  bool mps_ = false;
  bool bypass_ = false;
  bool asleep_ = false;
  bool told_full_ = false;  // that nothing is learned of new kernels
  core::ClientId last_id_ = 0;

  std::unordered_map<core::ClientId, std::unique_ptr<Client>> clients_;
  std::vector<Client*> polled_;  // the managed ones
  GpuNumbers gpus_;
  std::array<Device, ipc::kDevices> devices_;  // by the GPU's number
  uint8_t devices_used_ = 0;                   // none from here on has a scheduler

  std::vector<Claim> claims_;
  std::vector<Waiting> batch_;
  std::vector<std::pair<Client*, uint16_t>> granted_;  // since whoever sleeps was woken last

  struct Contention {
    int8_t below = -1;  // the least important priority that waits, -1: none
    core::TimeNs until = 0;
  };
  std::array<Contention, ipc::kDevices> contention_;
  core::TimeNs leased_read_ = 0;  // when the leased clients were heard

  bool alone_ = false;          // there is one client at most, and has been for a while
  core::TimeNs shared_at_ = 0;  // when there last were more, or the daemon began

  Untold refused_;
  Observation observation_;
  Client* unobserved_ = nullptr;

  trace::Recorder* recorder_ = nullptr;
  Generation generation_;
  std::vector<std::unique_ptr<core::Policy>> spare_;  // instances of it for devices to come
  std::string policy_error_;
  std::optional<Quarantined> quarantined_;
  Probation probation_;
  std::optional<Generation> shadow_;
  std::vector<std::unique_ptr<core::Policy>> shadow_spare_;  // instances for devices to come
  std::string shadow_end_, shadow_fault_;                    // "": it runs; of itself
  std::string told_shadow_;                                  // JSON, once it has ended
  bool fallback_wanted_ = false, to_remember_ = false;
  EngineCounters counters_;

  std::vector<core::Broken> broken_;  // one of each place, ...
  size_t told_broken_ = 0;            // ... and how many of them are in the log
  bool broke_ = false;                // one since the bypass was last opened for it
};

}  // namespace heddle::server
