// budget.fits, budget.slowdown: promises and the interference estimator (core/budget.h).
#include <cmath>

#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

core::Gpu& check_gpu(lua_State* L, Session& s, const char* what) {
  if (s.gpu == nullptr) luaL_error(L, "%s works inside hooks only", what);
  return *s.gpu;
}

// budget.fits(k [, sm]): true, or false and the channel that costs most, or "unknown".
int fits(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "budget.fits");
  const LaunchObject& launch = check_launch(L, s, 1, "budget.fits");
  const double sm = luaL_optnumber(L, 2, 0);
  if (!(sm >= 0 && sm <= 1024) || sm != std::floor(sm)) {
    return luaL_error(L, "budget.fits: a size is 0 (all) to 1024 SMs");
  }
  const core::BudgetVerdict verdict =
      gpu.budget_fits(launch.id, core::SmCount(static_cast<uint32_t>(sm)));
  lua_pushboolean(L, verdict.fits ? 1 : 0);
  if (verdict.fits) return 1;
  const std::string_view name =
      verdict.known ? core::kChannelNames[core::index_of(verdict.channel)] : "unknown";
  lua_pushlstring(L, name.data(), name.size());
  return 2;
}

int slowdown(lua_State* L) {
  Session& s = Session::of(L);
  core::Gpu& gpu = check_gpu(L, s, "budget.slowdown");
  lua_pushnumber(L, gpu.slowdown(check_client(L, 1, "budget.slowdown").id));
  return 1;
}

}  // namespace

void open_budget(lua_State* L) {
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, fits);
  lua_setfield(L, -2, "fits");
  lua_pushcfunction(L, slowdown);
  lua_setfield(L, -2, "slowdown");
}

}  // namespace heddle::policy
