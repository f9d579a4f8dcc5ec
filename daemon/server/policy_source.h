// The source of policies, as the server sees it: the server knows neither Lua nor files.
// daemon/policy_store.h implements it, and main connects that with the server; tests implement it
// with C++ policies.
//
// The first half of the calls reads and writes files, and may wait for the disk and for the policy:
// one such call at a time, on any thread. The second half answers at once, on the loop, also while
// a call of the first half is running.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/policy.h"

namespace heddle::server {

// How a generation was loaded, and by whom.
struct LoadedBy {
  std::string how;   // "config", "save", "load", "set", "rollback", "revert", "fallback",
                     // "quarantine", "promote", "rolled back by itself: ..."
  int64_t uid = -1;  // of the user who asked for it; -1: heddled itself
  int64_t pid = 0;
};

// A policy that was read and checked. Devices share no state, so each has an instance of its own.
struct Generation {
  std::string name = "builtin";
  std::string path;  // "" for the built-in
  std::string hash;  // of the content; "" for the built-in
  // Parameters that were set live and that this content does not take any more: why, one each.
  std::vector<std::string> dropped;
  bool keeps_promises = false;  // its text uses rules' slowdown_max
  bool keeps_p99 = false;       // ... and slowdown_p99_max
  bool keeps_compute = false;   // ... and compute
  // Why it must not run; "": it may.
  std::string quarantined;
  // Makes an instance of the content that was read, whatever was saved since. A null pointer means
  // the built-in. Any thread.
  std::function<Result<std::unique_ptr<core::Policy>>()> make;
  std::shared_ptr<const void> content;  // the store's own
  std::string on_disk;                  // the store's own: the file's content then; "": unknown
  LoadedBy by;
  uint64_t number = 0;  // in the history of generations, once it was adopted
  uint64_t as = 0;      // the number of an earlier generation that this one repeats; 0: none
};

class PolicyStore {
 public:
  using Params = std::vector<std::pair<std::string, std::string>>;

  virtual ~PolicyStore() = default;

  // ---- as long as it takes ----

  // Reads and checks a policy: a name in the policy directory, a path, or "builtin". `pardon`:
  // lifts its quarantine, because an administrator asked for it.
  virtual Result<Generation> load(const std::string& name_or_path, bool pardon) = 0;
  // The same for a candidate beside the policy in force, which stays the one to reload.
  virtual Result<Generation> candidate(const std::string& name_or_path) = 0;
  // The running content, whatever was saved since, with other parameters. `name`: the policy's or
  // its file's. The parameters are kept for later loads of that policy once the generation is
  // adopted().
  virtual Result<Generation> with_params(const std::string& name, const Params& params) = 0;
  // The running content with the parameters `names`, or all that were set live, back at the values
  // of the file and the configuration.
  virtual Result<Generation> without_params(const std::string& name,
                                            const std::vector<std::string>& names) = 0;
  // An earlier generation, as it was. 0: the last different one before the running one, or before
  // the one that this repeats, that was not thrown out. If its file has another content by now,
  // changed() does not report that as a change.
  virtual Result<Generation> past(uint64_t number) = 0;
  // Reads the running policy's file if its time or size has changed.
  virtual void look() = 0;
  // If the file of the running policy, or of a module that it imports, changed: the new generation,
  // or the error. Reports each change once, also a change back to the running content.
  virtual std::optional<Result<Generation>> changed() = 0;
  // The newest generation that good() was called with, also in earlier runs of heddled, unless it
  // was quarantined.
  virtual std::optional<Generation> last_good() = 0;
  // Saves the results of quarantine() and good().
  virtual Result<void> remember() = 0;
  virtual std::vector<std::string> directories() = 0;  // to watch; empty: do not watch
  virtual nlohmann::json list() = 0;  // every policy: name, path, doc, params, error, quarantined

  // ---- at once ----

  // The generation runs on all devices now. Returns its number. `stands_in`: it replaces a
  // quarantined policy, whose file is still watched, and runs again once it is mended.
  virtual uint64_t adopted(const Generation& generation, bool stands_in) = 0;
  // The generation faulted too often; `why`: the last fault. changed() never returns it again, and
  // load() only with a pardon, also after a restart. If the content was good with other parameters,
  // the live parameters are dropped instead.
  virtual void quarantine(const Generation& generation, const std::string& why) = 0;
  // The generation decided for long enough without a fault: a later one that fails falls back to
  // it.
  virtual void good(const Generation& generation) = 0;
  virtual nlohmann::json status() const = 0;  // parameters in force, quarantined hashes
  // history(): all generations so far, the oldest first. show(): the running one with its text and
  // parameters.
  virtual nlohmann::json history() const = 0;
  virtual nlohmann::json show() const = 0;
  // The last verdict and fault of an instance made here.
  virtual nlohmann::json describe(const core::Policy& instance) const = 0;
  // The same with more about an instance that was dropped: traceback, maps.
  virtual nlohmann::json describe_ended(const core::Policy& instance) const = 0;
};

// A policy generation with instances of it, made off the loop.
using Instances = std::vector<std::unique_ptr<core::Policy>>;

struct Prepared {
  Generation generation;
  Instances instances;
};

// Any thread.
Result<Prepared> prepare(Generation generation, size_t instances);
// Takes a `spare` instance; otherwise makes one of the content that was read.
Result<std::unique_ptr<core::Policy>> take_instance(const Generation& generation, Instances& spare);

}  // namespace heddle::server
