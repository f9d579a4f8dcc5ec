// How a policy comes from a file to the cores: read, compiled and made on libuv's pool, because
// launches wait for the loop; put to work on the loop, between two decisions.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "daemon/server/server.h"

namespace heddle::server {
namespace {

// An editor's save is several events; a policy is live well within a second all the same.
constexpr uint64_t kDebounceMs = 100;
// A directory that took the place of another, or a link to it that was switched, is nobody's event.
constexpr uint64_t kWatchAgainMs = 1'000;

std::string how_text(const Request& request) {
  if (request.kind == Request::Kind::kPolicyLoad) return "load";
  if (request.kind == Request::Kind::kPolicyPromote) return "promote";
  return request.kind == Request::Kind::kPolicyRollback ? "rollback" : "set";
}

}  // namespace

double slowdown_since(const ServerFacts::Trial& trial, const Engine& engine) {
  constexpr uint64_t kRunsMin = 20;
  const core::RunTimes now = engine.devices.runs_above();
  const double alone_us = now.alone_us - trial.before.alone_us;
  if (now.count < trial.before.count + kRunsMin || alone_us <= 0) return 0;
  return (now.took_us - trial.before.took_us) / alone_us;
}

nlohmann::json trial_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine) {
  const auto& trial = facts.trial;
  if (!trial || trial->generation != engine.policy.generation().number) return nullptr;
  nlohmann::json all = {{"back_to", trial->back_to},
                        {"left_s", static_cast<double>(trial->until - now) / 1e9},
                        {"promoted", trial->slowdown_max > 0}};
  if (trial->slowdown_max > 0) {
    const double slowdown = slowdown_since(*trial, engine);
    all["slowdown_max"] = trial->slowdown_max;
    all["slowdown"] = slowdown > 0 ? nlohmann::json(slowdown) : nlohmann::json();
  }
  return all;
}

void Server::change_policy(Find find, std::function<void(Result<Prepared>)> then) {
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

void Server::load_policy(const std::string& name) {
  change_policy([this, name] { return store_.load(name, false); },
                [this](Result<Prepared> loaded) {
                  take_configured(std::move(loaded));
                  look_at_policies(false);
                });
}

// The engine logs what went wrong and keeps it for `heddle status`.
void Server::take_configured(Result<Prepared> loaded) {
  if (loaded) loaded->generation.by = {"config"};
  if (!loaded) {
    (void)engine_.policy.failed(std::move(loaded.error()));
  } else if (!loaded->generation.quarantined.empty()) {
    engine_.policy.refuse_quarantined(loaded->generation);
  } else {
    (void)engine_.policy.adopt(std::move(*loaded), monotonic_now());
  }
}

// The connection may have gone, and its descriptor be another's, when the answer comes.
std::function<void(const Reply&)> Server::answer_later(Connection& connection) {
  connection.waits = true;
  return [this, fd = connection.fd.get(), serial = connection.serial](const Reply& reply) {
    const auto it = connections_.find(fd);
    if (it == connections_.end() || it->second->serial != serial) return;
    (void)ipc::send_packet(fd, encode_reply(reply));
    disconnect(fd);
  };
}

void Server::order_policy(Connection& connection, const Request& request) {
  if (request.kind == Request::Kind::kPolicyShadow) return shadow_policy(connection, request);
  const auto reply = answer_later(connection);
  if (request.kind == Request::Kind::kPolicyList) {
    auto list = std::make_shared<nlohmann::json>();
    return jobs_.add([this, list] { *list = store_.list(); },
                     [this, list, reply] { reply(policy_list(std::move(*list), engine_)); });
  }
  const bool loads = request.kind == Request::Kind::kPolicyLoad;
  change_policy(finder(request), [this, loads, reply, request, runs = engine_.devices.runs_above(),
                                  by = LoadedBy{how_text(request), connection.peer.uid,
                                                connection.peer.pid}](Result<Prepared> found) {
    const uint64_t before = engine_.policy.generation().number;
    Result<void> changed;
    if (found) {
      found->generation.by = by;
      changed = engine_.policy.adopt(std::move(*found), monotonic_now());
    } else if (loads) {
      changed = engine_.policy.failed(std::move(found.error()));
    } else {  // what was refused says nothing against the policy that runs
      changed = tl::unexpected<Error>(std::move(found.error()));
    }
    if (changed && request.kind == Request::Kind::kPolicyPromote) {
      begin_promotion(before, request, runs);
    } else if (changed) {
      follow_trial(before, by.how == "set", request.for_s);
    }
    reply(after_policy_change(changed, monotonic_now(), facts_, engine_, store_));
    if (loads) look_at_policies(false);
  });
}

// Where the policy of an order comes from.
Server::Find Server::finder(const Request& request) {
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

// Parameters that are set while a policy runs for a while only change nothing of that; whatever
// else is put to work ends it.
void Server::follow_trial(uint64_t before, bool same, double for_s) {
  if (same && facts_.trial && facts_.trial->generation == before) {
    facts_.trial->generation = engine_.policy.generation().number;
  } else if (for_s > 0) {
    facts_.trial = {engine_.policy.generation().number,
                    before,
                    monotonic_now() + static_cast<core::TimeNs>(for_s * 1e9),
                    0,
                    {}};
    revert_->start(static_cast<uint64_t>(for_s * 1e3) + 1);
  }
}

void Server::end_trial() {
  if (!facts_.trial || facts_.trial->generation != engine_.policy.generation().number) return;
  if (facts_.trial->slowdown_max > 0) {
    log_.info("policy_promoted", {{"generation", facts_.trial->generation}});
    facts_.trial.reset();
  } else {
    go_back(facts_.trial->back_to, "revert");
  }
}

void Server::go_back(uint64_t to, const std::string& how) {
  change_policy(
      [this, to] {
        return to != 0 ? store_.past(to) : store_.load("builtin", true);  // nothing ran before
      },
      [this, of = facts_.trial->generation, how](Result<Prepared> found) {
        if (!facts_.trial || of != engine_.policy.generation().number) return;  // kept meanwhile
        const bool promoted = facts_.trial->slowdown_max > 0;
        const std::string path = engine_.policy.generation().path;
        facts_.trial.reset();
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

void Server::shadow_policy(Connection& connection, const Request& request) {
  change_policy(
      [this, name = request.policy] { return store_.candidate(name); },
      [this, reply = answer_later(connection),
       by = LoadedBy{"shadow", connection.peer.uid, connection.peer.pid}](Result<Prepared> found) {
        Result<void> begun;
        if (found) {
          found->generation.by = by;
          begun = engine_.policy.candidate().begin(std::move(*found), monotonic_now());
        } else {
          begun = tl::unexpected<Error>(std::move(found.error()));
        }
        if (!begun) return reply({false, begun.error().message, "{}"});
        const Generation& candidate = *engine_.policy.candidate().generation();
        reply({true, "",
               nlohmann::json{{"shadow", candidate.name},
                              {"hash", candidate.hash},
                              {"live", engine_.policy.generation().name}}
                   .dump()});
      });
}

void Server::begin_promotion(uint64_t before, const Request& request, const core::RunTimes& runs) {
  // As it met the clients it may have been quarantined: then it goes back at once (fall_back).
  const bool lost = engine_.policy.generation().by.how != "promote" && engine_.policy.quarantined();
  facts_.trial = {
      lost ? engine_.policy.quarantined()->generation.number : engine_.policy.generation().number,
      before, monotonic_now() + static_cast<core::TimeNs>(request.for_s * 1e9),
      request.slowdown_max, runs};
  revert_->start(static_cast<uint64_t>(request.for_s * 1e3) + 1);
}

// A promoted policy goes back by itself.
void Server::check_promotion() {
  if (!facts_.trial || facts_.trial->slowdown_max == 0) return;
  ServerFacts::Trial& trial = *facts_.trial;
  if (trial.generation != engine_.policy.generation().number || trial.going_back) return;
  const uint64_t faults = engine_.policy.counts().faults;
  const double slowdown = slowdown_since(trial, engine_);
  std::string why;
  if (faults > 0) why = std::to_string(faults) + " faults";
  if (faults == 0 && slowdown > trial.slowdown_max) {
    char text[96];
    snprintf(text, sizeof text, "runs took %.2f times what they take alone, over %.2f", slowdown,
             trial.slowdown_max);
    why = text;
  }
  if (why.empty()) return;
  trial.going_back = true;
  log_.warning("policy_rolled_back", {{"generation", trial.generation}, {"why", why}});
  go_back(trial.back_to, "rolled back by itself: " + why);
}

// An error is logged and kept for `heddle status`; nobody waits for an answer.
void Server::reload_changed() {
  change_policy([this] { return store_.changed(); },
                [this](Result<Prepared> changed) {
                  const Generation& running = engine_.policy.generation();
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

void Server::fall_back() {
  remember_policies();
  // One that was promoted goes back to where it came from, whether or not that has proved itself.
  const auto& trial = facts_.trial;
  const bool promoted = trial && trial->slowdown_max > 0 && trial->back_to != 0 &&
                        engine_.policy.quarantined() &&
                        engine_.policy.quarantined()->generation.number == trial->generation;
  change_policy(
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

void Server::remember_policies() {
  auto kept = std::make_shared<Result<void>>();
  jobs_.add([this, kept] { *kept = store_.remember(); },
            [this, kept] {
              const std::string error = *kept ? "" : kept->error().message;
              if (!error.empty() && error != unwritten_) {  // each generation would say it again
                log_.error("state_not_written", {{"error", error}});
              }
              unwritten_ = error;
            });
}

// Sees which directories there are, and reads the policy again if it `changed` or one of them is
// new.
void Server::look_at_policies(bool changed) {
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
        watch_again_->start(kWatchAgainMs);
      });
}

// True if a directory is seen from now on that was not.
bool Server::watch(const Places& places) {
  std::erase_if(directories_, [&](const auto& entry) {
    const auto& [path, watched] = entry;
    const auto place = places.find(path);
    return watched.stale || place == places.end() || place->second != watched.file;
  });
  bool added = false;
  for (const auto& [path, file] : places) {
    if (directories_.count(path) != 0) continue;
    auto watch = std::make_unique<DirectoryWatch>(
        &loop_.loop, path,
        [this, path = path](const char* name) { on_directory_event(path, name); });
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

// Started anew by each event, or by those of any file, the timer would never end beside a log.
void Server::on_directory_event(const std::string& directory, const std::string& name) {
  namespace fs = std::filesystem;
  const bool itself = name == fs::path(directory).filename();
  if (itself) directories_.at(directory).stale = true;
  // ..data: what a Kubernetes config map switches. Without an extension it may be a directory.
  const bool matters =
      itself || name.ends_with(".lua") || name == "..data" || fs::path(name).extension().empty();
  if (matters && !debounce_->started()) debounce_->start(kDebounceMs);
}

}  // namespace heddle::server
