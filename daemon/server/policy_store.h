// Where policies come from, as the server sees it: it knows neither Lua nor files. Implemented in
// daemon/policy_store.h, which main joins to the server; tests implement it with C++ policies.
// Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/policy.h"
#include "daemon/result.h"

namespace heddle::server {

// A policy that was read and checked. Devices share nothing, so that each has an instance.
struct Generation {
  std::string name = "builtin";
  std::string path;  // "" for the built-in
  std::string hash;  // of the content, "" for the built-in
  // Parameters set live that this content no longer takes, and so lost: why, one each.
  std::vector<std::string> dropped;
  // A fresh instance of what was read then, whatever is saved since; a null pointer stands for the
  // built-in.
  std::function<Result<std::unique_ptr<core::Policy>>()> make;
};

class PolicyStore {
 public:
  using Params = std::vector<std::pair<std::string, std::string>>;

  virtual ~PolicyStore() = default;

  // Reads and checks a policy: a name in the policy directory, a path, or "builtin". What is
  // quarantined is an error unless `pardon`, when somebody asks for it knowing that.
  virtual Result<Generation> load(const std::string& name_or_path, bool pardon) = 0;
  // The content that runs, whatever is saved since, with other parameters; `name` is its own or its
  // file's. They are kept for later loads of that policy once adopted() says that the generation
  // runs.
  virtual Result<Generation> with_params(const std::string& name, const Params& params) = 0;
  // The generation that now runs on every device.
  virtual void adopted(const Generation& generation) = 0;
  // If the file of the running policy, or of something that it imports, changed: the new
  // generation, or why there is none. Says each change once, the running content too when it is
  // found again after something else.
  virtual std::optional<Result<Generation>> changed() = 0;
  // This content faulted too often: changed() never offers it again, nor does load() without a
  // pardon, also after a restart. An error says that the latter could not be written down.
  virtual Result<void> quarantine(const std::string& hash) = 0;

  virtual std::vector<std::string> directories() const = 0;  // to watch; empty: do not watch
  virtual nlohmann::json list() const = 0;    // every policy: name, path, doc, params, error
  virtual nlohmann::json status() const = 0;  // parameters in force, quarantined hashes
  // What an instance made here says of itself: its last verdict and fault.
  virtual nlohmann::json describe(const core::Policy& instance) const = 0;
};

}  // namespace heddle::server
