// What policy tests can call: t and s of policies/REFERENCE.md, as C functions of a sandbox.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/policy/lua_policy.h"
#include "daemon/sim/virtual.h"

namespace heddle::cli {

struct Simulation {
  std::unique_ptr<policy::LuaPolicy> policy, previous;  // the core may still hold the previous one
  std::unique_ptr<sim::VirtualMachine> machine;
  std::string name;            // of the policy, as the test names it; "": the built-in
  policy::ParamValues params;  // of it
  std::string earlier_fault;   // of a policy that s:reload has replaced
  bool fault_asked = false;    // by s:fault(): then the test judges it
  // The last fault of its policy, "mine.lua:12: ...", with how many there were; "": none.
  std::string fault() const;
};

// One test file. Everything that C functions touch lives here, because a Lua error may not run
// destructors; it is the host of its sandbox.
struct TestFile {
  std::string directory, chunk;
  const std::string* source = nullptr;
  std::vector<std::pair<std::string, int>> tests;  // name, function
  std::vector<Simulation> simulations;
  int methods_ref = LUA_NOREF, t_ref = LUA_NOREF, at_ref = LUA_NOREF;
  std::string text, other, why;  // scratch, as is `order`
  std::vector<const sim::LaunchRecord*> order;
  policy::ParamValues params;
  std::vector<std::string> output;  // of the running test: its first kOutputMax lines ...
  size_t unsaid = 0;                // ... and how many more there were

  static constexpr size_t kOutputMax = 200;
  void say(std::string_view line);
  void say_trace(const sim::VirtualMachine& machine, std::string_view line);  // with the time
  static TestFile& of(lua_State* L) { return *static_cast<TestFile*>(policy::Sandbox::of(L).host); }
};

// ---- for what tests call, inside a protected call ----

void check_keys(lua_State* L, int table, std::initializer_list<const char*> known);
Simulation& check_simulation(lua_State* L);  // the first argument
size_t client_of(lua_State* L, const sim::VirtualMachine& machine, const char* name);
// The text of a value, for messages.
const char* show(lua_State* L, int index, std::string& out);
// Who let a launch go: "open" where it did not ask.
const char* decider_name(const sim::LaunchRecord& launch);
// test_checks.cc
int t_eq(lua_State* L);
int t_near(lua_State* L);
int t_below(lua_State* L);
int t_ok(lua_State* L);
int at_expect(lua_State* L);
int s_shares(lua_State* L);

// Adds print and trace to the globals, which are on top of the stack.
void open_output(lua_State* L);

// Compiles and runs the file, which registers its tests; for Sandbox::run.
int open_test_file(lua_State* L);

}  // namespace heddle::cli
