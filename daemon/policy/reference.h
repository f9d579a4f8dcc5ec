// The reference of what a policy may use: policies/REFERENCE.md for people, policies/lib/api.lua
// for language servers. What exists is taken from the registration tables; a test holds both
// against it, and against the files.
#pragma once

#include <string>
#include <vector>

#include "daemon/policy/unknown_fields.h"

namespace heddle::policy {

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
