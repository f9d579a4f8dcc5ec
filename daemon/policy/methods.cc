// The methods of the objects that hooks see.
#include <algorithm>
#include <cmath>

#include "daemon/model/right_size.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

// g:gap_us(prio) and its like: a time in microseconds, relative to a priority.
template <double (core::World::*kQuestion)(int) const>
int time_above(lua_State* L) {
  const core::Gpu& gpu = *check(L, 1, Kind::kGpu).session->gpu;
  lua_pushnumber(L, (gpu.*kQuestion)(static_cast<int>(luaL_checknumber(L, 2))));
  return 1;
}

// g:busy(prio), g:comparing(prio).
template <bool (core::World::*kQuestion)(int) const>
int true_above(lua_State* L) {
  const core::Gpu& gpu = *check(L, 1, Kind::kGpu).session->gpu;
  lua_pushboolean(L, (gpu.*kQuestion)(static_cast<int>(luaL_checknumber(L, 2))) ? 1 : 0);
  return 1;
}

// Numbers, so that no table is allocated.
int runs(lua_State* L) {
  const core::Gpu& gpu = *check(L, 1, Kind::kGpu).session->gpu;
  const core::RunTimes times = gpu.runs(static_cast<int>(luaL_checknumber(L, 2)));
  lua_pushnumber(L, static_cast<double>(times.count));
  lua_pushnumber(L, times.took_us);
  lua_pushnumber(L, times.alone_us);
  lua_pushnumber(L, times.pauses_us);
  lua_pushnumber(L, times.pause_roots);
  return 5;
}

int slower_runs(lua_State* L) {
  const core::Gpu& gpu = *check(L, 1, Kind::kGpu).session->gpu;
  const auto priority = static_cast<int>(luaL_checknumber(L, 2));
  const core::SlowRunCount count = gpu.slower_runs(priority, luaL_checknumber(L, 3));
  lua_pushnumber(L, static_cast<double>(count.slow));
  lua_pushnumber(L, static_cast<double>(count.runs));
  return 2;
}

// The iterator's control value is the last client: the next has the next higher ID.
int next_client(lua_State* L) {
  check(L, 1, Kind::kGpu);
  Session& s = Session::of(L);
  const auto clients = s.gpu->clients();
  auto next = clients.begin();
  if (!lua_isnil(L, 2)) {
    const auto& last = static_cast<ClientObject&>(check(L, 2, Kind::kClient));
    next = std::upper_bound(clients.begin(), clients.end(), last.id);
  }
  if (next == clients.end()) return 0;
  push_client(L, s, *next);
  return 1;
}

int clients(lua_State* L) {
  check(L, 1, Kind::kGpu);
  lua_rawgeti(L, LUA_REGISTRYINDEX, Session::of(L).method_refs[kNextClient]);
  lua_pushvalue(L, 1);
  return 2;
}

// For so long as its number says; without one for good.
template <core::Allowance kAllowed>
int allow_it(lua_State* L) {
  const double for_us = luaL_optnumber(L, 2, 0);
  if (!(for_us >= 0 && for_us <= 1e6))
    return luaL_error(L, "an allowance is lent for 0 to 1000000 µs");
  auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  client.filled = false;
  if (!Session::of(L).gpu->set_allowance(client.id, kAllowed, for_us))
    return raise_stale(L, client);
  return 0;
}

int launch_priority_is(lua_State* L) {
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  const double chosen = luaL_optnumber(L, 2, core::kBuiltinPriority);
  if (chosen != core::kBuiltinPriority && !core::is_launch_priority(chosen)) {
    return luaL_error(L, "a launch priority is -5 (first) to 0 (last)");
  }
  const bool there = Session::of(L).gpu->set_launch_priority(client.id, static_cast<int>(chosen));
  return there ? 0 : raise_stale(L, client);
}

// kn:size_for(lambda): nil where no curve was measured.
int size_for(lua_State* L) {
  Object& object = check(L, 1, Kind::kKernel);
  const double lambda = luaL_checknumber(L, 2);
  if (!(lambda >= 0)) return luaL_error(L, "size_for: lambda is a share of time per SM, from 0");
  const core::LaunchView& v = launch_view(L, Session::of(L), object);
  push_size(L, v.groups == nullptr
                   ? core::SmCount()
                   : core::throughput_size(*v.metrics, v.mean_us, *v.groups, lambda));
  return 1;
}

int resize_it(lua_State* L) {
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  return Session::of(L).gpu->resize(client.id) ? 0 : raise_stale(L, client);
}

// c:keep_to(sm [, for_us]); 0: not any more.
int keep_to_it(lua_State* L) {
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  const double sm = luaL_checknumber(L, 2), for_us = luaL_optnumber(L, 3, 0);
  if (!(sm >= 0 && sm <= 1e4)) return luaL_error(L, "a client is kept to 0 to 10000 SMs");
  if (!(for_us >= 0 && for_us <= 1e6)) return luaL_error(L, "SMs are lent for 0 to 1000000 µs");
  const core::SmCount sms(static_cast<uint32_t>(std::ceil(sm)));
  return Session::of(L).gpu->keep_to(client.id, sms, for_us) ? 0 : raise_stale(L, client);
}

// c:stop("never"), ("long"), ("always").
int stop_it(lua_State* L) {
  constexpr std::string_view kWhen[] = {"never", "long", "always"};
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  const std::string_view when = luaL_checkstring(L, 2);
  const auto found = std::find(std::begin(kWhen), std::end(kWhen), when);
  if (found == std::end(kWhen)) {
    return luaL_error(L, "a client is stopped \"never\", \"long\" or \"always\"");
  }
  const auto chosen = static_cast<core::StopWhen>(found - std::begin(kWhen));
  return Session::of(L).gpu->set_stop(client.id, chosen) ? 0 : raise_stale(L, client);
}

// c:slice(us); 0: the driver's.
int slice_it(lua_State* L) {
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  const double us = luaL_checknumber(L, 2);
  if (us != 0 && !(us >= ipc::kSliceUsLeast && us <= ipc::kSliceUsMost)) {
    return luaL_error(L, "a slice is %d to %d \xc2\xb5s, or 0: the driver's",
                      static_cast<int>(ipc::kSliceUsLeast), static_cast<int>(ipc::kSliceUsMost));
  }
  const bool there = Session::of(L).gpu->set_slice(client.id, static_cast<uint32_t>(us));
  return there ? 0 : raise_stale(L, client);
}

// c:park(), c:unpark()
template <bool kParked>
int park_it(lua_State* L) {
  const auto& client = static_cast<ClientObject&>(check(L, 1, Kind::kClient));
  return Session::of(L).gpu->set_parked(client.id, kParked) ? 0 : raise_stale(L, client);
}

constexpr lua_CFunction kFunctions[] = {time_above<&core::Gpu::gap_us>,
                                        true_above<&core::Gpu::busy>,
                                        true_above<&core::Gpu::comparing>,
                                        runs,
                                        slower_runs,
                                        clients,
                                        allow_it<core::Allowance::kLeased>,
                                        allow_it<core::Allowance::kGated>,
                                        launch_priority_is,
                                        time_above<&core::Gpu::idle_us>,
                                        time_above<&core::Gpu::gap_length_us>,
                                        next_client,
                                        size_for,
                                        resize_it,
                                        keep_to_it,
                                        stop_it,
                                        slice_it,
                                        park_it<true>,
                                        park_it<false>};
static_assert(std::size(kFunctions) == kMethods);

}  // namespace

void push_size(lua_State* L, core::SmCount sm) {
  if (sm.get() == 0) return lua_pushnil(L);
  lua_pushnumber(L, sm.get());
}

lua_CFunction method(size_t method) { return kFunctions[method]; }

}  // namespace heddle::policy
