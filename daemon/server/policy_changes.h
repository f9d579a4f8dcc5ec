// Policy changes: the way of a policy from a file to the cores. It is read, compiled and
// instantiated on libuv's pool, because launches wait for the loop. On the loop it is adopted
// between two decisions. Keeps who asked for it, whether it is on trial, and when to look at its
// file again. Loop thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "daemon/server/engine.h"
#include "daemon/server/handles.h"
#include "daemon/server/jobs.h"
#include "daemon/server/messages.h"

namespace heddle::server {

class PolicyChanges {
 public:
  using Done = std::function<void(const Result<void>&)>;

  PolicyChanges(uv_loop_t* loop, PolicyStore& store, Log& log, Engine& engine, Jobs& jobs);

  // Loads the configured policy. The engine logs an error, and keeps it for `heddle status`.
  void load(const std::string& name, std::function<void()> then);
  void take_configured(Result<Prepared> loaded);
  // Carries out an order that changes the policy in force, and begins or ends its trial.
  void order(const Request& request, LoadedBy by, Done done);
  void shadow(const std::string& policy, LoadedBy by, Done done);
  // Keeps a policy that was loaded for a while. False: there is no such policy.
  bool keep();

  // Called each turn: does what the engine asked for, such as a fall back.
  void follow();
  // Called at intervals: rolls back a promoted policy that slows runs too much.
  void check_promotion();
  // Looks for the policy directories, and reads the policy again if it `changed` or one is new.
  void look(bool changed);
  void remember();
  // Why the policy state is not saved; "": it is.
  const std::string& unwritten() const { return unwritten_; }

  // {back_to, left_s, promoted, slowdown_max, slowdown}; null: there is no trial.
  nlohmann::json trial_json(core::TimeNs now) const;

 private:
  // A policy that was loaded for a while, and then goes back to the one before. Or a promoted
  // policy, which stays unless it faults, or slows clients' runs by more than `slowdown_max`
  // meanwhile.
  struct Trial {
    uint64_t generation, back_to;
    core::TimeNs until;
    double slowdown_max = 0;  // 0: it was not promoted
    core::RunTimes before;    // the run times when it was promoted
    bool going_back = false;
  };
  using Find = std::function<std::optional<Result<Generation>>()>;
  using FileId = std::pair<dev_t, ino_t>;
  using Places = std::map<std::string, FileId>;
  struct Watched {  // a directory of policies
    FileId file;
    bool stale;  // the directory itself changed, and must be watched anew
    std::unique_ptr<DirectoryWatch> watch;
  };

  void change(Find find, std::function<void(Result<Prepared>)> then);
  Find finder(const Request& request);
  bool on_trial() const { return trial_ && trial_->generation == generation().number; }
  const Generation& generation() const { return engine_.policy.generation(); }
  void follow_trial(uint64_t before, bool same, double for_s);
  void begin_promotion(uint64_t before, const Request& request, const core::RunTimes& runs);
  double slowdown() const;
  void end_trial();
  void go_back(uint64_t to, const std::string& how);
  void reload_changed();
  void fall_back();
  bool watch(const Places& places);
  void on_directory_event(const std::string& directory, const std::string& name);

  uv_loop_t* const loop_;
  PolicyStore& store_;
  Log& log_;
  Engine& engine_;
  Jobs& jobs_;
  std::optional<Trial> trial_;
  std::map<std::string, Watched> directories_;
  std::string unwritten_;  // why the state could not be saved the last time; "": it was
  Timer debounce_, watch_again_, revert_;
};

core::TimeNs monotonic_now();

}  // namespace heddle::server
