#include "daemon/cli/policy/test_api.h"

#include <algorithm>
#include <string_view>

namespace heddle::cli {
const char* decider_name(const sim::LaunchRecord& r) {
  constexpr const char* kNames[] = {"policy", "builtin", "starvation", "bypass"};
  return r.asked ? kNames[static_cast<size_t>(r.granted_by)] : "open";
}

namespace {

using policy::Sandbox;

// ---- reading tables ---------------------------------------------------------------------------

double number_field(lua_State* L, int table, const char* key, double otherwise) {
  lua_getfield(L, table, key);
  if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TNUMBER) luaL_error(L, "%s: not a number", key);
  const double v = lua_isnil(L, -1) ? otherwise : lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

// Valid as long as the table holds the string.
const char* text_field(lua_State* L, int table, const char* key, const char* otherwise) {
  lua_getfield(L, table, key);
  if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "%s: not a string", key);
  const char* v = lua_isnil(L, -1) ? otherwise : lua_tostring(L, -1);
  lua_pop(L, 1);
  return v;
}

bool bool_field(lua_State* L, int table, const char* key, bool otherwise) {
  lua_getfield(L, table, key);
  const bool v = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  return v;
}

}  // namespace

// A typing mistake in a test must not make it pass.
void check_keys(lua_State* L, int table, std::initializer_list<const char*> known) {
  luaL_checktype(L, table, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) {
    const std::string_view key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "a number";
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      luaL_error(L, "unknown key '%s'", key.data());
    }
  }
}

Simulation& check_simulation(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const auto index = static_cast<size_t>(number_field(L, 1, "id", 0)) - 1;
  auto& all = TestFile::of(L).simulations;
  if (index >= all.size()) luaL_error(L, "not a simulation; call its methods with a colon");
  return all[index];
}

size_t client_of(lua_State* L, const sim::VirtualMachine& machine, const char* name) {
  for (size_t i = 0; i < machine.clients(); ++i) {
    if (machine.name(i) == name) return i;
  }
  luaL_error(L, "no client '%s'", name);
  return 0;
}

namespace {

sim::LaunchSpec read_launch(lua_State* L, int table) {
  sim::LaunchSpec spec;
  spec.kernel = text_field(L, table, "kernel", "kernel");
  spec.us = number_field(L, table, "us", 100);
  spec.blocks = static_cast<uint32_t>(number_field(L, table, "blocks", 132));
  spec.threads = static_cast<uint32_t>(number_field(L, table, "threads", 1024));
  spec.nodes = static_cast<uint32_t>(number_field(L, table, "nodes", 0));
  lua_getfield(L, table, "metrics");
  if (lua_istable(L, -1)) {
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
      const char* key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
      const size_t metric = ipc::metric_of(key);
      if (metric == ipc::kKernelMetricCount) luaL_error(L, "metrics: no metric '%s'", key);
      spec.metrics.set(metric, luaL_checknumber(L, -1));
    }
  }
  lua_pop(L, 1);
  return spec;
}

sim::TimeNs to_ns(double us) { return static_cast<sim::TimeNs>(us * 1e3); }

void read_params(lua_State* L, int table, policy::ParamValues& params) {
  params.clear();
  lua_getfield(L, table, "params");
  if (lua_istable(L, -1)) {
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
      if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "params: keys are names");
      const char* name = lua_tostring(L, -2);
      lua_pushvalue(L, -1);
      params[name] = lua_type(L, -1) == LUA_TBOOLEAN ? lua_toboolean(L, -1) != 0 ? "true" : "false"
                                                     : luaL_checkstring(L, -1);
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
}

std::string fault_of(const policy::LuaPolicy* policy) {
  if (policy == nullptr || policy->last_fault().count == 0) return "";
  const policy::Fault& fault = policy->last_fault();
  return fault.message + " (" + fault.hook + " faulted " + std::to_string(fault.count) +
         (fault.count == 1 ? " time" : " times") + ", and the built-in decided instead)";
}

// Loads the policy of the name, with `file.params`; "": the built-in decides.
bool load(TestFile& file, Simulation& s, const std::string& name) {
  std::unique_ptr<policy::LuaPolicy> next;
  if (!name.empty()) {
    auto loaded = policy::load_policy_file(file.directory + "/" + name, file.params,
                                           policy::virtual_time_limits());
    if (!loaded) {
      file.text = loaded.error().message;
      return false;
    }
    next = std::move(*loaded);
    const sim::VirtualMachine& machine = *s.machine;
    for (const std::string& line : next->trace_lines()) file.say_trace(machine, line);
    next->set_log([&](std::string_view line) { file.say_trace(machine, line); });
  }
  if (!s.machine->set_policy(next.get())) {
    file.text = next->last_fault().message;
    return false;
  }
  if (s.earlier_fault.empty()) s.earlier_fault = fault_of(s.policy.get());
  s.previous = std::move(s.policy);
  s.policy = std::move(next);
  s.name = name;
  s.params = file.params;
  return true;
}

// ---- t ----------------------------------------------------------------------------------------

int t_sim(lua_State* L) {
  TestFile& file = TestFile::of(L);
  check_keys(L, 1, {"sm", "mps", "policy", "params", "starvation_us", "switch_us", "idle_us"});
  core::Config core;
  core.mps = bool_field(L, 1, "mps", true);
  core.sm_total = core::SmCount(static_cast<uint32_t>(number_field(L, 1, "sm", 132)));
  core.switch_us = number_field(L, 1, "switch_us", core.mps ? 10 : 70);
  core.starvation_us = number_field(L, 1, "starvation_us", core.starvation_us);
  core.idle_us = number_field(L, 1, "idle_us", core.idle_us);
  sim::GpuConfig gpu;
  gpu.mode = core.mps ? sim::Mode::kMps : sim::Mode::kTimeSlice;
  gpu.sm_count = core.sm_total.get();
  const char* name = text_field(L, 1, "policy", "");
  read_params(L, 1, file.params);
  Simulation& s = file.simulations.emplace_back();
  s.machine = std::make_unique<sim::VirtualMachine>(core, gpu);
  if (!load(file, s, name)) return luaL_error(L, "%s", file.text.c_str());
  lua_createtable(L, 0, 16);
  lua_rawgeti(L, LUA_REGISTRYINDEX, file.methods_ref);
  for (lua_pushnil(L); lua_next(L, -2) != 0;) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_settable(L, -5);
  }
  lua_pop(L, 1);
  lua_pushnumber(L, static_cast<double>(file.simulations.size()));
  lua_setfield(L, -2, "id");
  return 1;
}

// ---- s ----------------------------------------------------------------------------------------

int s_client(lua_State* L) {
  Simulation& s = check_simulation(L);
  check_keys(L, 2,
             {"name", "priority", "label", "share", "slo_ms", "slowdown_max", "slowdown_p99_max",
              "gates", "stops", "request", "limit", "issue_max", "l2_max", "dram_max"});
  const char* name = text_field(L, 2, "name", nullptr);
  if (name == nullptr) return luaL_error(L, "a client needs a name");
  const double priority = number_field(L, 2, "priority", 5);
  if (!(priority >= 0 && priority <= 9)) return luaL_error(L, "a priority is 0 to 9");
  const char* label = text_field(L, 2, "label", "");
  sim::ClientSpec spec{name, label, static_cast<int>(priority), number_field(L, 2, "share", 1),
                       number_field(L, 2, "slo_ms", 0)};
  const auto most = [L](const char* key) { return static_cast<float>(number_field(L, 2, key, 0)); };
  spec.slowdown_max = {most("slowdown_max"), most("slowdown_p99_max")};
  spec.channel_max = {most("issue_max"), most("l2_max"), most("dram_max")};
  spec.compute = {most("request"), most("limit")};
  spec.gates = bool_field(L, 2, "gates", false);
  spec.stops = bool_field(L, 2, "stops", false);
  s.machine->add_client(spec);
  return 0;
}

int s_remove(lua_State* L) {
  Simulation& s = check_simulation(L);
  s.machine->remove_client(client_of(L, *s.machine, luaL_checkstring(L, 2)));
  return 0;
}

const char* client_field(lua_State* L) {
  const char* name = text_field(L, 2, "client", nullptr);
  if (name == nullptr) luaL_error(L, "client = \"name\" is missing");
  return name;
}

int s_launch(lua_State* L) {
  Simulation& s = check_simulation(L);
  check_keys(L, 2,
             {"client", "us", "at", "kernel", "blocks", "threads", "nodes", "metrics", "sync"});
  const size_t client = client_of(L, *s.machine, client_field(L));
  const sim::TimeNs at = to_ns(number_field(L, 2, "at", 0));
  s.machine->launch(client, at, read_launch(L, 2), bool_field(L, 2, "sync", false));
  return 0;
}

int s_loop(lua_State* L) {
  Simulation& s = check_simulation(L);
  check_keys(L, 2,
             {"client", "us", "at", "kernel", "blocks", "threads", "nodes", "metrics", "launches",
              "gap_us", "count"});
  const size_t client = client_of(L, *s.machine, client_field(L));
  sim::LoopSpec loop;
  loop.launch = read_launch(L, 2);
  loop.launches = std::max(1u, static_cast<uint32_t>(number_field(L, 2, "launches", 1)));
  loop.gap_us = number_field(L, 2, "gap_us", 0);
  loop.count = static_cast<uint64_t>(number_field(L, 2, "count", 0));
  s.machine->loop(client, to_ns(number_field(L, 2, "at", 0)), loop);
  return 0;
}

int s_run(lua_State* L) {
  Simulation& s = check_simulation(L);
  s.machine->run_until(s.machine->now() + to_ns(luaL_checknumber(L, 2)));
  return 0;
}

// s:at(us) runs to that time and returns { id, expect }.
int s_at(lua_State* L) {
  Simulation& s = check_simulation(L);
  const sim::TimeNs at = to_ns(luaL_checknumber(L, 2));
  if (at < s.machine->now()) return luaL_error(L, "at: that time has passed");
  s.machine->run_until(at);
  lua_createtable(L, 0, 2);
  lua_getfield(L, 1, "id");
  lua_setfield(L, -2, "id");
  lua_rawgeti(L, LUA_REGISTRYINDEX, TestFile::of(L).at_ref);
  lua_setfield(L, -2, "expect");
  return 1;
}

void set_number(lua_State* L, const char* key, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, key);
}

int s_stats(lua_State* L) {
  const Simulation& s = check_simulation(L);
  const size_t client = client_of(L, *s.machine, luaL_checkstring(L, 2));
  const sim::ClientStats stats = s.machine->stats(client);
  lua_createtable(L, 0, 10);
  set_number(L, "launches", static_cast<double>(stats.launches));
  set_number(L, "iterations", static_cast<double>(stats.iterations));
  set_number(L, "mean_us", stats.mean_us);
  set_number(L, "p99_us", stats.p99_us);
  set_number(L, "max_us", stats.max_us);
  set_number(L, "max_wait_us", stats.max_wait_us);
  set_number(L, "gpu_us", stats.gpu_us);
  set_number(L, "asks", static_cast<double>(stats.asks));
  set_number(L, "stops", static_cast<double>(stats.stops));
  set_number(L, "stopped_us", stats.stopped_us);
  return 1;
}

// Every launch that started, in that order: { client, kernel, at_us, end_us, by, sms, set }.
int s_log(lua_State* L) {
  const Simulation& s = check_simulation(L);
  std::vector<const sim::LaunchRecord*>& order = TestFile::of(L).order;
  order.clear();
  for (const sim::LaunchRecord& r : s.machine->launches()) {
    if (r.started != 0) order.push_back(&r);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->started < b->started; });
  lua_createtable(L, static_cast<int>(order.size()), 0);
  for (int i = 0; i < static_cast<int>(order.size()); ++i) {
    const sim::LaunchRecord& r = *order[static_cast<size_t>(i)];
    lua_createtable(L, 0, 6);
    set_number(L, "sms", r.sms.get());
    set_number(L, "set", r.set.bits());
    lua_pushstring(L, s.machine->name(r.client).c_str());
    lua_setfield(L, -2, "client");
    lua_pushstring(L, r.kernel.c_str());
    lua_setfield(L, -2, "kernel");
    lua_pushstring(L, decider_name(r));
    lua_setfield(L, -2, "by");
    set_number(L, "at_us", static_cast<double>(r.started) / 1e3);
    set_number(L, "end_us", static_cast<double>(r.ended) / 1e3);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

// As the daemon does it: a new generation of the same policy, which meets its clients anew.
int s_set(lua_State* L) {
  Simulation& s = check_simulation(L);
  if (s.policy == nullptr) return luaL_error(L, "set: the built-in has no parameters");
  TestFile& file = TestFile::of(L);
  const char* const name = luaL_checkstring(L, 2);
  file.params = s.params;
  file.params[name] = show(L, 3, file.other);
  return load(file, s, s.name) ? 0 : luaL_error(L, "%s", file.text.c_str());
}

// s:reload { policy =, params = } swaps the policy; without one the built-in decides.
int s_reload(lua_State* L) {
  Simulation& s = check_simulation(L);
  TestFile& file = TestFile::of(L);
  check_keys(L, 2, {"policy", "params"});
  read_params(L, 2, file.params);
  if (load(file, s, text_field(L, 2, "policy", ""))) return 0;
  return luaL_error(L, "%s", file.text.c_str());
}

// The last fault's message, nil if there was none, and the count of faults.
int s_fault(lua_State* L) {
  Simulation& s = check_simulation(L);
  s.fault_asked = true;
  const uint64_t count = s.policy != nullptr ? s.policy->last_fault().count : 0;
  if (count > 0) {
    lua_pushstring(L, s.policy->last_fault().message.c_str());
  } else {
    lua_pushnil(L);
  }
  lua_pushnumber(L, static_cast<double>(count));
  return 2;
}

int s_allowed(lua_State* L) {
  constexpr const char* kNames[] = {"GATE", "open", "LEASE"};
  const Simulation& s = check_simulation(L);
  const size_t client = client_of(L, *s.machine, luaL_checkstring(L, 2));
  lua_pushstring(L, kNames[static_cast<size_t>(s.machine->allowed(client))]);
  return 1;
}

int add_test(lua_State* L) {
  TestFile& file = TestFile::of(L);
  luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  const int function = luaL_ref(L, LUA_REGISTRYINDEX);
  file.tests.emplace_back(lua_tostring(L, 1), function);
  return 0;
}

int push_functions(lua_State* L, std::initializer_list<luaL_Reg> functions) {
  lua_createtable(L, 0, static_cast<int>(functions.size()));
  for (const luaL_Reg& f : functions) {
    lua_pushcfunction(L, f.func);
    lua_setfield(L, -2, f.name);
  }
  return luaL_ref(L, LUA_REGISTRYINDEX);
}

}  // namespace

std::string Simulation::fault() const {
  return earlier_fault.empty() ? fault_of(policy.get()) : earlier_fault;
}

int open_test_file(lua_State* L) {
  TestFile& file = TestFile::of(L);
  file.t_ref = push_functions(
      L, {{"sim", t_sim}, {"eq", t_eq}, {"near", t_near}, {"below", t_below}, {"ok", t_ok}});
  file.methods_ref = push_functions(L, {{"client", s_client},
                                        {"remove", s_remove},
                                        {"launch", s_launch},
                                        {"loop", s_loop},
                                        {"run", s_run},
                                        {"at", s_at},
                                        {"shares", s_shares},
                                        {"stats", s_stats},
                                        {"log", s_log},
                                        {"set", s_set},
                                        {"reload", s_reload},
                                        {"fault", s_fault},
                                        {"allowed", s_allowed}});
  lua_pushcfunction(L, at_expect);
  file.at_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  Sandbox::push_globals(L);
  lua_pushcfunction(L, add_test);
  lua_setfield(L, -2, "test");
  open_output(L);
  for (const policy::Verdict* verdict : policy::kVerdicts) {
    lua_pushstring(L, verdict->name);  // what expect compares
    lua_setfield(L, -2, verdict->name);
  }
  Sandbox::compile(L, *file.source, file.chunk.c_str());
  lua_call(L, 0, 0);
  return 0;
}

}  // namespace heddle::cli
