// How a policy comes from a file to the cores: read, compiled and made on libuv's pool, because
// launches wait for the loop; put to work on the loop, between two decisions. Who asked for it,
// whether it is only on trial, and when its file is looked at again. Loop thread only.
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

  // What the configuration names. The engine logs what went wrong and keeps it for `heddle status`.
  void load(const std::string& name, std::function<void()> then);
  void take_configured(Result<Prepared> loaded);
  // Carries out what changes the policy that runs; then, as it may be, sees to its trial.
  void order(const Request& request, LoadedBy by, Done done);
  void shadow(const std::string& policy, LoadedBy by, Done done);
  // What ran for a while only stays. False: nothing does.
  bool keep();

  // Each turn: what the engine wants done since.
  void follow();
  // Now and then: a promoted policy goes back by itself.
  void check_promotion();
  // Sees which directories there are, and reads the policy again if it `changed` or one of them is
  // new.
  void look(bool changed);
  void remember();
  // Why what ran is not written down, "" if it is.
  const std::string& unwritten() const { return unwritten_; }

  // {back_to, left_s, promoted, slowdown_max, slowdown}; null: what runs does not for a while only.
  nlohmann::json trial_json(core::TimeNs now) const;

 private:
  // A policy that was loaded for a while: then back to what ran before. Or promoted: then it stays,
  // but faults, or runs of clients that take `slowdown_max` times what they take alone, end it.
  struct Trial {
    uint64_t generation, back_to;
    core::TimeNs until;
    double slowdown_max = 0;  // 0: it was not promoted
    core::RunTimes before;    // what was known of runs when it was
    bool going_back = false;
  };
  using Find = std::function<std::optional<Result<Generation>>()>;
  using FileId = std::pair<dev_t, ino_t>;
  using Places = std::map<std::string, FileId>;
  struct Watched {  // a directory of policies
    FileId file;
    bool stale;  // something happened to the directory itself
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
  std::string unwritten_;  // why the state was not written the last time, "" if it was
  Timer debounce_, watch_again_, revert_;
};

core::TimeNs monotonic_now();

}  // namespace heddle::server
