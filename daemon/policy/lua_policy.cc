#include "daemon/policy/lua_policy.h"

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <new>

#include "daemon/base/nearest.h"
#include "daemon/policy/culprit.h"
#include "daemon/policy/files.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

int on_params_newindex(lua_State* L) {
  return luaL_error(L, "p is read-only; keep what you need in a local");
}

std::string content_hash(const std::deque<std::string>& sources) {
  uint64_t hash = 0;
  for (const std::string& text : sources) {
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

int64_t steady_ns() {
  using std::chrono::nanoseconds;
  return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Kinds of errors that Lua reports as text only.
std::string_view error_kind(const std::string& message) {
  return message.find(" is stale") != message.npos ? "stale" : "error";
}

// Parameters that differ from their default are named by the caller, so one that is unknown is the
// caller's mistake.
Result<void> override_params(Declaration& d, const ParamValues& values) {
  for (const auto& entry : values) {
    const auto& [name, value] = entry;
    const auto param = std::find_if(d.params.begin(), d.params.end(),
                                    [&](const Param& p) { return p.name == entry.first; });
    if (param == d.params.end()) {
      std::vector<std::string_view> known;
      for (const Param& p : d.params) known.emplace_back(p.name);
      return fail(d.name + ": no parameter '" + name + "'" + did_you_mean(name, known));
    }
    Result<std::string> checked = parse_param(*param, value);
    if (!checked) return fail(d.name + ": " + checked.error().message);
    param->value = std::move(*checked);
  }
  return {};
}

}  // namespace

int LuaPolicy::load(lua_State* L) {
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  Session& s = self.session_;
  open_objects(L, s);
  open_helpers(L, s);
  self.declaration_.chunk = self.chunk_;
  self.declaration_.source = s.sources.front();
  open_declaration(L, self.declaration_);
  Sandbox::compile(L, s.sources.front(), self.chunk_.c_str());
  lua_call(L, 0, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, self.declaration_.declared_ref);
  if (lua_isnil(L, -1) || lua_rawequal(L, -1, -2) == 0) {
    self.sandbox_.message = self.chunk_ + ": the file must end with return policy { ... }";
    lua_pushstring(L, self.sandbox_.message.c_str());
    return lua_error(L);
  }
  return 0;
}

int LuaPolicy::store_params(lua_State* L) {
  const auto& self = *static_cast<const LuaPolicy*>(lua_touserdata(L, 1));
  lua_rawgeti(L, LUA_REGISTRYINDEX, self.declaration_.values_ref);
  for (const Param& param : self.declaration_.params) {
    lua_pushstring(L, param.name.c_str());
    push_param(L, param, param.value);
    lua_rawset(L, -3);
  }
  return 0;
}

// Makes `p`: a userdata whose fields are the table of values, so that reading one calls no C.
int LuaPolicy::make_frame(lua_State* L) {
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  store_params(L);
  (new (lua_newuserdata(L, sizeof(Object))) Object())->kind = Kind::kParams;
  lua_createtable(L, 0, 2);
  lua_rawgeti(L, LUA_REGISTRYINDEX, self.declaration_.values_ref);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, on_params_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
  self.params_ref_ = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushliteral(L, "replaced");
  self.replaced_ref_ = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushliteral(L, "faulted");
  self.faulted_ref_ = luaL_ref(L, LUA_REGISTRYINDEX);
  // The stack between calls, and what a call puts there: more than there is room for at first.
  luaL_checkstack(L, kTop + kCallSlots, nullptr);
  return 0;
}

// What every hook call needs is on the stack already; make_frame has made room for it.
void LuaPolicy::push_frame() {
  lua_State* L = sandbox_.lua();
  lua_rawgeti(L, LUA_REGISTRYINDEX, params_ref_);
  for (const int ref : declaration_.hook_refs) {
    if (ref == LUA_NOREF) {
      lua_pushnil(L);
    } else {
      lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
    }
  }
}

Result<void> LuaPolicy::set_param(std::string_view name, std::string_view value) {
  if (auto done = override_params(declaration_, {{std::string(name), std::string(value)}}); !done) {
    return done;
  }
  if (sandbox_.run(store_params, this) != Sandbox::Stop::kNone) {
    return fail(declaration_.name + ": " + sandbox_.error());
  }
  return {};
}

Result<std::unique_ptr<LuaPolicy>> load_policy(const Source& source, const ParamValues& values,
                                               const Limits& limits) {
  if (source.text.size() > kSourceBytes) {
    return fail(source.chunk + ": over 256 KiB; a policy is a page of Lua");
  }
  std::unique_ptr<LuaPolicy> policy(new LuaPolicy(limits));
  LuaPolicy& p = *policy;
  if (p.sandbox_.lua() == nullptr) return fail(source.chunk + ": no memory for a Lua state");
  p.chunk_ = source.chunk;
  p.session_.directory = source.directory;
  p.session_.read = source.read;
  p.session_.sources.push_back(source.text);
  p.sandbox_.host = &p.session_;
  if (p.sandbox_.run(LuaPolicy::load, &p) != Sandbox::Stop::kNone) return fail(p.sandbox_.error());
  p.session_.loading = false;
  p.hash_ = content_hash(p.session_.sources);
  p.chooses_per_launch = p.declaration_.per_launch;
  if (auto done = override_params(p.declaration_, values); !done) {
    return tl::unexpected(done.error());
  }
  if (p.sandbox_.run(LuaPolicy::make_frame, &p) != Sandbox::Stop::kNone) {
    return fail(p.sandbox_.error());
  }
  p.push_frame();
  return policy;
}

Result<std::unique_ptr<LuaPolicy>> load_policy_file(const std::string& named,
                                                    const ParamValues& values,
                                                    const Limits& limits) {
  const std::string path = policy_file(named);
  Result<std::string> text = read_source(path);
  if (!text) return tl::unexpected(text.error());
  const size_t slash = path.rfind('/');
  Source source;
  source.text = std::move(*text);
  source.chunk = slash == path.npos ? path : path.substr(slash + 1);
  source.directory = slash == path.npos ? "." : path.substr(0, slash);
  return load_policy(source, values, limits);
}

std::vector<std::string> LuaPolicy::trace_lines() const {
  std::vector<std::string> lines;
  const uint64_t count = session_.trace_count;
  for (uint64_t i = count > kTraceLines ? count - kTraceLines : 0; i < count; ++i) {
    lines.push_back(session_.trace[i % kTraceLines]);
  }
  return lines;
}

// ---- calling ----------------------------------------------------------------------------------

void LuaPolicy::begin(Hook hook, core::Gpu& gpu) {
  running_ = hook;
  running_hash.store(hash_.c_str(), std::memory_order_relaxed);
  session_.gpu = &gpu;
  session_.inserted = false;
  session_.launches_used = 0;
  ++session_.call;
  lua_pushvalue(sandbox_.lua(), kFirstHookIndex + static_cast<int>(hook));
}

// Of the running hook's function, "gapfill.lua:12: ".
std::string LuaPolicy::place() const {
  lua_State* L = sandbox_.lua();
  lua_Debug at{};
  lua_pushvalue(L, kFirstHookIndex + static_cast<int>(running_));
  lua_getinfo(L, ">S", &at);
  return std::string(at.short_src) + ":" + std::to_string(at.linedefined) + ": ";
}

bool LuaPolicy::finish(int args, int results) {
  HookTimes& times = times_[static_cast<size_t>(running_)];
  const bool timed = times.times_next();
  const int64_t start = timed ? steady_ns() : 0;
  const Sandbox::Stop stop = sandbox_.call(args, results, limits_.fuel);
  session_.gpu = nullptr;
  timed ? times.add(steady_ns() - start) : times.pass();
  if (stop == Sandbox::Stop::kNone) {
    if (sandbox_.took_ms() <= limits_.call_ms) return true;
    char text[96];
    std::snprintf(text, sizeof text, "took %.0f ms; a hook has %.0f ms", sandbox_.took_ms(),
                  limits_.call_ms);
    record("slow", place() + text, "");
    return false;
  }
  const std::string_view kind = stop == Sandbox::Stop::kFuel     ? "fuel"
                                : stop == Sandbox::Stop::kMemory ? "memory"
                                                                 : error_kind(sandbox_.error());
  // A function of ours in a tail call, as in return queue.insert(...), knows no caller.
  const std::string& message = sandbox_.error();
  record(kind, has_place(message) ? message : place() + message, sandbox_.traceback());
  return false;
}

void LuaPolicy::end() {
  lua_settop(sandbox_.lua(), kTop);
  if (session_.call % kCallsPerCollection == 0) sandbox_.collect();
  running_hash.store(nullptr, std::memory_order_relaxed);
}

void LuaPolicy::record(std::string_view kind, std::string message, std::string traceback) {
  fault_.kind = kind;
  fault_.hook = kHookNames[static_cast<size_t>(running_)];
  fault_.message = std::move(message);
  fault_.traceback = std::move(traceback);
  ++fault_.count;
  fault_weight_ = 1 + static_cast<uint32_t>(std::min(sandbox_.took_ms() / limits_.call_ms, 1e3));
}

// ---- hooks ------------------------------------------------------------------------------------

bool LuaPolicy::take_over(core::Policy& before) {
  auto* old = dynamic_cast<LuaPolicy*>(&before);
  if (old == nullptr || old->declaration_.name != declaration_.name) return true;
  const std::string changed = session_.maps.take_over(old->session_.maps);
  if (changed.empty()) return true;
  running_ = Hook::kInit;
  record("error",
         chunk_ + ": map '" + changed +
             "' is kept over reloads, and of another form than in what "
             "runs; name it anew, or leave reload = \"keep\" out once",
         "");
  return false;
}

core::HookResult LuaPolicy::init(core::Gpu& gpu) {
  for (QueueName& queue : session_.queues) queue.id = gpu.queue_create(queue.name);
  if (!has(Hook::kInit)) return core::HookResult::kDefault;
  begin(Hook::kInit, gpu);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  const bool ok = finish(1, 0);
  end();
  return ok ? core::HookResult::kDefault : core::HookResult::kFault;
}

int LuaPolicy::make_client(lua_State* L) {
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  policy::make_client(L, self.session_, self.client_);
  return 0;
}

int LuaPolicy::forget_client(lua_State* L) {
  auto& self = *static_cast<LuaPolicy*>(lua_touserdata(L, 1));
  policy::forget_client(L, self.session_, self.client_);
  return 0;
}

// Its object is made at attach, whether or not a hook gets it now, so that none allocates later.
bool LuaPolicy::know(Hook hook, core::ClientId client) {
  if (hook != Hook::kClientInit && !has(hook)) return true;
  client_ = client;
  if (sandbox_.run(make_client, this) == Sandbox::Stop::kNone) return true;
  running_ = hook;
  record("memory", (has(hook) ? place() : chunk_ + ": ") + sandbox_.error(), "");
  return false;
}

core::AllowanceVerdict LuaPolicy::allowance_hook(Hook hook, core::Gpu& gpu, core::ClientId client) {
  core::AllowanceVerdict verdict;
  if (!know(hook, client)) {
    verdict.result = core::HookResult::kFault;
    return verdict;
  }
  if (!has(hook)) return verdict;
  begin(hook, gpu);
  push_client(sandbox_.lua(), session_, client);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  if (!finish(2, kAllowanceResults) || !read_allowance(verdict)) {
    verdict = {};
    verdict.result = core::HookResult::kFault;
  }
  end();
  return verdict;
}

core::AllowanceVerdict LuaPolicy::client_init(core::Gpu& gpu, core::ClientId client) {
  return allowance_hook(Hook::kClientInit, gpu, client);
}
core::AllowanceVerdict LuaPolicy::client_active(core::Gpu& gpu, core::ClientId client) {
  return allowance_hook(Hook::kClientActive, gpu, client);
}
core::AllowanceVerdict LuaPolicy::client_idle(core::Gpu& gpu, core::ClientId client) {
  return allowance_hook(Hook::kClientIdle, gpu, client);
}

core::AllowanceVerdict LuaPolicy::client_update(core::Gpu& gpu, core::ClientId client) {
  return allowance_hook(Hook::kClientUpdate, gpu, client);
}

core::HookResult LuaPolicy::client_exit(core::Gpu& gpu, core::ClientId client) {
  bool ok = know(Hook::kClientExit, client);
  if (ok && has(Hook::kClientExit)) {
    begin(Hook::kClientExit, gpu);
    push_client(sandbox_.lua(), session_, client);
    ok = finish(1, 0);
    end();
  }
  client_ = client;
  session_.maps.forget(client);
  sandbox_.run(forget_client, this);
  return ok ? core::HookResult::kDefault : core::HookResult::kFault;
}

core::KernelVerdict LuaPolicy::kernel_init(core::Gpu& gpu, const core::LaunchView& kernel) {
  core::KernelVerdict verdict;
  if (!has(Hook::kKernelInit)) return verdict;
  begin(Hook::kKernelInit, gpu);
  push_kernel(sandbox_.lua(), session_, kernel);
  push_client(sandbox_.lua(), session_, kernel.client);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  if (!finish(3, kKernelResults) || !read_kernel(verdict)) {
    verdict = {};
    verdict.result = core::HookResult::kFault;
  }
  end();
  return verdict;
}

core::HookResult LuaPolicy::tick(core::Gpu& gpu) {
  if (!has(Hook::kTick)) return core::HookResult::kDefault;
  begin(Hook::kTick, gpu);
  push_gpu(sandbox_.lua(), session_);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  const bool ok = finish(2, 0);
  end();
  return ok ? core::HookResult::kDefault : core::HookResult::kFault;
}

core::EnqueueVerdict LuaPolicy::enqueue(core::Gpu& gpu, core::LaunchId launch) {
  core::EnqueueVerdict verdict;
  if (!has(Hook::kEnqueue)) return verdict;
  begin(Hook::kEnqueue, gpu);
  push_launch(sandbox_.lua(), session_, launch);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  verdict.result = core::HookResult::kFault;
  if (finish(2, LUA_MULTRET)) {
    lua_State* L = sandbox_.lua();
    const Verdict* said = to_verdict(L, kTop + 1);
    verdict.run = said == &kRun;
    if (verdict.run || session_.inserted) {
      verdict.result = core::HookResult::kDecided;
    } else if (lua_isnoneornil(L, kTop + 1)) {
      verdict.result = core::HookResult::kDefault;
      if (lua_isnone(L, kTop + 1) && !told_unplaced_) {  // nil would have been said on purpose
        told_unplaced_ = true;
        add_trace(session_, chunk_ +
                                ": enqueue neither inserted nor returned anything; the "
                                "built-in takes such launches");
      }
    } else {
      bad_verdict("queue.insert(...) or RUN");
    }
  }
  end();
  return verdict;
}

core::DispatchVerdict LuaPolicy::dispatch(core::Gpu& gpu) {
  core::DispatchVerdict verdict;
  verdict_ = {};
  if (!has(Hook::kDispatch)) return verdict;
  begin(Hook::kDispatch, gpu);
  push_gpu(sandbox_.lua(), session_);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  bool ok = finish(2, kRunResults);
  lua_State* L = sandbox_.lua();
  if (ok && !lua_isnil(L, kTop + 1)) {
    const Verdict* said = to_verdict(L, kTop + 1);
    verdict.result = core::HookResult::kDecided;
    if (said == &kRun || said == &kOpen) {
      verdict.open = said == &kOpen;
      ok = read_run(verdict);
    } else if (said == &kIdle) {
      ok = read_idle(verdict);
    } else {
      ok = bad_verdict("RUN, k or OPEN, k or IDLE, reason");
    }
    if (said != nullptr) verdict_ = said->name;
    if (ok) verdict.reason = count_verdict();
  }
  if (!ok) {
    verdict = {};
    verdict.result = core::HookResult::kFault;
  }
  end();
  return verdict;
}

core::HookResult LuaPolicy::launch_hook(Hook hook, core::Gpu& gpu, const core::LaunchView& launch) {
  if (!has(hook)) return core::HookResult::kDefault;
  begin(hook, gpu);
  push_ended_launch(sandbox_.lua(), session_, launch);
  lua_pushvalue(sandbox_.lua(), kParamsIndex);
  const bool ok = finish(2, 0);
  end();
  return ok ? core::HookResult::kDefault : core::HookResult::kFault;
}

core::HookResult LuaPolicy::running(core::Gpu& gpu, const core::LaunchView& launch) {
  return launch_hook(Hook::kRunning, gpu, launch);
}

core::HookResult LuaPolicy::stopping(core::Gpu& gpu, const core::LaunchView& launch) {
  return launch_hook(Hook::kStopping, gpu, launch);
}

// The last fault stays the one that is told: what fails here ends nothing.
std::string LuaPolicy::dump(core::Gpu& gpu) {
  if (!has(Hook::kDump)) return {};
  const Fault last = fault_;
  begin(Hook::kDump, gpu);
  std::string text = "(dump failed)";
  lua_State* L = sandbox_.lua();
  if (finish(0, 1)) {
    size_t bytes = 0;
    const char* said = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &bytes) : "";
    text.assign(said, std::min(bytes, kDumpBytes));
  }
  end();
  fault_ = last;
  return text;
}

void LuaPolicy::exit(core::Gpu& gpu, core::Ending ending) {
  if (!has(Hook::kExit)) return;
  const Fault last = fault_;
  begin(Hook::kExit, gpu);
  lua_rawgeti(sandbox_.lua(), LUA_REGISTRYINDEX,
              ending == core::Ending::kReplaced ? replaced_ref_ : faulted_ref_);
  finish(1, 0);
  end();
  fault_ = last;
}

}  // namespace heddle::policy
