// What hooks returned, read from the Lua stack.
#include <algorithm>
#include <cmath>

#include "daemon/policy/lua_policy.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

constexpr double kSmMax = 1e4;

}  // namespace

bool LuaPolicy::bad_verdict(std::string_view wanted) {
  lua_State* L = sandbox_.lua();
  const Verdict* verdict = to_verdict(L, kTop + 1);
  std::string message = place();
  message += kHookNames[static_cast<size_t>(running_)];
  message += " returned ";
  message += verdict != nullptr ? verdict->name : luaL_typename(L, kTop + 1);
  message += "; return ";
  message += wanted;
  record("verdict", std::move(message), "");
  return false;
}

void LuaPolicy::read_reason(int index) {
  lua_State* L = sandbox_.lua();
  if (lua_type(L, index) != LUA_TSTRING) {
    reason_.clear();
    return;
  }
  size_t bytes = 0;
  const char* text = lua_tolstring(L, index, &bytes);
  reason_.assign(text, std::min(bytes, kLineBytes));
}

// Returns the reason's number for whoever asks later, 0 if none was given.
uint16_t LuaPolicy::count_verdict() {
  size_t i = 0;
  while (i < said_.size() && (said_[i].verdict != verdict_ || said_[i].reason != reason_)) ++i;
  if (i == said_.size() && i < kReasonsMax) said_.push_back({verdict_, reason_, 0});
  if (i >= kReasonsMax) {
    if (said_.size() == kReasonsMax) said_.push_back({"", "other answers", 0});
    i = kReasonsMax;
  }
  ++said_[i].count;
  return said_[i].reason.empty() ? uint16_t{0} : static_cast<uint16_t>(i + 1);
}

std::string_view LuaPolicy::reason(uint16_t number) const {
  return number > 0 && number <= said_.size() ? std::string_view(said_[number - 1].reason) : "";
}

bool LuaPolicy::read_allowance(core::AllowanceVerdict& v) {
  lua_State* L = sandbox_.lua();
  const int first = kTop + 1;
  if (lua_isnil(L, first)) return true;
  const Verdict* verdict = to_verdict(L, first);
  v.result = core::HookResult::kDecided;
  if (verdict == &kLease) {
    v.allowed = core::Allowance::kLeased;
  } else if (verdict == &kGate || verdict == &kRefuse) {
    v.allowed = core::Allowance::kGated;
    v.refuse = verdict == &kRefuse;
  } else {
    return bad_verdict("LEASE, GATE or REFUSE, then a reason");
  }
  read_reason(first + 1);
  return true;
}

// RUN or OPEN, k [, sm [, stream_priority]], with a reason after any of them.
bool LuaPolicy::read_run(core::DispatchVerdict& v) {
  lua_State* L = sandbox_.lua();
  const LaunchObject* launch = to_launch(L, session_, kTop + 2);
  if (launch == nullptr || launch->id == 0) return bad_verdict("RUN, k with a k of this hook call");
  double numbers[] = {0, core::kBuiltinPriority};
  int index = kTop + 3;
  for (double& number : numbers) {
    const int type = lua_type(L, index);
    if (type == LUA_TSTRING) break;
    if (type == LUA_TNUMBER) {
      number = lua_tonumber(L, index);
    } else if (type != LUA_TNIL) {
      return bad_verdict("RUN, k, sm, stream_priority: numbers or nil");
    }
    ++index;
  }
  read_reason(index);
  if (!(numbers[0] >= 0 && numbers[0] <= kSmMax)) return bad_verdict("0 to 10000 sm");
  const bool chosen = numbers[1] != core::kBuiltinPriority;
  if (chosen && !core::is_launch_priority(numbers[1])) {
    return bad_verdict("a stream_priority from -5 to 0");
  }
  v.run = launch->id;
  v.sm = core::SmCount(static_cast<uint32_t>(std::ceil(numbers[0])));
  v.launch_priority = static_cast<int>(numbers[1]);
  return true;
}

// IDLE [, again_us], with a reason after either.
bool LuaPolicy::read_idle(core::DispatchVerdict& v) {
  lua_State* L = sandbox_.lua();
  const bool again = lua_type(L, kTop + 2) == LUA_TNUMBER;
  read_reason(kTop + (again ? 3 : 2));
  if (!again) return true;
  v.again_us = lua_tonumber(L, kTop + 2);
  return v.again_us > 0 || bad_verdict("IDLE, again_us with again_us > 0");
}

// nil, sm or sm, stream_priority or sm, stream_priority, timed; each may be nil.
bool LuaPolicy::read_kernel(core::KernelVerdict& v) {
  lua_State* L = sandbox_.lua();
  double numbers[] = {0, core::kBuiltinPriority};
  int index = kTop + 1;
  for (double& number : numbers) {
    if (!lua_isnil(L, index)) {
      if (lua_type(L, index) != LUA_TNUMBER) return bad_verdict("sm, stream_priority or nil");
      number = lua_tonumber(L, index);
      v.result = core::HookResult::kDecided;
    }
    ++index;
  }
  if (!lua_isnil(L, index) && !lua_isboolean(L, index)) return bad_verdict("timed as a boolean");
  v.timed = lua_toboolean(L, index) != 0;
  if (v.timed) v.result = core::HookResult::kDecided;
  if (!(numbers[0] >= 0 && numbers[0] <= kSmMax)) return bad_verdict("0 to 10000 sm");
  if (numbers[1] != core::kBuiltinPriority && !core::is_launch_priority(numbers[1])) {
    return bad_verdict("a stream_priority from -5 to 0");
  }
  v.sm = core::SmCount(static_cast<uint32_t>(std::ceil(numbers[0])));
  v.launch_priority = static_cast<int>(numbers[1]);
  return true;
}

}  // namespace heddle::policy
