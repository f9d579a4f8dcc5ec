// The functions that policies may call.
#include <algorithm>
#include <cmath>

#include "daemon/base/files.h"
#include "daemon/base/nearest.h"
#include "daemon/policy/files.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

core::Gpu& check_gpu(lua_State* L, Session& s, const char* what) {
  if (s.gpu == nullptr) luaL_error(L, "%s works inside hooks only", what);
  return *s.gpu;
}

const QueueName& check_queue(lua_State* L, Session& s, const char* what) {
  const char* name = luaL_checkstring(L, 1);
  for (const QueueName& q : s.queues) {
    if (q.interned == name) return q;
  }
  {
    std::vector<std::string_view> known;
    for (const QueueName& q : s.queues) known.emplace_back(q.name);
    Sandbox::of(L).message =
        std::string(what) + ": no queue '" + name + "'" +
        (known.empty() ? "; queue.create it at the top level" : did_you_mean(name, known));
  }
  raise(L);
  return s.queues.front();
}

double check_us(lua_State* L, int index, const char* what) {
  const double us = luaL_checknumber(L, index);
  if (std::isnan(us)) luaL_error(L, "%s: argument %d is not a number (NaN)", what, index);
  return us;
}

int queue_create(lua_State* L) {
  Session& s = Session::of(L);
  if (!s.loading) return luaL_error(L, "queue.create belongs to the top level of the file");
  const char* name = luaL_checkstring(L, 1);
  for (const QueueName& q : s.queues) {
    if (q.interned == name) return luaL_error(L, "queue '%s' is created twice", name);
  }
  if (s.queues.size() >= kQueuesMax) {
    return luaL_error(L, "a policy has at most %d queues", static_cast<int>(kQueuesMax));
  }
  lua_pushvalue(L, 1);
  luaL_ref(L, LUA_REGISTRYINDEX);  // keeps the interned name where it is
  s.queues.push_back({name, name, 0});
  return 0;
}

int queue_insert(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "queue.insert");
  const QueueName& queue = check_queue(L, s, "queue.insert");
  const LaunchObject& launch = check_launch(L, s, 2, "queue.insert");
  const double key = check_us(L, 3, "queue.insert");
  if (!gpu.queue_insert(queue.id, launch.id, key)) {
    return luaL_error(L, "queue.insert: k is stale, the launch no longer waits");
  }
  s.inserted = true;
  lua_pushlightuserdata(L, const_cast<Verdict*>(&kInserted));
  return 1;
}

int push_launch_or_nil(lua_State* L, Session& s, core::LaunchId id) {
  if (id != 0) {
    push_launch(L, s, id);
  } else {
    lua_pushnil(L);
  }
  return 1;
}

int queue_peek(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "queue.peek");
  const QueueName& queue = check_queue(L, s, "queue.peek");
  const double place = luaL_optnumber(L, 2, 1);
  if (!(place >= 1 && place <= UINT32_MAX)) {
    return luaL_error(L, "queue.peek: places are from 1");
  }
  return push_launch_or_nil(L, s, gpu.queue_peek(queue.id, static_cast<size_t>(place) - 1));
}

int queue_best_fit(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "queue.best_fit");
  const QueueName& queue = check_queue(L, s, "queue.best_fit");
  return push_launch_or_nil(L, s, gpu.queue_best_fit(queue.id, check_us(L, 2, "queue.best_fit")));
}

int queue_len(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "queue.len");
  lua_pushnumber(L, static_cast<double>(gpu.queue_len(check_queue(L, s, "queue.len").id)));
  return 1;
}

// sm_set.free(k, sm): of the set that the launch would get, 0 if others work there.
int sm_free(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "sm_set.free");
  const LaunchObject& launch = check_launch(L, s, 1, "sm_set.free");
  const double sm = luaL_checknumber(L, 2);
  if (!(sm >= 1 && sm <= 1024) || sm != std::floor(sm)) {
    return luaL_error(L, "sm_set.free: a size is 1 to 1024 SMs");
  }
  lua_pushnumber(L, gpu.free_sms(launch.id, core::SmCount(static_cast<uint32_t>(sm))).get());
  return 1;
}

// A whole number of `key` in the table that is the first argument.
uint32_t family_number(lua_State* L, const char* key, double otherwise, double most) {
  lua_getfield(L, 1, key);
  const double value = lua_isnil(L, -1) ? otherwise : lua_tonumber(L, -1);
  if ((!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TNUMBER) || !(value >= 0 && value <= most) ||
      value != std::floor(value)) {
    luaL_error(L, "sm_set.family: %s is a whole number from 0 to %d", key, static_cast<int>(most));
  }
  lua_pop(L, 1);
  return static_cast<uint32_t>(value);
}

void family_sizes(lua_State* L, core::SmFamily& family) {
  lua_getfield(L, 1, "sizes");
  if (lua_isnil(L, -1)) return lua_pop(L, 1);
  if (!lua_istable(L, -1)) luaL_error(L, "sm_set.family: sizes is a list of numbers of groups");
  uint32_t sizes = 0;
  for (int i = 1;; ++i) {
    lua_rawgeti(L, -1, i);
    if (lua_isnil(L, -1)) break;
    const double n = lua_tonumber(L, -1);
    if (!(n >= 1 && n <= core::kSmGroups) || n != std::floor(n)) {
      luaL_error(L, "sm_set.family: a size is 1 to %d groups", static_cast<int>(core::kSmGroups));
    }
    sizes |= 1U << (static_cast<uint32_t>(n) - 1);
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
  family.sizes = core::SetSizes(sizes);
}

// KRISP's distributions over shader engines (section 4.3): the sets that there are give one of
// them.
void check_distribution(lua_State* L) {
  lua_getfield(L, 1, "distribution");
  const char* name = luaL_optstring(L, -1, "distributed");
  if (std::string_view(name) != "distributed") {
    luaL_error(L,
               "sm_set.family: no distribution \"%s\": sets are neighbours on the ring, which are "
               "of different GPCs; leave it out, or write \"distributed\"",
               name);
  }
  lua_pop(L, 1);
}

// sm_set.family { sizes, placement, isolated, positions, overlap, distribution }
int sm_family(lua_State* L) {
  constexpr std::string_view kKeys[] = {"sizes",     "placement", "isolated",
                                        "positions", "overlap",   "distribution"};
  constexpr std::string_view kPlacements[] = {"end", "ring", "live"};
  Session& s = Session::of(L);
  if (!s.loading) return luaL_error(L, "sm_set.family belongs to the top level of the file");
  if (s.family_declared) return luaL_error(L, "sm_set.family is declared twice");
  luaL_checktype(L, 1, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    const char* key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      Sandbox::of(L).message = std::string("sm_set.family: unknown key '") + key + "'";
      Sandbox::of(L).message += did_you_mean(key, kKeys);
      return raise(L);
    }
  }
  core::SmFamily family;
  family_sizes(L, family);
  check_distribution(L);
  lua_getfield(L, 1, "placement");
  const char* placement = luaL_optstring(L, -1, "end");
  const auto found = std::find(std::begin(kPlacements), std::end(kPlacements), placement);
  if (found == std::end(kPlacements)) {
    return luaL_error(L, "sm_set.family: placement is \"end\", \"ring\" or \"live\"");
  }
  family.placement = static_cast<core::SmFamily::Placement>(found - std::begin(kPlacements));
  lua_getfield(L, 1, "isolated");
  family.isolated = lua_toboolean(L, -1) != 0;
  family.positions = static_cast<uint8_t>(family_number(L, "positions", 1, core::kFamilyMost));
  family.overlap = core::GroupCount(family_number(L, "overlap", 0, core::kSmGroups));
  if (family.sizes.count() == 0 || family.positions == 0 || family.count() > core::kFamilyMost) {
    return luaL_error(L, "sm_set.family: sizes times positions is %d; a process has 1 to %d sets",
                      static_cast<int>(family.count()), static_cast<int>(core::kFamilyMost));
  }
  s.family = family;
  s.family_declared = true;
  return 0;
}

int now_us(lua_State* L) {
  const core::Gpu& gpu = check_gpu(L, Session::of(L), "now_us");
  lua_pushnumber(L, static_cast<double>(gpu.now()) / 1e3);
  return 1;
}

// trace(fmt, ...), by way of string.format, its upvalue.
int trace(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  size_t bytes = 0;
  const char* line = lua_tolstring(L, -1, &bytes);
  add_trace(Session::of(L), {line, std::min(bytes, kLineBytes)});
  return 0;
}

// import "lib/name": a file beside the policy or in papers/ there, or in the folder above, as
// papers/ has it; it returns a table of functions. The text of a file stays in `sources`, which
// outlives any error raised while it is compiled.
bool good_import(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.back() == '/') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/") == name.npos;
}

bool read_import(Session& s, const char* name, std::string& message) {
  if (!s.loading) {
    message = "import belongs to the top level of the file";
  } else if (!good_import(name)) {
    message = std::string("import '") + name + "': a name is like lib/budget, without .lua";
  } else if (s.directory.empty()) {
    message = std::string("import '") + name + "': this policy has no directory";
  } else if (s.sources.size() > kImportsMax) {
    message = "a policy imports at most " + std::to_string(kImportsMax) + " files";
  } else {
    const std::string file = std::string(name) + ".lua";
    Result<std::string> text = s.read(policy_file(s.directory + "/" + file));
    Result<std::string> above = text ? fail("") : s.read(s.directory + "/../" + file);
    if (text || above) {
      s.sources.push_back(text ? std::move(*text) : std::move(*above));
      return true;
    }
    message = text.error().message;
  }
  return false;
}

int import(lua_State* L) {
  Session& s = Session::of(L);
  const char* name = luaL_checkstring(L, 1);
  lua_pushvalue(L, 1);
  lua_rawget(L, lua_upvalueindex(1));
  if (!lua_isnil(L, -1)) return 1;
  if (!read_import(s, name, Sandbox::of(L).message)) return raise(L);
  Sandbox::compile(L, s.sources.back(), lua_pushfstring(L, "%s.lua", name));
  lua_call(L, 0, 1);
  if (!lua_istable(L, -1)) return luaL_error(L, "%s.lua must return a table of functions", name);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, -2);
  lua_rawset(L, lua_upvalueindex(1));
  return 1;
}

int verdict_tostring(lua_State* L) {
  const Verdict* verdict = to_verdict(L, 1);
  lua_pushstring(L, verdict != nullptr ? verdict->name : "?");
  return 1;
}

}  // namespace

const Verdict* to_verdict(lua_State* L, int index) {
  const void* value = lua_touserdata(L, index);  // no object lies where a verdict does
  for (const Verdict* v : kVerdicts) {
    if (v == value) return v;
  }
  return nullptr;
}

void add_trace(Session& s, std::string_view line) {
  if (s.trace.size() < kTraceLines) s.trace.resize(kTraceLines);
  s.trace[s.trace_count++ % kTraceLines].assign(line);
  if (s.log) s.log(line);
}

Result<std::string> read_source(const std::string& path) {
  return read_file(path, "check that it exists and who owns it", kSourceBytes);
}

void open_helpers(lua_State* L, Session& s) {
  Sandbox::push_globals(L);
  const int globals = lua_gettop(L);
  constexpr luaL_Reg kQueue[] = {{"create", queue_create},
                                 {"insert", queue_insert},
                                 {"peek", queue_peek},
                                 {"best_fit", queue_best_fit},
                                 {"len", queue_len}};
  lua_createtable(L, 0, 5);
  for (const luaL_Reg& f : kQueue) {
    lua_pushcfunction(L, f.func);
    lua_setfield(L, -2, f.name);
  }
  lua_setfield(L, globals, "queue");
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, sm_family);
  lua_setfield(L, -2, "family");
  lua_pushcfunction(L, sm_free);
  lua_setfield(L, -2, "free");
  lua_setfield(L, globals, "sm_set");
  open_budget(L);
  lua_setfield(L, globals, "budget");
  open_maps(L);
  lua_setfield(L, globals, "map");
  lua_pushcfunction(L, now_us);
  lua_setfield(L, globals, "now_us");
  lua_getfield(L, globals, "string");
  lua_getfield(L, -1, "format");
  lua_pushcclosure(L, trace, 1);
  lua_setfield(L, globals, "trace");
  lua_createtable(L, 0, 0);
  lua_pushcclosure(L, import, 1);
  lua_setfield(L, globals, "import");
  for (const Verdict* verdict : kVerdicts) {
    if (verdict == &kInserted) continue;
    lua_pushlightuserdata(L, const_cast<Verdict*>(verdict));
    lua_setfield(L, globals, verdict->name);
  }
  lua_pushlightuserdata(L, const_cast<Verdict*>(&kIdle));
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, verdict_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_setmetatable(L, -2);
  lua_settop(L, globals - 1);
  s.trace.reserve(kTraceLines);
}

}  // namespace heddle::policy
