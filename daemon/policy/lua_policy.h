// A policy written in Lua, as the core's Policy. One Lua state per generation: reloading makes a
// new LuaPolicy and swaps it in, so nothing of the old one is left over. Used on the core's thread.
//
// A hook that fails, for whatever reason, returns HookResult::kFault: the built-in decides this
// once, and last_fault() says what happened.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/policy.h"
#include "daemon/policy/declaration.h"
#include "daemon/policy/hook_times.h"
#include "daemon/policy/limits.h"
#include "daemon/policy/running.h"
#include "daemon/policy/sandbox.h"

namespace heddle::policy {

struct Fault {
  std::string kind;  // "error", "fuel", "memory", "verdict", "stale" or "slow"
  std::string hook;
  std::string message;  // "gapfill.lua:12: ...; remedy"
  std::string traceback;
  uint64_t count = 0;  // of all kinds since the load; 0: none yet
};

// What dispatch answered and why, so many times since the load.
struct Said {
  std::string_view verdict;  // "RUN", "OPEN", "IDLE", "" for several
  std::string reason;
  uint64_t count = 0;
};

struct Source {
  std::string text;
  std::string chunk;      // the file's name, as errors show it
  std::string directory;  // where import looks, then in the one above; empty: imports fail
  // Reads what is imported; whoever trusts not every file, or wants them as they were, has his own.
  std::function<Result<std::string>(const std::string& path)> read = read_source;
};

// Parameter values as text, as they stand in TOML or on the command line.
using ParamValues = std::map<std::string, std::string>;

class LuaPolicy final : public core::Policy {
 public:
  ~LuaPolicy() override = default;

  std::string_view name() const override { return declaration_.name; }
  const std::string& version() const { return declaration_.version; }
  // Of the text and all that it imports, 16 hexadecimal digits: what audit and quarantine name.
  const std::string& content_hash() const { return hash_; }
  // Whether its text, or what it imports, asks what a rule's slowdown_max or slowdown_p99_max
  // leaves.
  bool asks_of_promises() const, asks_of(std::string_view field) const;
  const std::vector<Param>& params() const { return declaration_.params; }
  // Live; between hook calls only.
  Result<void> set_param(std::string_view name, std::string_view value);

  const Fault& last_fault() const { return fault_; }
  // The reason that came with the last verdict, "" if it had none.
  const std::string& last_reason() const { return reason_; }
  // What dispatch said last: "RUN", "OPEN", "IDLE", or "" for the built-in.
  std::string_view last_verdict() const { return verdict_; }
  // In the order in which they came first; after kReasonsMax of them all others together.
  const std::vector<Said>& said() const { return said_; }
  // The newest lines of trace(), oldest first.
  std::vector<std::string> trace_lines() const;
  // Gets every trace line and each notice once; it must not call back.
  void set_log(std::function<void(std::string_view)> log) { session_.log = std::move(log); }
  const Maps& maps() const { return session_.maps; }
  size_t memory_used() const { return sandbox_.memory_used(); }
  const HookTimes& times(Hook hook) const { return times_[static_cast<size_t>(hook)]; }

  // What the linter would have otherwise in hooks that are called for each launch, as
  // "gapfill.lua:12: ...": no mistakes. It looks at the hooks alone, not at what they call.
  std::vector<std::string> warnings();
  // The same of fields that objects do not have, which is a mistake. It looks at the hooks'
  // parameters and at what is read from them or from queues, in the hooks alone.
  std::vector<std::string> mistakes();

  bool take_over(core::Policy& before) override;
  core::HookResult init(core::Gpu& gpu) override;
  std::string dump(core::Gpu& gpu) override;
  void exit(core::Gpu& gpu, core::Ending ending) override;
  core::AllowanceVerdict client_init(core::Gpu& gpu, core::ClientId client) override;
  core::AllowanceVerdict client_active(core::Gpu& gpu, core::ClientId client) override;
  core::AllowanceVerdict client_idle(core::Gpu& gpu, core::ClientId client) override;
  core::HookResult client_exit(core::Gpu& gpu, core::ClientId client) override;
  core::AllowanceVerdict client_update(core::Gpu& gpu, core::ClientId client) override;
  bool hears_updates() const override { return has(Hook::kClientUpdate); }
  core::KernelVerdict kernel_init(core::Gpu& gpu, const core::LaunchView& kernel) override;
  bool hears_kernels() const override { return has(Hook::kKernelInit); }
  core::SmFamily family() const override { return session_.family; }
  core::EnqueueVerdict enqueue(core::Gpu& gpu, core::LaunchId launch) override;
  core::DispatchVerdict dispatch(core::Gpu& gpu) override;
  core::HookResult running(core::Gpu& gpu, const core::LaunchView& launch) override;
  bool hears_running() const override { return has(Hook::kRunning); }
  core::HookResult stopping(core::Gpu& gpu, const core::LaunchView& launch) override;
  std::string_view reason(uint16_t number) const override;
  bool hears_stopping() const override { return has(Hook::kStopping); }
  core::HookResult tick(core::Gpu& gpu) override;
  bool hears_tick() const override { return has(Hook::kTick); }
  uint32_t fault_weight() const override { return fault_weight_; }

 private:
  friend Result<std::unique_ptr<LuaPolicy>> load_policy(const Source&, const ParamValues&,
                                                        const Limits&);
  explicit LuaPolicy(const Limits& limits) : limits_(limits), sandbox_(limits) {}
  static int load(lua_State* L);
  static int store_params(lua_State* L);
  static int make_frame(lua_State* L);
  static int make_client(lua_State* L);  // of client_,
  static int forget_client(lua_State* L);
  void push_frame();
  static int find_warnings(lua_State* L);
  static int find_mistakes(lua_State* L);

  bool has(Hook hook) const {
    return declaration_.hook_refs[static_cast<size_t>(hook)] != LUA_NOREF;
  }
  void begin(Hook hook, core::Gpu& gpu);  // pushes the function
  bool finish(int args, int results);     // calls it; false on a fault
  void end();
  bool know(Hook hook, core::ClientId client);  // false on a fault
  core::AllowanceVerdict allowance_hook(Hook hook, core::Gpu& gpu, core::ClientId client);
  core::HookResult launch_hook(Hook hook, core::Gpu& gpu, const core::LaunchView& launch);
  bool read_allowance(core::AllowanceVerdict& verdict);
  bool read_run(core::DispatchVerdict& verdict);
  bool read_idle(core::DispatchVerdict& verdict);
  bool read_kernel(core::KernelVerdict& verdict);
  void read_reason(int index);
  uint16_t count_verdict();
  std::string place() const;
  bool bad_verdict(std::string_view wanted);
  void record(std::string_view kind, std::string message, std::string traceback);

  const Limits limits_;
  Session session_;
  Sandbox sandbox_;
  Declaration declaration_;
  int params_ref_ = LUA_NOREF;                              // what hooks get as `p`
  int replaced_ref_ = LUA_NOREF, faulted_ref_ = LUA_NOREF;  // what exit gets
  std::string hash_;
  Fault fault_;
  uint32_t fault_weight_ = 1;
  std::string chunk_;
  std::string reason_;
  std::string_view verdict_;
  std::vector<Said> said_;
  std::array<HookTimes, kHooks> times_;
  std::vector<std::string> warnings_, mistakes_;
  Hook running_ = Hook::kInit;
  core::ClientId client_ = 0;  // who comes or goes
  bool told_unplaced_ = false;
};

// Compiles, lints and runs the top level. The error is one line: place, what is wrong, remedy.
Result<std::unique_ptr<LuaPolicy>> load_policy(const Source& source, const ParamValues& values = {},
                                               const Limits& limits = {});

// Reads policy_file(named) and loads it; imports come from its directory, or the one above.
Result<std::unique_ptr<LuaPolicy>> load_policy_file(const std::string& named,
                                                    const ParamValues& values = {},
                                                    const Limits& limits = {});

}  // namespace heddle::policy
