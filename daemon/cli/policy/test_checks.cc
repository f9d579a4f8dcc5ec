// What policy tests hold against what happened: t.eq and others, expect, shares.
#include <algorithm>
#include <cmath>

#include "daemon/cli/policy/test_api.h"

namespace heddle::cli {

// The text of a value, for messages.
const char* show(lua_State* L, int index, std::string& out) {
  switch (lua_type(L, index)) {
    case LUA_TNUMBER:
    case LUA_TSTRING:
      lua_pushvalue(L, index);
      out = lua_tostring(L, -1);
      lua_pop(L, 1);
      break;
    case LUA_TBOOLEAN:
      out = lua_toboolean(L, index) != 0 ? "true" : "false";
      break;
    default:
      out = luaL_typename(L, index);
  }
  return out.c_str();
}

int t_eq(lua_State* L) {
  lua_settop(L, 3);
  if (lua_rawequal(L, 1, 2) != 0) return 0;
  TestFile& file = TestFile::of(L);
  return luaL_error(L, "%s is %s, expected %s", luaL_optstring(L, 3, "value"),
                    show(L, 1, file.text), show(L, 2, file.other));
}

int t_near(lua_State* L) {
  const double actual = luaL_checknumber(L, 1), expected = luaL_checknumber(L, 2);
  if (std::abs(actual - expected) <= luaL_checknumber(L, 3)) return 0;
  return luaL_error(L, "%s is %f, expected about %f", luaL_optstring(L, 4, "value"), actual,
                    expected);
}

int t_below(lua_State* L) {
  const double actual = luaL_checknumber(L, 1), bound = luaL_checknumber(L, 2);
  if (actual < bound) return 0;
  return luaL_error(L, "%s is %f, expected below %f", luaL_optstring(L, 3, "value"), actual, bound);
}

int t_ok(lua_State* L) {
  if (lua_toboolean(L, 1) != 0) return 0;
  return luaL_error(L, "%s", luaL_optstring(L, 2, "expected to hold"));
}

namespace {

// A name, or a list of names, as "a,b" in alphabetical order.
void read_names(lua_State* L, int index, std::string& out) {
  out.clear();
  if (lua_type(L, index) == LUA_TSTRING) {
    out = lua_tostring(L, index);
    return;
  }
  std::vector<std::string_view> names;
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    if (lua_type(L, -1) == LUA_TSTRING) names.emplace_back(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  std::sort(names.begin(), names.end());
  for (const std::string_view name : names) out.append(out.empty() ? "" : ",").append(name);
}

void names_of(const sim::VirtualMachine& machine, bool running, std::string& out) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < machine.clients(); ++i) {
    if (running ? machine.running(i) : machine.waiting(i)) names.emplace_back(machine.name(i));
  }
  std::sort(names.begin(), names.end());
  out.clear();
  for (const std::string_view name : names) out.append(out.empty() ? "" : ",").append(name);
}

// Of the launches of the clients in the table at 2: how many began, and at how many of these
// another of the clients had a launch that went on waiting. Elsewhere a policy had nothing to
// choose between.
struct Starts {
  int all = 0, beside_waiting = 0;
};
Starts starts_of(lua_State* L, TestFile& file, const sim::VirtualMachine& machine) {
  std::vector<const sim::LaunchRecord*>& order = file.order;
  order.clear();
  for (const sim::LaunchRecord& r : machine.launches()) {
    lua_getfield(L, 2, machine.name(r.client).c_str());
    if (!lua_isnil(L, -1) && r.started != 0) order.push_back(&r);
    lua_pop(L, 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->started < b->started; });
  // What waits now begins soon, among as many as may wait at once.
  constexpr size_t kLookAhead = 64;
  Starts starts;
  for (size_t i = 0; i < order.size(); ++i) {
    const sim::LaunchRecord& now = *order[i];
    const size_t end = std::min(order.size(), i + kLookAhead);
    // It was chosen when it came, or when the one before it ended.
    const sim::TimeNs ended = i == 0 ? 0 : order[i - 1]->ended;
    const sim::TimeNs chosen = ended <= now.started ? std::max(now.called, ended) : now.called;
    const auto waits = [&](const sim::LaunchRecord* other) {
      return other->client != now.client && other->called < chosen && other->started > now.started;
    };
    const auto from = order.begin() + static_cast<ptrdiff_t>(i);
    ++starts.all;
    starts.beside_waiting +=
        std::any_of(from, order.begin() + static_cast<ptrdiff_t>(end), waits) ? 1 : 0;
  }
  return starts;
}

// " (n began at 912 us, by open)" of a launch that was expected to wait and did not; else "".
void tell_began(const sim::VirtualMachine& machine, std::string_view expected, std::string& out) {
  out.clear();
  const sim::LaunchRecord* last = nullptr;
  for (const sim::LaunchRecord& r : machine.launches()) {
    if (machine.name(r.client) != expected || r.started == 0) continue;
    if (last == nullptr || r.started > last->started) last = &r;
  }
  if (last == nullptr) return;
  char text[96];
  snprintf(text, sizeof text, " began at %.0f us, by %s)", static_cast<double>(last->started) / 1e3,
           decider_name(*last));
  out.append(" (").append(expected).append(text);
}

}  // namespace

int at_expect(lua_State* L) {
  TestFile& file = TestFile::of(L);
  const Simulation& s = check_simulation(L);
  const auto keys = {"running", "waiting", "verdict", "reason"};
  check_keys(L, 2, keys);
  for (const std::string_view key : keys) {  // always in this order: it says the same again
    lua_getfield(L, 2, key.data());
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    if (lua_type(L, -1) != LUA_TSTRING && !lua_istable(L, -1)) {
      return luaL_error(L, "%s: a name or a list of names", key.data());
    }
    read_names(L, lua_gettop(L), file.other);
    if (key == "running" || key == "waiting") {
      names_of(*s.machine, key == "running", file.text);
    } else {
      file.text = s.policy == nullptr ? ""
                  : key == "verdict"  ? s.policy->last_verdict()
                                      : std::string_view(s.policy->last_reason());
    }
    if (file.text != file.other) {
      tell_began(*s.machine, key == "waiting" ? file.other : "", file.why);
      return luaL_error(L, "at %f us: %s is '%s', expected '%s'%s",
                        static_cast<double>(s.machine->now()) / 1e3, key.data(), file.text.c_str(),
                        file.other.c_str(), file.why.c_str());
    }
    lua_pop(L, 1);
  }
  return 0;
}

// s:shares({ a = 3, b = 1 }, within): so they shared the GPU's time, each within a tenth of its
// part unless `within` says another part.
int s_shares(lua_State* L) {
  Simulation& s = check_simulation(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  const double within = luaL_optnumber(L, 3, 0.1);
  const sim::VirtualMachine& machine = *s.machine;
  double gpu_us = 0, weights = 0;
  for (lua_pushnil(L); lua_next(L, 2) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "shares: names and numbers");
    gpu_us += machine.stats(client_of(L, machine, lua_tostring(L, -2))).gpu_us;
    weights += luaL_checknumber(L, -1);
  }
  for (size_t i = 0; i < machine.clients(); ++i) {
    lua_getfield(L, 2, machine.name(i).c_str());
    const double wanted = lua_tonumber(L, -1) / weights, part = machine.stats(i).gpu_us / gpu_us;
    const bool asked = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (!asked || std::abs(part - wanted) <= within * wanted) continue;
    const Starts starts = starts_of(L, TestFile::of(L), machine);
    return luaL_error(
        L,
        "%s has %f of their GPU time, expected about %f; at %d of %d starts another "
        "of them waited: shares need waiting, see share/doc/heddle/policies/REFERENCE.md",
        machine.name(i).c_str(), part, wanted, starts.beside_waiting, starts.all);
  }
  return 0;
}

}  // namespace heddle::cli
