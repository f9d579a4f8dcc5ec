#include "daemon/policy/objects.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <type_traits>
#include <utility>

#include "daemon/base/nearest.h"
#include "daemon/model/right_size.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
using core::ClientView;
using core::GpuView;
using core::LaunchView;
using ipc::KernelFacts;

namespace {

constexpr const char* kKindNames[] = {"k", "kn", "c", "g", "g.budget", "p", "map"};

Object* to_object(lua_State* L, int index) {
  // Userdata of any other kind cannot exist in this state.
  return lua_type(L, index) == LUA_TUSERDATA ? static_cast<Object*>(lua_touserdata(L, index))
                                             : nullptr;
}

}  // namespace

int raise_stale(lua_State* L, const Object& object) {
  return luaL_error(L, "%s is stale: kept past its hook; keep its fields instead",
                    kKindNames[static_cast<size_t>(object.kind)]);
}

Object& check(lua_State* L, int index, Kind kind) {
  Object* object = to_object(L, index);
  if (object == nullptr || object->kind != kind) {
    luaL_error(L, "argument %d is no %s; call methods with a colon", index,
               kKindNames[static_cast<size_t>(kind)]);
  }
  if (object->session->gpu == nullptr || object->call != object->session->call) {
    raise_stale(L, *object);
  }
  return *object;
}

core::LaunchView& launch_view(lua_State* L, Session& s, Object& object) {
  LaunchObject& launch = object.kind == Kind::kKernel ? *static_cast<KernelObject&>(object).launch
                                                      : static_cast<LaunchObject&>(object);
  if (!launch.filled) {
    if (!s.gpu->launch(launch.id, launch.view)) raise_stale(L, object);
    launch.filled = true;
  }
  return launch.view;
}

namespace {

core::ClientView& client_view(lua_State* L, Session& s, Object& object) {
  auto& client = static_cast<ClientObject&>(object);
  if (!client.filled) {
    if (!s.gpu->client(client.id, client.view)) raise_stale(L, object);
    client.filled = true;
  }
  return client.view;
}

core::GpuView& gpu_view(Session& s, Object& object) {
  auto& gpu = static_cast<GpuObject&>(object);
  if (!gpu.filled) {
    gpu.view = s.gpu->gpu();
    gpu.filled = true;
  }
  return gpu.view;
}

void push(lua_State* L, double v) { lua_pushnumber(L, v); }
void push(lua_State* L, std::string_view v) { lua_pushlstring(L, v.data(), v.size()); }
void push(lua_State* L, core::SmCount v) { lua_pushnumber(L, v.get()); }
void push(lua_State* L, bool v) { lua_pushboolean(L, v ? 1 : 0); }
void push(lua_State* L, core::LaunchKind v) {
  constexpr std::string_view kNames[] = {"kernel", "graph", "copy", "memset"};
  push(L, kNames[static_cast<size_t>(v)]);
}
template <class T>
requires std::is_integral_v<T>
void push(lua_State* L, T v) { lua_pushnumber(L, static_cast<double>(v)); }

template <auto kMember>
void push_launch_field(lua_State* L, Session& s, Object& o) {
  push(L, launch_view(L, s, o).*kMember);
}
template <auto kMember>
void push_fact(lua_State* L, Session& s, Object& o) {
  push(L, launch_view(L, s, o).facts->*kMember);
}
template <size_t kMetric>
void push_metric(lua_State* L, Session& s, Object& o) {
  const ipc::KernelMetrics& metrics = *launch_view(L, s, o).metrics;
  if (!metrics.has(kMetric)) return lua_pushnil(L);
  push(L, metrics.values[kMetric]);
}
template <auto kMember>
void push_client_field(lua_State* L, Session& s, Object& o) {
  push(L, client_view(L, s, o).*kMember);
}
template <auto kMember>
void push_gpu_field(lua_State* L, Session& s, Object& o) {
  push(L, gpu_view(s, o).*kMember);
}
template <size_t kMethod>
void push_method(lua_State* L, Session& s, Object&) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, s.method_refs[kMethod]);
}
template <size_t kMethod>
constexpr Field method_field(const char* name) {
  return {name, push_method<kMethod>, true};
}

template <class T>
T& hand_out(lua_State* L, const Session& s, const Kept<T>& kept) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, kept.ref);
  if (kept.object->call != s.call) kept.object->filled = false;
  kept.object->call = s.call;
  return *kept.object;
}

LaunchObject& next_launch(lua_State* L, Session& s) {
  if (s.launches_used == s.launches.size()) {
    luaL_error(L, "this hook call has looked at %d launches; keep k in a local, or stop earlier",
               static_cast<int>(s.launches_used));
  }
  return hand_out(L, s, s.launches[s.launches_used++]);
}

auto place_of(Session& s, core::ClientId id) {
  return std::lower_bound(
      s.clients.begin(), s.clients.end(), id,
      [](const Kept<ClientObject>& kept, core::ClientId other) { return kept.object->id < other; });
}

void push_kernel_of(lua_State* L, Session& s, Object& o) {
  launch_view(L, s, o);
  hand_out(L, s, s.kernels[static_cast<LaunchObject&>(o).place]);
}
void push_client_of(lua_State* L, Session& s, Object& o) {
  push_client(L, s, launch_view(L, s, o).client);
}
void push_budget_of(lua_State* L, Session& s, Object&) { hand_out(L, s, s.the_budget); }
template <core::Channel kChannel>
void push_channel(lua_State* L, Session& s, Object&) {
  push(L, s.gpu->channel_left(kChannel));
}
void push_mode(lua_State* L, Session& s, Object& o) {
  push(L, std::string_view(gpu_view(s, o).mps ? "mps" : "timeslice"));
}
void push_kernel_id(lua_State* L, Session& s, Object& o) {
  char digits[17];  // as profiles and listings have it
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(launch_view(L, s, o).facts->id));
  lua_pushlstring(L, digits, sizeof digits - 1);
}
void push_kernel_name(lua_State* L, Session& s, Object& o) {
  push(L, std::string_view(launch_view(L, s, o).facts->name));
}
void push_right_size(lua_State* L, Session& s, Object& o) {
  const LaunchView& v = launch_view(L, s, o);
  push_size(L, v.groups == nullptr ? core::SmCount()
                                   : core::latency_size(*v.metrics, v.mean_us, *v.groups));
}
void push_held(lua_State* L, Session& s, Object& o) {
  push(L, std::string_view(client_view(L, s, o).gates ? "device" : "thread"));
}
void push_gated(lua_State* L, Session& s, Object& o) {
  push(L, client_view(L, s, o).allowed == core::Allowance::kGated);
}

constexpr Field kLaunchFields[] = {
    {"client", push_client_of},
    {"kernel", push_kernel_of},
    {"kind", push_launch_field<&LaunchView::kind>},
    {"seq", push_launch_field<&LaunchView::seq>},
    {"grid_blocks", push_fact<&KernelFacts::grid_blocks>},
    {"block_threads", push_fact<&KernelFacts::block_threads>},
    {"dynamic_smem", push_fact<&KernelFacts::dynamic_smem_bytes>},
    {"predicted_us", push_launch_field<&LaunchView::predicted_us>},
    {"wave_us", push_launch_field<&LaunchView::wave_us>},
    {"gap_after_us", push_launch_field<&LaunchView::gap_after_us>},
    {"wait_us", push_launch_field<&LaunchView::wait_us>},
    {"run_us", push_launch_field<&LaunchView::run_us>},
    {"priority", push_launch_field<&LaunchView::priority>},
    {"fenceable", push_launch_field<&LaunchView::movable>},
    {"open_us", push_launch_field<&LaunchView::open_us>},
    {"right_size", push_right_size},
};
constexpr Field kKernelOwnFields[] = {
    {"name", push_kernel_name},
    {"id", push_kernel_id},
    {"mean_us", push_launch_field<&LaunchView::mean_us>},
    {"gap_us", push_launch_field<&LaunchView::gap_after_us>},
    {"p90_us", push_launch_field<&LaunchView::p90_us>},
    {"profiled", push_launch_field<&LaunchView::profiled>},
    {"launches", push_launch_field<&LaunchView::launches>},
    {"registers", push_fact<&KernelFacts::registers>},
    {"static_smem", push_fact<&KernelFacts::static_smem_bytes>},
    {"blocks_per_sm", push_fact<&KernelFacts::max_blocks_per_sm>},
    {"grid_blocks", push_fact<&KernelFacts::grid_blocks>},
    {"block_threads", push_fact<&KernelFacts::block_threads>},
    {"right_size", push_right_size},
    method_field<kSizeFor>("size_for"),
};
// And one of the name of each metric, nil where it was not measured.
template <size_t... kMetric>
constexpr auto with_metrics(std::index_sequence<kMetric...>) {
  constexpr size_t kOwn = std::size(kKernelOwnFields);
  std::array<Field, kOwn + sizeof...(kMetric)> all{};
  std::copy(std::begin(kKernelOwnFields), std::end(kKernelOwnFields), all.begin());
  ((all[kOwn + kMetric] = {ipc::kKernelMetrics[kMetric].key, push_metric<kMetric>}), ...);
  return all;
}
constexpr auto kKernelFields = with_metrics(std::make_index_sequence<ipc::kKernelMetricCount>());
constexpr Field kClientFields[] = {
    {"id", push_client_field<&ClientView::id>},
    {"name", push_client_field<&ClientView::name>},
    {"label", push_client_field<&ClientView::label>},
    {"uid", push_client_field<&ClientView::uid>},
    {"pid", push_client_field<&ClientView::pid>},
    {"priority", push_client_field<&ClientView::priority>},
    {"share", push_client_field<&ClientView::share>},
    {"slo_ms", push_client_field<&ClientView::slo_ms>},
    {"request", push_client_field<&ClientView::request>},
    {"limit", push_client_field<&ClientView::limit>},
    {"slowdown_max", push_client_field<&ClientView::slowdown_max>},
    {"slowdown_p99_max", push_client_field<&ClientView::slowdown_p99_max>},
    {"gated", push_gated},
    {"held", push_held},
    {"queued", push_client_field<&ClientView::queued>},
    {"inflight_us", push_client_field<&ClientView::inflight_us>},
    {"gpu_us", push_client_field<&ClientView::gpu_us>},
    {"launches", push_client_field<&ClientView::launches>},
    {"work_us", push_client_field<&ClientView::work_us>},
    {"active", push_client_field<&ClientView::active>},
    {"profiled", push_client_field<&ClientView::profiled>},
    {"stopped_us", push_client_field<&ClientView::stopped_us>},
    {"stoppable", push_client_field<&ClientView::stoppable>},
    {"resident_bytes", push_client_field<&ClientView::resident_bytes>},
    {"parked", push_client_field<&ClientView::parked>},
    method_field<kLeaseIt>("lease"),
    method_field<kGateIt>("gate"),
    method_field<kLaunchPriorityIs>("launch_priority"),
    method_field<kKeepTo>("keep_to"),
    method_field<kStopIt>("stop"),
    method_field<kSliceIt>("slice"),
    method_field<kParkIt>("park"),
    method_field<kUnparkIt>("unpark"),
    method_field<kResizeIt>("resize"),
};
constexpr Field kGpuFields[] = {
    {"index", push_gpu_field<&GpuView::index>},
    {"sm_total", push_gpu_field<&GpuView::sm_total>},
    {"sm_free", push_gpu_field<&GpuView::sm_free>},
    {"inflight_us", push_gpu_field<&GpuView::inflight_us>},
    {"fenced_us", push_gpu_field<&GpuView::on_sets_us>},
    {"switch_us", push_gpu_field<&GpuView::switch_us>},
    {"mode", push_mode},
    {"stops", push_gpu_field<&GpuView::stops>},
    {"budget", push_budget_of},
    method_field<kGapUs>("gap_us"),
    method_field<kGapLengthUs>("gap_length_us"),
    method_field<kBusy>("busy"),
    method_field<kIdleUs>("idle_us"),
    method_field<kRuns>("runs"),
    method_field<kSlowerRuns>("slower_runs"),
    method_field<kComparing>("comparing"),
    method_field<kClients>("clients"),
};

// Of core::kChannelNames those that have an amount; caches are not used up by what runs.
constexpr Field kBudgetFields[] = {
    {"issue", push_channel<core::Channel::kIssue>},
    {"fma", push_channel<core::Channel::kFma>},
    {"fp64", push_channel<core::Channel::kFp64>},
    {"tensor", push_channel<core::Channel::kTensor>},
    {"smem", push_channel<core::Channel::kSmem>},
    {"l2", push_channel<core::Channel::kL2>},
    {"dram", push_channel<core::Channel::kDram>},
};

std::span<const Field> fields_of(Kind kind) {
  switch (kind) {
    case Kind::kLaunch:
      return kLaunchFields;
    case Kind::kKernel:
      return kKernelFields;
    case Kind::kClient:
      return kClientFields;
    case Kind::kBudget:
      return kBudgetFields;
    case Kind::kGpu:
    case Kind::kParams:
    case Kind::kMap:
      break;
  }
  return kGpuFields;
}

int raise_unknown(lua_State* L, const Object& object, const char* key) {
  std::vector<std::string_view> known;
  for (const Field& f : fields_of(object.kind)) known.emplace_back(f.name);
  const char* kind = kKindNames[static_cast<size_t>(object.kind)];
  Sandbox::of(L)
      .message.assign(kind)
      .append(" has no field '")
      .append(key)
      .append("'")
      .append(did_you_mean(key, known));
  return 0;
}

int index(lua_State* L, Object& object) {
  Session& s = *object.session;
  if (s.gpu == nullptr || object.call != s.call) return raise_stale(L, object);
  const Field* field = s.fields[static_cast<size_t>(object.kind)].find(lua_topointer(L, 2));
  if (field == nullptr) {
    raise_unknown(L, object, lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?");
    return raise(L);
  }
  field->push(L, s, object);
  return 1;
}

int on_index(lua_State* L) { return index(L, *static_cast<Object*>(lua_touserdata(L, 1))); }

// Of what is none of g's methods; g, the only one, is its upvalue.
int on_gpu_index(lua_State* L) {
  return index(L, *static_cast<Object*>(lua_touserdata(L, lua_upvalueindex(1))));
}

int on_newindex(lua_State* L) {
  const Object& object = *static_cast<Object*>(lua_touserdata(L, 1));
  return luaL_error(L, "%s is read-only; keep what you need in a local",
                    kKindNames[static_cast<size_t>(object.kind)]);
}

int on_tostring(lua_State* L) {
  const Object& object = *static_cast<Object*>(lua_touserdata(L, 1));
  lua_pushstring(L, kKindNames[static_cast<size_t>(object.kind)]);
  return 1;
}

template <class T>
Kept<T> make(lua_State* L, Session& s, Kind kind) {
  Kept<T> kept;
  kept.object = new (lua_newuserdata(L, sizeof(T))) T();
  kept.object->kind = kind;
  kept.object->session = &s;
  lua_rawgeti(L, LUA_REGISTRYINDEX, s.metatable_refs[static_cast<size_t>(kind)]);
  lua_setmetatable(L, -2);
  kept.ref = luaL_ref(L, LUA_REGISTRYINDEX);
  return kept;
}

void make_metatable(lua_State* L, Session& s, Kind kind) {
  const size_t k = static_cast<size_t>(kind);
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, on_index);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, on_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_pushcfunction(L, on_tostring);
  lua_setfield(L, -2, "__tostring");
  for (const Field& f : fields_of(kind)) {
    lua_pushstring(L, f.name);  // the reference keeps the interned name where it is
    s.fields[k].add(lua_topointer(L, -1), &f);
    luaL_ref(L, LUA_REGISTRYINDEX);
  }
  s.metatable_refs[k] = luaL_ref(L, LUA_REGISTRYINDEX);
}

// A hook calls most of g's methods: the interpreter finds them in a table, without a call of C.
void open_gpu_methods(lua_State* L, Session& s) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, s.metatable_refs[static_cast<size_t>(Kind::kGpu)]);
  lua_createtable(L, 0, static_cast<int>(std::size(kGpuFields)));
  for (const Field& f : kGpuFields) {
    if (!f.is_method) continue;
    f.push(L, s, *s.the_gpu.object);
    lua_setfield(L, -2, f.name);
  }
  lua_createtable(L, 0, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, s.the_gpu.ref);
  lua_pushcclosure(L, on_gpu_index, 1);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

}  // namespace

void FieldTable::add(const void* interned, const Field* field) {
  size_t i = slot(interned);
  while (keys_[i] != nullptr) i = (i + 1) % kSlots;
  keys_[i] = interned;
  fields_[i] = field;
}

std::vector<std::string> field_names(Kind kind) {
  std::vector<std::string> names;
  for (const Field& field : fields_of(kind)) {
    names.push_back(std::string(kKindNames[static_cast<size_t>(kind)]) + '.' + field.name);
  }
  return names;
}

void open_objects(lua_State* L, Session& s) {
  for (size_t i = 0; i < s.method_refs.size(); ++i) {
    lua_pushcfunction(L, method(i));
    s.method_refs[i] = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  for (const Kind kind : {Kind::kLaunch, Kind::kKernel, Kind::kClient, Kind::kGpu, Kind::kBudget}) {
    make_metatable(L, s, kind);
  }
  for (size_t i = 0; i < kLaunchObjects; ++i) {
    s.launches[i] = make<LaunchObject>(L, s, Kind::kLaunch);
    s.launches[i].object->place = i;
    s.kernels[i] = make<KernelObject>(L, s, Kind::kKernel);
    s.kernels[i].object->launch = s.launches[i].object;
  }
  s.the_gpu = make<GpuObject>(L, s, Kind::kGpu);
  open_gpu_methods(L, s);
  s.the_budget = make<BudgetObject>(L, s, Kind::kBudget);
}

void push_launch(lua_State* L, Session& s, core::LaunchId id) { next_launch(L, s).id = id; }

void push_ended_launch(lua_State* L, Session& s, const core::LaunchView& view) {
  LaunchObject& launch = next_launch(L, s);
  launch.id = 0;
  launch.view = view;
  launch.filled = true;
}

void push_kernel(lua_State* L, Session& s, const core::LaunchView& view) {
  push_ended_launch(L, s, view);
  const size_t place = static_cast<LaunchObject*>(to_object(L, -1))->place;
  lua_pop(L, 1);
  hand_out(L, s, s.kernels[place]);
}

void push_gpu(lua_State* L, Session& s) { hand_out(L, s, s.the_gpu); }

void make_client(lua_State* L, Session& s, core::ClientId id) {
  const auto at = place_of(s, id);
  if (at != s.clients.end() && at->object->id == id) return;
  const Kept<ClientObject> kept = make<ClientObject>(L, s, Kind::kClient);
  kept.object->id = id;
  s.clients.insert(at, kept);
}

void push_client(lua_State* L, Session& s, core::ClientId id) {
  auto at = place_of(s, id);
  if (at == s.clients.end() || at->object->id != id) {
    make_client(L, s, id);
    at = place_of(s, id);
  }
  hand_out(L, s, *at);
}

void forget_client(lua_State* L, Session& s, core::ClientId id) {
  const auto at = place_of(s, id);
  if (at == s.clients.end() || at->object->id != id) return;
  luaL_unref(L, LUA_REGISTRYINDEX, at->ref);
  s.clients.erase(at);
}

LaunchObject* to_launch(lua_State* L, const Session& s, int index) {
  Object* object = to_object(L, index);
  if (object == nullptr || object->kind != Kind::kLaunch || object->call != s.call) return nullptr;
  return static_cast<LaunchObject*>(object);
}

ClientObject& check_client(lua_State* L, int index, const char* what) {
  const Object* object = to_object(L, index);
  if (object == nullptr || object->kind != Kind::kClient) {
    luaL_error(L, "%s: argument %d is no client", what, index);
  }
  return static_cast<ClientObject&>(check(L, index, Kind::kClient));
}

LaunchObject& check_launch(lua_State* L, Session& s, int index, const char* what) {
  Object* object = to_object(L, index);
  if (object == nullptr || object->kind != Kind::kLaunch) {
    luaL_error(L, "%s: argument %d is no launch", what, index);
  }
  if (s.gpu == nullptr || object->call != s.call) raise_stale(L, *object);
  return static_cast<LaunchObject&>(*object);
}

}  // namespace heddle::policy
