// A Lua state in which code can be wrong without harm: capped memory, bounded time, and nothing in
// reach but what is listed. It protects against mistakes, not malice.
//
// LuaJIT's interpreter with the JIT off: a compiled loop cannot be interrupted on a stock LuaJIT.
// There is no pcall, coroutine or metatable access in reach, so an error always ends the call.
#pragma once

#include <luajit-2.1/lua.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/policy/limits.h"

namespace heddle::policy {

class Sandbox {
 public:
  enum class Stop : uint8_t { kNone, kError, kFuel, kMemory };

  explicit Sandbox(const Limits& limits);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  // nullptr if there was no memory for one.
  lua_State* lua() const { return lua_; }
  static Sandbox& of(lua_State* L) {
    void* self = nullptr;
    lua_getallocf(L, &self);
    return *static_cast<Sandbox*>(self);
  }

  // What C functions in this state belong to; the owner of the sandbox sets it.
  void* host = nullptr;

  // Text of an error that a C function is about to raise. It lives here because raising may not run
  // destructors.
  std::string message;

  // Calls the function below its `args` on the stack under `fuel`. On failure nothing is left on
  // the stack, and error() and traceback() tell what happened.
  Stop call(int args, int results, uint32_t fuel);
  // The last call, by the clock on the wall, to a few ms: builtins burn no fuel.
  double took_ms() const { return took_ms_; }
  const std::string& error() const { return error_; }
  const std::string& traceback() const { return traceback_; }

  // Calls a C function the same way, with `argument` as its light userdata, under the load fuel.
  // Whatever allocates runs in one, because an error outside a protected call ends the process.
  Stop run(lua_CFunction function, void* argument);

  // ---- for C functions, inside a protected call ----

  // Compiles text (never bytecode), with its globals in the sandbox, and pushes the function.
  // Raises "chunk:line: ..." also for a global that it writes or that does not exist.
  static void compile(lua_State* L, std::string_view source, const char* chunk);
  // True if the Lua function on top of the stack ever returns a value.
  static bool returns_value(lua_State* L);
  // Appends what the Lua function on top of the stack does that one which is called for each launch
  // had better not: "table", "string" or "function" (made anew each time), "loop" (without a
  // bound).
  struct Cost {
    int line;
    std::string what;
  };
  static void find_costs(lua_State* L, std::vector<Cost>& found);
  // Pushes the linter's function of that place in what linter.h returns.
  static void push_linter(lua_State* L, int index);
  // Burns fuel for what a builtin is about to do; raises if there is not enough.
  static void charge(lua_State* L, size_t instructions);
  // The table of globals. Adding to it is the owner's privilege: Lua code cannot.
  static void push_globals(lua_State* L);

  // ---- between calls ----

  // Lets the collector work, where nobody waits for an answer.
  void collect();
  size_t memory_used() const { return used_; }

 private:
  static void* allocate(void* self, void* block, size_t old_size, size_t new_size);
  // Keeps the line that runs out of memory or fuel: after unwinding nothing tells any more. It
  // allocates nothing.
  void note_place();
  static void on_count(lua_State* L, lua_Debug*);
  void out_of_fuel(lua_State* L);  // raises
  static int on_error(lua_State* L);
  static int setup(lua_State* L);
  static void lint(lua_State* L, const char* chunk);
  static void append_keys_near(lua_State* L, std::string_view name, std::string& text);
  Stop fail_with(int status);

  const Limits limits_;
  lua_State* lua_ = nullptr;
  size_t used_ = 0;
  size_t used_after_collection_ = 0;
  bool collecting_ = false;
  bool in_collector_ = false;
  uint64_t fuel_ = 0;
  uint64_t spent_ = 0;
  bool tripped_ = false;
  int64_t cpu_start_ns_ = 0;
  int64_t cpu_seen_ns_ = 0;
  double took_ms_ = 0;
  int globals_ref_ = LUA_NOREF;
  int linter_ref_ = LUA_NOREF;
  std::string error_, traceback_;
  char stopped_at_[LUA_IDSIZE + 16] = "";
};

// It begins as "gapfill.lua:12: ".
bool has_place(std::string_view message);

// Raises `message` of the sandbox with the place of the caller in front.
int raise(lua_State* L);

}  // namespace heddle::policy
