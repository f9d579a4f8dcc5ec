// What a policy file declares: policy { name, api, version, per_launch, params, hooks }, checked as
// it is read.
#pragma once

#include <array>
#include <luajit-2.1/lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::policy {

// The hooks that this build calls.
enum class Hook : uint8_t {
  kInit,
  kClientInit,
  kClientActive,
  kClientIdle,
  kClientExit,
  kKernelInit,
  kEnqueue,
  kDispatch,
  kStopping,
  kTick,
  kClientUpdate,
  kRunning,
  kDump,
  kExit,
};
inline constexpr size_t kHooks = 14;
inline constexpr std::string_view kHookNames[kHooks] = {
    "init",          "client_init", "client_active", "client_idle", "client_exit",
    "kernel_init",   "enqueue",     "dispatch",      "stopping",    "tick",
    "client_update", "running",     "dump",          "exit"};

struct Param {
  enum class Type : uint8_t { kInt, kNumber, kBool, kString };
  std::string name;
  Type type = Type::kNumber;
  double min = 0, max = 0;
  std::string doc;
  std::string default_value;  // as text
  std::string value;          // as text
};

struct Declaration {
  std::string chunk;        // the file's name, and its text: where errors are
  std::string_view source;  // valid while it is declared
  std::string name, version;
  bool per_launch = false;              // Policy::chooses_per_launch
  std::vector<Param> params;            // by name
  std::array<int, kHooks> hook_refs{};  // LUA_NOREF: absent
  int values_ref = LUA_NOREF;           // table of the parameters' values, what `p` reads
  int declared_ref = LUA_NOREF;         // the table that policy{} was given; it returns it
};

// Registers `policy` in the globals; it fills `declaration`, which has chunk and source. Inside a
// protected call.
void open_declaration(lua_State* L, Declaration& declaration);

// Checks `text` against the parameter's type and range and returns its canonical form.
Result<std::string> parse_param(const Param& param, std::string_view text);

// Pushes the value that `text`, in canonical form, stands for.
void push_param(lua_State* L, const Param& param, const std::string& text);

}  // namespace heddle::policy
