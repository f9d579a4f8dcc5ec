// Tells the linter (linter.h) of objects, and what it finds.
#include "daemon/policy/reference.h"

#include "daemon/policy/sandbox.h"

namespace heddle::policy {

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
