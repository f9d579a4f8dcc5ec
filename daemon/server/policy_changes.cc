#include "daemon/server/policy_changes.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

// An editor's save causes several events, so they are collected for this time.
constexpr uint64_t kDebounceMs = 100;
// Directories are looked up again at this interval: no event tells of a directory that replaced
// another, or of a link to it that was switched.
constexpr uint64_t kWatchAgainMs = 1'000;

std::string how_text(const Request& request) {
  if (request.kind == Request::Kind::kPolicyLoad) return "load";
  if (request.kind == Request::Kind::kPolicyPromote) return "promote";
  return request.kind == Request::Kind::kPolicyRollback ? "rollback" : "set";
}

}  // namespace

PolicyChanges::PolicyChanges(uv_loop_t* loop, PolicyStore& store, Log& log, Engine& engine,
                             Jobs& jobs)
    : loop_(loop),
      store_(store),
      log_(log),
      engine_(engine),
      jobs_(jobs),
      debounce_(loop, [this] { look(true); }),
      watch_again_(loop, [this] { look(false); }),
      revert_(loop, [this] { end_trial(); }) {}

void PolicyChanges::change(Find find, std::function<void(Result<Prepared>)> then) {
  auto found = std::make_shared<std::optional<Result<Prepared>>>();
  jobs_.add(
      [found, find = std::move(find), instances = engine_.policy.instances_wanted()] {
        std::optional<Result<Generation>> generation = find();
        if (!generation) return;
        *found = *generation ? prepare(std::move(**generation), instances)
                             : tl::unexpected<Error>(std::move(generation->error()));
      },
      [found, then = std::move(then)] {
        if (*found) then(std::move(**found));
      });
}

void PolicyChanges::load(const std::string& name, std::function<void()> then) {
  change([this, name] { return store_.load(name, false); },
         [this, then = std::move(then)](Result<Prepared> loaded) {
           take_configured(std::move(loaded));
           look(false);
           then();
         });
}

void PolicyChanges::take_configured(Result<Prepared> loaded) {
  if (loaded) loaded->generation.by = {"config"};
  if (!loaded) {
    (void)engine_.policy.failed(std::move(loaded.error()));
  } else if (!loaded->generation.quarantined.empty()) {
    engine_.policy.refuse_quarantined(loaded->generation);
  } else {
    (void)engine_.policy.adopt(std::move(*loaded), monotonic_now());
  }
}

void PolicyChanges::order(const Request& request, LoadedBy by, Done done) {
  by.how = how_text(request);
  const bool loads = request.kind == Request::Kind::kPolicyLoad;
  change(finder(request), [this, loads, done = std::move(done), request,
                           runs = engine_.devices.runs_above(), by](Result<Prepared> found) {
    const uint64_t before = generation().number;
    Result<void> changed;
    if (found) {
      found->generation.by = by;
      changed = engine_.policy.adopt(std::move(*found), monotonic_now());
    } else if (loads) {
      changed = engine_.policy.failed(std::move(found.error()));
    } else {  // a refused order says nothing against the policy in force
      changed = tl::unexpected<Error>(std::move(found.error()));
    }
    if (changed && request.kind == Request::Kind::kPolicyPromote) {
      begin_promotion(before, request, runs);
    } else if (changed) {
      follow_trial(before, by.how == "set", request.for_s);
    }
    done(changed);
    if (loads) look(false);
  });
}

// The function that finds the policy of an order.
PolicyChanges::Find PolicyChanges::finder(const Request& request) {
  if (request.kind == Request::Kind::kPolicyLoad) {
    return [this, name = request.policy] { return store_.load(name, true); };
  }
  if (request.kind == Request::Kind::kPolicyPromote) {
    return [candidate = *engine_.policy.candidate().generation()] {
      return Result<Generation>(candidate);
    };
  }
  if (request.kind == Request::Kind::kPolicyRollback) {
    return [this, number = request.generation] { return store_.past(number); };
  }
  if (!request.reset) {
    return [this, name = request.policy, params = request.params] {
      return store_.with_params(name, params);
    };
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : request.params) names.push_back(name);
  return [this, name = request.policy, names] { return store_.without_params(name, names); };
}

// Setting parameters of a policy on trial does not end the trial; any other change of policy does.
void PolicyChanges::follow_trial(uint64_t before, bool same, double for_s) {
  if (same && trial_ && trial_->generation == before) {
    trial_->generation = generation().number;
  } else if (for_s > 0) {
    trial_ = {generation().number,
              before,
              monotonic_now() + static_cast<core::TimeNs>(for_s * 1e9),
              0,
              {}};
    revert_.start(static_cast<uint64_t>(for_s * 1e3) + 1);
  }
}

bool PolicyChanges::keep() {
  if (!on_trial()) return false;
  trial_.reset();
  return true;
}

// How much longer than alone runs have taken since the promotion; 0: there were too few.
double PolicyChanges::slowdown() const {
  constexpr uint64_t kRunsMin = 20;
  const core::RunTimes now = engine_.devices.runs_above();
  const double alone_us = now.alone_us - trial_->before.alone_us;
  if (now.count < trial_->before.count + kRunsMin || alone_us <= 0) return 0;
  return (now.took_us - trial_->before.took_us) / alone_us;
}

nlohmann::json PolicyChanges::trial_json(core::TimeNs now) const {
  if (!on_trial()) return nullptr;
  nlohmann::json all = {{"back_to", trial_->back_to},
                        {"left_s", static_cast<double>(trial_->until - now) / 1e9},
                        {"promoted", trial_->slowdown_max > 0}};
  if (trial_->slowdown_max > 0) {
    const double slowed = slowdown();
    all["slowdown_max"] = trial_->slowdown_max;
    all["slowdown"] = slowed > 0 ? nlohmann::json(slowed) : nlohmann::json();
  }
  return all;
}

void PolicyChanges::follow() {
  if (engine_.policy.take_fallback_wanted()) fall_back();
  if (engine_.policy.take_to_remember()) remember();
}

void PolicyChanges::end_trial() {
  if (!on_trial()) return;
  if (trial_->slowdown_max > 0) {
    log_.info("policy_promoted", {{"generation", trial_->generation}});
    trial_.reset();
  } else {
    go_back(trial_->back_to, "revert");
  }
}

void PolicyChanges::go_back(uint64_t to, const std::string& how) {
  change(
      [this, to] {
        return to != 0 ? store_.past(to) : store_.load("builtin", true);  // 0: there was none
      },
      [this, of = trial_->generation, how](Result<Prepared> found) {
        if (!trial_ || of != generation().number) return;  // it was kept meanwhile
        const bool promoted = trial_->slowdown_max > 0;
        const std::string path = generation().path;
        trial_.reset();
        if (!found) {
          (void)engine_.policy.failed(std::move(found.error()));
          return;
        }
        found->generation.by = {how};
        if (engine_.policy.adopt(std::move(*found), monotonic_now()) && promoted) {
          engine_.policy.note_rollback(path + ": " + how + "; heddle policy history");
        }
      });
}

void PolicyChanges::shadow(const std::string& policy, LoadedBy by, Done done) {
  by.how = "shadow";
  change([this, policy] { return store_.candidate(policy); },
         [this, done = std::move(done), by](Result<Prepared> found) {
           if (!found) return done(tl::unexpected<Error>(std::move(found.error())));
           found->generation.by = by;
           done(engine_.policy.candidate().begin(std::move(*found), monotonic_now()));
         });
}

void PolicyChanges::begin_promotion(uint64_t before, const Request& request,
                                    const core::RunTimes& runs) {
  // It may have been quarantined as soon as it met the clients: then it goes back at once
  // (fall_back).
  const bool lost = generation().by.how != "promote" && engine_.policy.quarantined();
  trial_ = {lost ? engine_.policy.quarantined()->generation.number : generation().number, before,
            monotonic_now() + static_cast<core::TimeNs>(request.for_s * 1e9), request.slowdown_max,
            runs};
  revert_.start(static_cast<uint64_t>(request.for_s * 1e3) + 1);
}

void PolicyChanges::check_promotion() {
  if (!trial_ || trial_->slowdown_max == 0) return;
  Trial& trial = *trial_;
  if (trial.generation != generation().number || trial.going_back) return;
  const uint64_t faults = engine_.policy.counts().faults;
  const double slowed = slowdown();
  std::string why;
  if (faults > 0) why = std::to_string(faults) + " faults";
  if (faults == 0 && slowed > trial.slowdown_max) {
    char text[96];
    snprintf(text, sizeof text, "runs took %.2f times what they take alone, over %.2f", slowed,
             trial.slowdown_max);
    why = text;
  }
  if (why.empty()) return;
  trial.going_back = true;
  log_.warning("policy_rolled_back", {{"generation", trial.generation}, {"why", why}});
  go_back(trial.back_to, "rolled back by itself: " + why);
}

// Reloads a changed policy file. An error is logged, and kept for `heddle status`.
void PolicyChanges::reload_changed() {
  change([this] { return store_.changed(); },
         [this](Result<Prepared> changed) {
           const Generation& running = generation();
           if (!changed) {
             (void)engine_.policy.failed(std::move(changed.error()));
           } else if (running.make && changed->generation.hash == running.hash) {
             engine_.policy.mistake_undone(monotonic_now());
           } else {
             changed->generation.by = {"save"};
             (void)engine_.policy.adopt(std::move(*changed), monotonic_now());
           }
         });
}

void PolicyChanges::fall_back() {
  remember();
  // A promoted policy goes back to the one before it, whether or not that has proved itself.
  const auto& trial = trial_;
  const bool promoted = trial && trial->slowdown_max > 0 && trial->back_to != 0 &&
                        engine_.policy.quarantined() &&
                        engine_.policy.quarantined()->generation.number == trial->generation;
  change(
      [this, promoted,
       back_to = promoted ? trial->back_to : 0]() -> std::optional<Result<Generation>> {
        if (promoted) return store_.past(back_to);
        std::optional<Generation> good = store_.last_good();
        if (!good) return std::nullopt;
        return std::move(*good);
      },
      [this](Result<Prepared> good) {
        if (good) engine_.policy.fall_back(std::move(*good), monotonic_now());
      });
}

void PolicyChanges::remember() {
  auto kept = std::make_shared<Result<void>>();
  jobs_.add([this, kept] { *kept = store_.remember(); },
            [this, kept] {
              const std::string error = *kept ? "" : kept->error().message;
              if (!error.empty() && error != unwritten_) {  // not again for each generation
                log_.error("state_not_written", {{"error", error}});
              }
              unwritten_ = error;
            });
}

void PolicyChanges::look(bool changed) {
  auto places = std::make_shared<Places>();
  jobs_.add(
      [this, places] {
        for (const std::string& path : store_.directories()) {
          struct stat file;
          if (stat(path.c_str(), &file) == 0) (*places)[path] = {file.st_dev, file.st_ino};
        }
        store_.look();
      },
      [this, places, changed] {
        if (watch(*places) || changed) reload_changed();
        watch_again_.start(kWatchAgainMs);
      });
}

// Watches these directories. True: one of them is new.
bool PolicyChanges::watch(const Places& places) {
  std::erase_if(directories_, [&](const auto& entry) {
    const auto& [path, watched] = entry;
    const auto place = places.find(path);
    return watched.stale || place == places.end() || place->second != watched.file;
  });
  bool added = false;
  for (const auto& [path, file] : places) {
    if (directories_.count(path) != 0) continue;
    auto watch = std::make_unique<DirectoryWatch>(
        loop_, path, [this, path = path](const char* name) { on_directory_event(path, name); });
    if (watch->error() != 0) {
      log_.warning("policy_not_watched", {{"directory", path},
                                          {"error", uv_strerror(watch->error())},
                                          {"hint", "use heddle policy load after a change"}});
    }
    directories_.emplace(path, Watched{file, false, std::move(watch)});
    added = true;
  }
  return added;
}

// The timer is not restarted by each event, and only by relevant files: otherwise it would never
// fire in a directory with a growing log file.
void PolicyChanges::on_directory_event(const std::string& directory, const std::string& name) {
  namespace fs = std::filesystem;
  const bool itself = name == fs::path(directory).filename();
  if (itself) directories_.at(directory).stale = true;
  // "..data" is the link that a Kubernetes config map switches. A name without an extension may be
  // a directory.
  const bool matters =
      itself || name.ends_with(".lua") || name == "..data" || fs::path(name).extension().empty();
  if (matters && !debounce_.started()) debounce_.start(kDebounceMs);
}

}  // namespace heddle::server
