// Where policies come from, as the server sees it: it knows neither Lua nor files. Implemented in
// daemon/policy_store.h, which main joins to the server; tests implement it with C++ policies.
//
// The first half of the calls reads and writes files, and takes as long as the disk and the policy
// do: one such call at a time, on any thread. The second half answers at once, on the loop, also
// while one of those is under way.
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

// Who put a generation to work, and how.
struct LoadedBy {
  std::string how;   // "config", "save", "load", "set", "rollback", "revert", "fallback",
                     // "quarantine", "promote", "rolled back by itself: ..."
  int64_t uid = -1;  // of whom asked for it; -1: nobody did
  int64_t pid = 0;
};

// A policy that was read and checked. Devices share nothing, so that each has an instance.
struct Generation {
  std::string name = "builtin";
  std::string path;  // "" for the built-in
  std::string hash;  // of the content, "" for the built-in
  // Parameters set live that this content no longer takes, and so lost: why, one each.
  std::vector<std::string> dropped;
  bool keeps_promises = false;  // its text asks what a rule's slowdown_max leaves
  bool keeps_p99 = false;       // ... its slowdown_p99_max
  bool keeps_compute = false;   // ... its compute
  // Why it must not run, "" if it may.
  std::string quarantined;
  // A fresh instance of what was read then, whatever is saved since; a null pointer stands for the
  // built-in. Any thread.
  std::function<Result<std::unique_ptr<core::Policy>>()> make;
  std::shared_ptr<const void> content;  // the store's own
  std::string on_disk;                  // the same: what its file had then, "" if nobody looked
  LoadedBy by;
  uint64_t number = 0;  // of the generations in the history; once it was adopted
  uint64_t as = 0;      // the number of the one that it is again; 0: none
};

class PolicyStore {
 public:
  using Params = std::vector<std::pair<std::string, std::string>>;

  virtual ~PolicyStore() = default;

  // ---- as long as it takes ----

  // Reads and checks a policy: a name in the policy directory, a path, or "builtin". Who asks for
  // it knowing that it is quarantined pardons it.
  virtual Result<Generation> load(const std::string& name_or_path, bool pardon) = 0;
  // The same of one that is to run beside what runs: what is to run stays as it is.
  virtual Result<Generation> candidate(const std::string& name_or_path) = 0;
  // The content that runs, whatever is saved since, with other parameters; `name` is its own or its
  // file's. They are kept for later loads of that policy once adopted() says that the generation
  // runs.
  virtual Result<Generation> with_params(const std::string& name, const Params& params) = 0;
  // The content that runs, with the parameters `names`, or all that were set live, as its file and
  // the configuration have them.
  virtual Result<Generation> without_params(const std::string& name,
                                            const std::vector<std::string>& names) = 0;
  // A generation that ran, as it was; 0: the last other before the running one, or before the one
  // that this is again, that was not thrown out. Its file may say something else by now, which
  // changed() does not take for a change.
  virtual Result<Generation> past(uint64_t number) = 0;
  // Sees, if its time or size has changed, what the file of the running policy has.
  virtual void look() = 0;
  // If the file of the running policy, or of something that it imports, changed: the new
  // generation, or why there is none. Says each change once, the running content too when it is
  // found again after something else.
  virtual std::optional<Result<Generation>> changed() = 0;
  // The newest generation that good() was told of, this run or before, unless it was quarantined.
  virtual std::optional<Generation> last_good() = 0;
  // Writes down what quarantine() and good() were told. An error says that it could not.
  virtual Result<void> remember() = 0;
  virtual std::vector<std::string> directories() = 0;  // to watch; empty: do not watch
  virtual nlohmann::json list() = 0;  // every policy: name, path, doc, params, error, quarantined

  // ---- at once ----

  // The generation that now runs on every device; returns its number. `stands_in`: for another that
  // was quarantined, whose file is still the one to run once it is mended.
  virtual uint64_t adopted(const Generation& generation, bool stands_in) = 0;
  // It faulted too often, `why` is the last fault: changed() never offers it again, nor does load()
  // without a pardon, also after a restart. Of a content that was good with other parameters those
  // are dropped instead.
  virtual void quarantine(const Generation& generation, const std::string& why) = 0;
  // It decided for long enough without a fault: where the next one that does not falls back to.
  virtual void good(const Generation& generation) = 0;
  virtual nlohmann::json status() const = 0;  // parameters in force, quarantined hashes
  // The generations that ran, oldest first; and the running one with its text and parameters.
  virtual nlohmann::json history() const = 0;
  virtual nlohmann::json show() const = 0;
  // What an instance made here says of itself: its last verdict and fault.
  virtual nlohmann::json describe(const core::Policy& instance) const = 0;
  // The same, and what else is of use once it has lost its place: traceback, maps.
  virtual nlohmann::json describe_ended(const core::Policy& instance) const = 0;
};

// A policy generation with instances of it, made where nobody waits.
using Instances = std::vector<std::unique_ptr<core::Policy>>;

struct Prepared {
  Generation generation;
  Instances instances;
};

// Any thread.
Result<Prepared> prepare(Generation generation, size_t instances);
// One of those that are `spare`, else a fresh one, of what was read then.
Result<std::unique_ptr<core::Policy>> take_instance(const Generation& generation, Instances& spare);

}  // namespace heddle::server
