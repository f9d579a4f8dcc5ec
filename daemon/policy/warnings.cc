// What the linter says of a policy that loads: it works, and could cost less. What its text asks.
#include <algorithm>
#include <cctype>

#include "daemon/base/nearest.h"
#include "daemon/policy/lua_policy.h"
#include "daemon/policy/reference.h"
#include "daemon/policy/sandbox.h"

namespace heddle::policy {
namespace {

// A string may hold "--".
std::string without_comments(const std::string& text) {
  std::string code;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote == '\0' && text.compare(i, 2, "--") == 0) {
      i = text.find(text.compare(i, 4, "--[[") == 0 ? "]]" : "\n", i);
      if (i == text.npos) break;
    } else if (quote != '\0' && text[i] == '\\') {
      ++i;  // what stands behind it ends no string
      continue;
    } else if (text[i] == quote || text[i] == '\n') {
      quote = '\0';
    } else if (quote == '\0' && (text[i] == '"' || text[i] == '\'')) {
      quote = text[i];
    }
    code += text[i];
  }
  return code;
}

bool holds_word(const std::string& code, std::string_view word, bool whole) {
  const auto in_word = [&](size_t i) {
    return i < code.size() && (std::isalnum(static_cast<unsigned char>(code[i])) || code[i] == '_');
  };
  for (size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
    if (!in_word(at - 1) && !(whole && in_word(at + word.size()))) return true;
  }
  return false;
}

}  // namespace

bool LuaPolicy::asks_of_promises() const {
  return std::any_of(session_.sources.begin(), session_.sources.end(), [](const auto& text) {
    const std::string code = without_comments(text);
    return holds_word(code, "budget.", false) || holds_word(code, "slowdown_max", true);
  });
}

bool LuaPolicy::asks_of(std::string_view field) const {
  return std::any_of(session_.sources.begin(), session_.sources.end(), [&](const auto& text) {
    return holds_word(without_comments(text), field, true);
  });
}

int LuaPolicy::find_warnings(lua_State* L) {
  // Called when something comes or goes, or at an end: whatever they cost is rare.
  constexpr std::string_view kRare[] = {
      "init", "exit", "client_init", "client_exit", "client_update", "kernel_init", "dump"};
  const auto advice = [](const std::string& what) -> std::string {
    if (what == "loop") return "loops without a bound that is seen; write for i = 1, n";
    if (what == "string") return "joins strings at each call; keep the text in a local above";
    return "makes a " + what + " at each call; make it once, in a local above the policy";
  };
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  for (size_t hook = 0; hook < kHooks; ++hook) {
    const int ref = self.declaration_.hook_refs[hook];
    const std::string_view name = kHookNames[hook];
    if (ref == LUA_NOREF || std::count(std::begin(kRare), std::end(kRare), name) != 0) continue;
    lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
    std::vector<Sandbox::Cost> found;
    Sandbox::find_costs(L, found);
    lua_pop(L, 1);
    for (const auto& [line, what] : found) {
      self.warnings_.push_back(self.chunk_ + ':' + std::to_string(line) + ": " + std::string(name) +
                               ' ' + advice(what));
    }
  }
  return 0;
}

// `p` has what the policy declares; of the built-in tables the reference knows all.
int LuaPolicy::find_mistakes(lua_State* L) {
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  std::vector<FieldOfKind> edges = object_edges();
  for (const Param& param : self.declaration_.params) edges.push_back({"p", param.name, ""});
  for (size_t hook = 0; hook < kHooks; ++hook) {
    const int ref = self.declaration_.hook_refs[hook];
    if (ref == LUA_NOREF) continue;
    lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
    std::vector<UnknownField> found;
    find_unknown_fields(L, hook_parameters(hook), edges, found);
    lua_pop(L, 1);
    for (const auto& [line, kind, field, chunk] : found) {
      std::vector<std::string_view> known;
      for (const FieldOfKind& edge : edges) {
        if (edge.kind == kind) known.push_back(edge.field);
      }
      const std::string mistake = chunk + ':' + std::to_string(line) + ": " + kind +
                                  " has no field '" + field + '\'' + did_you_mean(field, known);
      if (std::count(self.mistakes_.begin(), self.mistakes_.end(), mistake) == 0) {
        self.mistakes_.push_back(mistake);  // two hooks may call one function
      }
    }
  }
  return 0;
}

std::vector<std::string> LuaPolicy::mistakes() {
  mistakes_.clear();
  if (sandbox_.run(find_mistakes, this) != Sandbox::Stop::kNone) {
    mistakes_.push_back(chunk_ + ": the linter gave up: " + sandbox_.error());
  }
  return mistakes_;
}

std::vector<std::string> LuaPolicy::warnings() {
  warnings_.clear();
  if (sandbox_.run(find_warnings, this) != Sandbox::Stop::kNone) {
    warnings_.push_back(chunk_ + ": the linter gave up: " + sandbox_.error());
  }
  return warnings_;
}

void find_unknown_fields(lua_State* L, std::span<const std::string> parameters,
                         std::span<const FieldOfKind> edges, std::vector<UnknownField>& found) {
  Sandbox::push_linter(L, 4);
  lua_pushvalue(L, -2);
  lua_createtable(L, 0, 4);
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    lua_pushstring(L, parameters[slot].c_str());
    lua_rawseti(L, -2, static_cast<int>(slot));
  }
  lua_createtable(L, 0, 16);
  for (const FieldOfKind& edge : edges) {
    lua_getfield(L, -1, edge.kind.c_str());
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_createtable(L, 0, 16);
      lua_pushvalue(L, -1);
      lua_setfield(L, -3, edge.kind.c_str());
    }
    lua_pushstring(L, edge.to.c_str());
    lua_setfield(L, -2, edge.field.c_str());
    lua_pop(L, 1);
  }
  lua_call(L, 3, 1);
  const int list = lua_gettop(L);
  for (int i = 1; i + 3 <= static_cast<int>(lua_objlen(L, list)); i += 4) {
    for (int part = 0; part < 4; ++part) lua_rawgeti(L, list, i + part);
    found.push_back({static_cast<int>(lua_tointeger(L, -4)), lua_tostring(L, -3),
                     lua_tostring(L, -2), lua_tostring(L, -1) + 1});  // without the mark of a file
    lua_pop(L, 4);
  }
  lua_pop(L, 1);
}

}  // namespace heddle::policy
