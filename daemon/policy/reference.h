// The reference of what a policy may use: policies/REFERENCE.md for people, policies/lib/api.lua
// for language servers. What exists is taken from the registration tables; a test holds both
// against it, and against the files.
#pragma once

#include <span>
#include <string>
#include <vector>

struct lua_State;

namespace heddle::policy {

// Fields that a hook reads and its objects do not have, found in its bytecode before it runs.

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

// "hooks.dispatch", "k.client", "queue.insert", "map:get", "RUN": all that is registered.
std::vector<std::string> registered_names();
// Of those, the ones that the reference describes; and what it describes besides.
std::vector<std::string> described_names();

// For the linter: the fields of all objects and which of them give objects, and the parameters of
// the hook of that place in kHookNames, "g" and "p".
std::vector<FieldOfKind> object_edges();
std::vector<std::string> hook_parameters(size_t hook);

std::string reference_markdown();
std::string reference_lua();

}  // namespace heddle::policy
