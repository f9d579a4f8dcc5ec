#include "daemon/policy/declaration.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <limits>

#include "daemon/base/nearest.h"
#include "daemon/policy/limits.h"
#include "daemon/policy/sandbox.h"

namespace heddle::policy {
namespace {

constexpr double kApi = 1;
constexpr std::string_view kKeys[] = {"name", "api", "version", "per_launch", "params", "hooks"};
constexpr std::string_view kParamKeys[] = {"type", "min", "max", "default", "doc"};
constexpr std::string_view kTypes[] = {"int", "number", "bool", "string"};

std::string number_text(double v) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

bool parse_number(std::string_view text, double& v) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(v);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where `word`, as a whole one, is followed by one of `next` in a line's code; false: nowhere.
bool has_word(std::string_view line, std::string_view word, std::string_view next) {
  line = line.substr(0, line.find("--"));
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    const size_t end = line.find_first_not_of(' ', at + word.size());
    const bool whole = at == 0 || !is_word(line[at - 1]);
    if (whole && end != line.npos && next.find(line[end]) != next.npos) return true;
  }
  return false;
}

// The line on which the file says `word = ...`, or else policy { ... }; 0 if it says neither.
int line_of(std::string_view source, std::string_view word) {
  int number = 1, declared = 0;
  for (size_t at = 0; at < source.size(); ++number) {
    const size_t end = std::min(source.find('\n', at), source.size());
    const std::string_view line = source.substr(at, end - at);
    if (!word.empty() && has_word(line, word, "=")) return number;
    if (declared == 0 && has_word(line, "policy", "{(")) declared = number;
    at = end + 1;
  }
  return declared;
}

// Raises with the place of `word`. The stack does not have it: `return policy { ... }` is a tail
// call, which leaves no frame of the file.
int raise_at(lua_State* L, const char* word, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const char* text = lua_pushvfstring(L, format, args);
  va_end(args);
  const auto& d = *static_cast<const Declaration*>(lua_touserdata(L, lua_upvalueindex(1)));
  lua_pushfstring(L, "%s:%d: %s", d.chunk.c_str(), line_of(d.source, word), text);
  return lua_error(L);
}

// Likewise, what the sandbox's message says.
int raise_message_at(lua_State* L, const char* word) {
  return raise_at(L, word, "%s", Sandbox::of(L).message.c_str());
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
  if (lua_type(L, index) != LUA_TSTRING) raise_at(L, where, "%s: keys are names", where);
  return lua_tostring(L, index);
}

void read_text(lua_State* L, const char* key, std::string& out) {
  lua_getfield(L, 1, key);
  if (lua_type(L, -1) != LUA_TSTRING) raise_at(L, key, "policy: %s must be a string", key);
  size_t bytes = 0;
  const char* text = lua_tolstring(L, -1, &bytes);
  if (bytes == 0 || bytes > kNameBytes) raise_at(L, key, "policy: %s has 1 to 64 characters", key);
  out.assign(text, bytes);
  lua_pop(L, 1);
}

// A bound of the parameter whose table is on top of the stack.
double read_bound(lua_State* L, const Param& param, const char* key, double otherwise) {
  lua_getfield(L, -1, key);
  const bool number = lua_type(L, -1) == LUA_TNUMBER;
  if (!number && !lua_isnil(L, -1)) {
    raise_at(L, param.name.c_str(), "params.%s: %s must be a number", param.name.c_str(), key);
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
    const char* key = key_at(L, -2, "params");
    if (!check_name(L, "params: unknown key", key, kParamKeys)) raise_message_at(L, key);
  }
  lua_getfield(L, -1, "type");
  const char* type = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (!check_name(L, "params: unknown type", type, kTypes)) {
    raise_message_at(L, param.name.c_str());
  }
  param.type = static_cast<Param::Type>(std::find(std::begin(kTypes), std::end(kTypes), type) -
                                        std::begin(kTypes));
  lua_pop(L, 1);
  constexpr double kHuge = std::numeric_limits<double>::infinity();
  param.min = read_bound(L, param, "min", -kHuge);
  param.max = read_bound(L, param, "max", kHuge);
  lua_getfield(L, -1, "doc");
  if (lua_type(L, -1) == LUA_TSTRING) {
    param.doc = std::string_view(lua_tostring(L, -1)).substr(0, kLineBytes);
  }
  lua_pop(L, 1);
  lua_getfield(L, -1, "default");
  if (!read_default(L, param)) raise_message_at(L, param.name.c_str());
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
  if (!lua_isnil(L, -1) && !lua_istable(L, -1))
    raise_at(L, "params", "policy: params must be a table");
  if (lua_istable(L, -1)) {
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
      if (d.params.size() >= kParamsMax) raise_at(L, "params", "policy: too many parameters");
      const char* name = key_at(L, -2, "params");
      if (std::string_view(name).size() > kNameBytes) {
        raise_at(L, "params", "params: a name has 1 to %d characters",
                 static_cast<int>(kNameBytes));
      }
      if (!lua_istable(L, -1)) raise_at(L, name, "params.%s must be a table", name);
      d.params.emplace_back().name = name;
      read_param(L, d.params.back());
    }
  }
  lua_pop(L, 1);
  // Lua's order of keys is another one in each run.
  std::sort(d.params.begin(), d.params.end(),
            [](const Param& a, const Param& b) { return a.name < b.name; });
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
  if (!lua_istable(L, -1)) raise_at(L, "hooks", "policy: hooks must be a table of functions");
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    const char* name = key_at(L, -2, "hooks");
    if (!check_name(L, "unknown hook", name, kHookNames)) raise_message_at(L, name);
    if (!lua_isfunction(L, -1)) raise_at(L, name, "hook '%s' must be a function", name);
    const auto hook = static_cast<size_t>(
        std::find(std::begin(kHookNames), std::end(kHookNames), name) - std::begin(kHookNames));
    if (hook == static_cast<size_t>(Hook::kEnqueue) && !Sandbox::returns_value(L)) {
      raise_at(L, name, "enqueue never returns anything; return queue.insert(...) or RUN");
    }
    lua_pushvalue(L, -1);
    d.hook_refs[hook] = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_pop(L, 1);
}

int declare(lua_State* L) {
  auto& d = *static_cast<Declaration*>(lua_touserdata(L, lua_upvalueindex(1)));
  if (!lua_istable(L, 1)) return raise_at(L, "", "policy takes a table: policy { ... }");
  if (d.declared_ref != LUA_NOREF) return raise_at(L, "", "policy{} is declared twice");
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    const char* key = key_at(L, -2, "policy");
    if (!check_name(L, "policy: unknown key", key, kKeys)) return raise_message_at(L, key);
  }
  read_text(L, "name", d.name);
  read_text(L, "version", d.version);
  lua_getfield(L, 1, "api");
  if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != kApi) {
    return raise_at(L, "api", "policy: api must be 1, the interface of this build");
  }
  lua_pop(L, 1);
  lua_getfield(L, 1, "per_launch");
  if (!lua_isnil(L, -1) && !lua_isboolean(L, -1)) {
    return raise_at(L, "per_launch", "policy: per_launch must be true or false");
  }
  d.per_launch = lua_toboolean(L, -1) != 0;
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
