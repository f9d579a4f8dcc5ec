// What the linter says of a policy that loads: it works, and could cost less.
#include <algorithm>

#include "daemon/policy/lua_policy.h"

namespace heddle::policy {

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

std::vector<std::string> LuaPolicy::warnings() {
  warnings_.clear();
  if (sandbox_.run(find_warnings, this) != Sandbox::Stop::kNone) {
    warnings_.push_back(chunk_ + ": the linter gave up: " + sandbox_.error());
  }
  return warnings_;
}

}  // namespace heddle::policy
