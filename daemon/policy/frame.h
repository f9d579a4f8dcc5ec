// Where things lie on a policy's Lua stack, and what hooks return at most.
#pragma once

#include "daemon/policy/declaration.h"

namespace heddle::policy {

// Layout of the Lua stack between calls: the error handler, `p`, one function per hook.
inline constexpr int kParamsIndex = 2;
inline constexpr int kFirstHookIndex = 3;
inline constexpr int kTop = kFirstHookIndex + static_cast<int>(kHooks) - 1;
inline constexpr int kCallSlots = 8;         // a function and its arguments, or what it returns
inline constexpr int kRunResults = 5;        // RUN, k, sm, stream_priority, reason
inline constexpr int kAllowanceResults = 2;  // GATE, reason
inline constexpr int kKernelResults = 3;     // sm, stream_priority, timed

}  // namespace heddle::policy
