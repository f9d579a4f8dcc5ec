#include "daemon/policy/declaration.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "daemon/policy/limits.h"
#include "daemon/policy/nearest.h"
#include "daemon/policy/sandbox.h"

namespace heddle::policy {
namespace {

constexpr double kApi = 1;
constexpr std::string_view kKeys[] = {"name", "api", "version", "params", "hooks"};
constexpr std::string_view kParamKeys[] = {"type", "min", "max", "default", "doc"};
constexpr std::string_view kTypes[] = {"int", "number", "bool", "string"};
constexpr std::string_view kLaterHooks[] = {"exit",    "client_update", "kernel_init",
                                            "running", "tick",          "dump"};

std::string number_text(double v) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

bool parse_number(std::string_view text, double& v) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(v);
}

// True if `name` is among `known`; else the sandbox's message says what is nearest.
bool check_name(lua_State* L, std::string_view what, const char* name,
                std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return true;
  std::string& message = Sandbox::of(L).message;
  message.assign(what).append(" '").append(name).append("'").append(did_you_mean(name, known));
  return false;
}

const char* key_at(lua_State* L, int index, const char* where) {
  if (lua_type(L, index) != LUA_TSTRING) luaL_error(L, "%s: keys are names", where);
  return lua_tostring(L, index);
}

void read_text(lua_State* L, const char* key, std::string& out) {
  lua_getfield(L, 1, key);
  if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "policy: %s must be a string", key);
  size_t bytes = 0;
  const char* text = lua_tolstring(L, -1, &bytes);
  if (bytes == 0 || bytes > 64) luaL_error(L, "policy: %s has 1 to 64 characters", key);
  out.assign(text, bytes);
  lua_pop(L, 1);
}

// A bound of the parameter whose table is on top of the stack.
double read_bound(lua_State* L, const Param& param, const char* key, double otherwise) {
  lua_getfield(L, -1, key);
  const bool number = lua_type(L, -1) == LUA_TNUMBER;
  if (!number && !lua_isnil(L, -1)) {
    luaL_error(L, "params.%s: %s must be a number", param.name.c_str(), key);
  }
  const double v = number ? lua_tonumber(L, -1) : otherwise;
  lua_pop(L, 1);
  return v;
}

bool read_default(lua_State* L, Param& param) {
  std::string text;
  if (lua_type(L, -1) == LUA_TBOOLEAN) {
    text = lua_toboolean(L, -1) != 0 ? "true" : "false";
  } else if (lua_type(L, -1) == LUA_TNUMBER) {
    text = number_text(lua_tonumber(L, -1));
  } else if (lua_type(L, -1) == LUA_TSTRING) {
    text = lua_tostring(L, -1);
  } else {
    Sandbox::of(L).message = "params." + param.name + ": a default is missing";
    return false;
  }
  const Result<std::string> value = parse_param(param, text);
  if (!value) {
    Sandbox::of(L).message = "params." + value.error().message;
    return false;
  }
  param.default_value = param.value = *value;
  return true;
}

// The parameter's table is on top of the stack.
void read_param(lua_State* L, Param& param) {
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    if (!check_name(L, "params: unknown key", key_at(L, -2, "params"), kParamKeys)) raise(L);
  }
  lua_getfield(L, -1, "type");
  const char* type = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (!check_name(L, "params: unknown type", type, kTypes)) raise(L);
  param.type = static_cast<Param::Type>(std::find(std::begin(kTypes), std::end(kTypes), type) -
                                        std::begin(kTypes));
  lua_pop(L, 1);
  constexpr double kHuge = std::numeric_limits<double>::infinity();
  param.min = read_bound(L, param, "min", -kHuge);
  param.max = read_bound(L, param, "max", kHuge);
  lua_getfield(L, -1, "doc");
  if (lua_type(L, -1) == LUA_TSTRING) param.doc = lua_tostring(L, -1);
  lua_pop(L, 1);
  lua_getfield(L, -1, "default");
  if (!read_default(L, param)) raise(L);
  lua_pop(L, 1);
}

// `p` reads this table by way of __index alone; only a name that it lacks comes here.
int on_unknown_param(lua_State* L) {
  const char* key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
  {
    const auto& d = *static_cast<const Declaration*>(lua_touserdata(L, lua_upvalueindex(1)));
    std::vector<std::string_view> known;
    for (const Param& param : d.params) known.emplace_back(param.name);
    check_name(L, "unknown parameter", key, known);
  }
  return raise(L);
}

void read_params(lua_State* L, Declaration& d) {
  lua_getfield(L, 1, "params");
  if (!lua_isnil(L, -1) && !lua_istable(L, -1)) luaL_error(L, "policy: params must be a table");
  if (lua_istable(L, -1)) {
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
      if (d.params.size() >= kParamsMax) luaL_error(L, "policy: too many parameters");
      const char* name = key_at(L, -2, "params");
      if (!lua_istable(L, -1)) luaL_error(L, "params.%s must be a table", name);
      d.params.emplace_back().name = name;
      read_param(L, d.params.back());
    }
  }
  lua_pop(L, 1);
  lua_createtable(L, 0, static_cast<int>(d.params.size()));
  for (const Param& param : d.params) {
    push_param(L, param, param.value);
    lua_setfield(L, -2, param.name.c_str());
  }
  lua_createtable(L, 0, 1);
  lua_pushlightuserdata(L, &d);
  lua_pushcclosure(L, on_unknown_param, 1);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  d.values_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

void read_hooks(lua_State* L, Declaration& d) {
  lua_getfield(L, 1, "hooks");
  if (!lua_istable(L, -1)) luaL_error(L, "policy: hooks must be a table of functions");
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    const char* name = key_at(L, -2, "hooks");
    for (const std::string_view later : kLaterHooks) {
      if (later == name)
        luaL_error(L, "hook '%s': this build does not call it; leave it out", name);
    }
    if (!check_name(L, "unknown hook", name, kHookNames)) raise(L);
    if (!lua_isfunction(L, -1)) luaL_error(L, "hook '%s' must be a function", name);
    const auto hook = static_cast<size_t>(
        std::find(std::begin(kHookNames), std::end(kHookNames), name) - std::begin(kHookNames));
    if (hook == static_cast<size_t>(Hook::kEnqueue) && !Sandbox::returns_value(L)) {
      luaL_error(L, "enqueue never returns anything; return queue.insert(...) or RUN");
    }
    lua_pushvalue(L, -1);
    d.hook_refs[hook] = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_pop(L, 1);
}

int declare(lua_State* L) {
  auto& d = *static_cast<Declaration*>(lua_touserdata(L, lua_upvalueindex(1)));
  luaL_checktype(L, 1, LUA_TTABLE);
  if (d.declared_ref != LUA_NOREF) return luaL_error(L, "policy{} is declared twice");
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    if (!check_name(L, "policy: unknown key", key_at(L, -2, "policy"), kKeys)) return raise(L);
  }
  read_text(L, "name", d.name);
  read_text(L, "version", d.version);
  lua_getfield(L, 1, "api");
  if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != kApi) {
    return luaL_error(L, "policy: api must be 1, the interface of this build");
  }
  lua_pop(L, 1);
  read_params(L, d);
  read_hooks(L, d);
  lua_settop(L, 1);
  lua_pushvalue(L, 1);
  d.declared_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  return 1;
}

}  // namespace

void open_declaration(lua_State* L, Declaration& d) {
  d.hook_refs.fill(LUA_NOREF);
  Sandbox::push_globals(L);
  lua_pushlightuserdata(L, &d);
  lua_pushcclosure(L, declare, 1);
  lua_setfield(L, -2, "policy");
  lua_pop(L, 1);
}

Result<std::string> parse_param(const Param& param, std::string_view text) {
  const std::string got = param.name + ": '" + std::string(text) + "'";
  if (param.type == Param::Type::kString) {
    if (text.size() > 256) return fail(param.name + ": over 256 characters");
    return std::string(text);
  }
  if (param.type == Param::Type::kBool) {
    if (text != "true" && text != "false") return fail(got + " is neither true nor false");
    return std::string(text);
  }
  double v = 0;
  if (!parse_number(text, v)) return fail(got + " is not a number");
  if (param.type == Param::Type::kInt && v != std::floor(v)) return fail(got + " is not whole");
  if (v < param.min || v > param.max) {
    return fail(got + " is outside " + number_text(param.min) + " to " + number_text(param.max));
  }
  return number_text(v);
}

void push_param(lua_State* L, const Param& param, const std::string& text) {
  double v = 0;
  if (param.type == Param::Type::kString) {
    lua_pushlstring(L, text.data(), text.size());
  } else if (param.type == Param::Type::kBool) {
    lua_pushboolean(L, text == "true" ? 1 : 0);
  } else {
    parse_number(text, v);
    lua_pushnumber(L, v);
  }
}

}  // namespace heddle::policy
