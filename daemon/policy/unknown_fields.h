// Fields that a hook reads and its objects do not have, found in its bytecode before it runs.
#pragma once

#include <span>
#include <string>
#include <vector>

struct lua_State;

namespace heddle::policy {

// A field of a kind of object, and the kind of what it holds, "" if that is none. The field "=call"
// is what a call gives; a kind with the field "*" may have others.
struct FieldOfKind {
  std::string kind, field, to;
};
struct UnknownField {
  int line;
  std::string kind, field, chunk;
};
// Appends those of the Lua function on top of the stack, whose parameters are of these kinds, and
// of the functions that it calls.
void find_unknown_fields(lua_State* L, std::span<const std::string> parameters,
                         std::span<const FieldOfKind> fields, std::vector<UnknownField>& found);

}  // namespace heddle::policy
