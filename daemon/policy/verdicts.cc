// What hooks returned, read from the Lua stack.
#include <algorithm>
#include <cmath>

#include "daemon/policy/frame.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::policy {
namespace {

constexpr double kSmMax = 1e4;
constexpr double kCreditUsMax = 1e6;

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

bool LuaPolicy::read_window(core::WindowVerdict& v) {
  lua_State* L = sandbox_.lua();
  const int first = kTop + 1;
  if (lua_isnil(L, first)) return true;
  const Verdict* verdict = to_verdict(L, first);
  v.result = core::HookResult::kDecided;
  if (verdict == &kLease) {
    v.window_us = core::kWindowLeased;
  } else if (verdict == &kGate || verdict == &kRefuse) {
    v.window_us = core::kWindowGated;
    v.refuse = verdict == &kRefuse;
  } else if (verdict == &kWindow && lua_type(L, first + 1) == LUA_TNUMBER) {
    const double us = lua_tonumber(L, first + 1);
    if (!(us >= 0 && us < core::kWindowLeased)) return bad_verdict("WINDOW, us with us >= 0");
    v.window_us = static_cast<uint32_t>(us);
    read_reason(first + 2);
    return true;
  } else {
    return bad_verdict("LEASE, GATE, WINDOW, us or REFUSE, reason");
  }
  read_reason(first + 1);
  return true;
}

// RUN, k [, sm [, stream_priority [, credit_us]]], with a reason after any of them.
bool LuaPolicy::read_run(core::DispatchVerdict& v) {
  lua_State* L = sandbox_.lua();
  const LaunchObject* launch = to_launch(L, session_, kTop + 2);
  if (launch == nullptr || launch->id == 0) return bad_verdict("RUN, k with a k of this hook call");
  double numbers[3] = {0, core::kBuiltinPriority, 0};
  int index = kTop + 3;
  for (double& number : numbers) {
    const int type = lua_type(L, index);
    if (type == LUA_TSTRING) break;
    if (type == LUA_TNUMBER) {
      number = lua_tonumber(L, index);
    } else if (type != LUA_TNIL) {
      return bad_verdict("RUN, k, sm, stream_priority, credit_us: numbers or nil");
    }
    ++index;
  }
  read_reason(index);
  if (!(numbers[0] >= 0 && numbers[0] <= kSmMax)) return bad_verdict("0 to 10000 sm");
  const bool chosen = numbers[1] != core::kBuiltinPriority;
  if (chosen && !core::is_launch_priority(numbers[1])) {
    return bad_verdict("a stream_priority from -5 to 0");
  }
  if (!(numbers[2] >= 0 && numbers[2] <= kCreditUsMax)) return bad_verdict("0 to 1e6 credit_us");
  v.run = launch->id;
  v.sm = static_cast<uint32_t>(std::ceil(numbers[0]));
  v.launch_priority = static_cast<int>(numbers[1]);
  v.credit_us = numbers[2];
  return true;
}

// The sizes of a graph's parts; false if they are not numbers of SMs, or none, or too many.
bool read_parts(lua_State* L, int index, core::KernelVerdict& v) {
  const size_t count = lua_objlen(L, index);
  if (count == 0 || count > v.inside.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    lua_rawgeti(L, index, static_cast<int>(i) + 1);
    const double sm = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
    lua_pop(L, 1);
    if (!(sm >= 0 && sm <= kSmMax)) return false;
    v.inside[i] = static_cast<uint32_t>(std::ceil(sm));
  }
  v.parts = static_cast<uint32_t>(count);
  return true;
}

// nil, sm or sm, stream_priority; each may be nil. sm may be a table: of a graph's parts.
bool LuaPolicy::read_kernel(core::KernelVerdict& v) {
  lua_State* L = sandbox_.lua();
  double numbers[kKernelResults] = {0, core::kBuiltinPriority};
  for (int i = 0; i < kKernelResults; ++i) {
    if (lua_isnil(L, kTop + 1 + i)) continue;
    if (i == 0 && lua_istable(L, kTop + 1)) {
      if (!read_parts(L, kTop + 1, v)) return bad_verdict("a table of 1 to 16 numbers of SMs");
      v.result = core::HookResult::kDecided;
      continue;
    }
    if (lua_type(L, kTop + 1 + i) != LUA_TNUMBER) return bad_verdict("sm, stream_priority or nil");
    numbers[i] = lua_tonumber(L, kTop + 1 + i);
    v.result = core::HookResult::kDecided;
  }
  if (!(numbers[0] >= 0 && numbers[0] <= kSmMax)) return bad_verdict("0 to 10000 sm");
  if (numbers[1] != core::kBuiltinPriority && !core::is_launch_priority(numbers[1])) {
    return bad_verdict("a stream_priority from -5 to 0");
  }
  v.sm = static_cast<uint32_t>(std::ceil(numbers[0]));
  v.launch_priority = static_cast<int>(numbers[1]);
  return true;
}

}  // namespace heddle::policy
