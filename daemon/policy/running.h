// What the C functions of one policy share: the running hook call, the objects, the queues.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/policy.h"
#include "daemon/policy/declaration.h"
#include "daemon/policy/limits.h"
#include "daemon/policy/maps.h"
#include "daemon/policy/objects.h"
#include "daemon/policy/sandbox.h"

namespace heddle::policy {

// Verdicts are light userdata, the addresses of these, so that no number or string passes for one.
struct Verdict {
  const char* name;
};
inline constexpr Verdict kLease{"LEASE"}, kGate{"GATE"}, kRefuse{"REFUSE"}, kRun{"RUN"},
    kOpen{"OPEN"}, kIdle{"IDLE"}, kInserted{"INSERTED"};
inline constexpr const Verdict* kVerdicts[] = {&kLease, &kGate, &kRefuse,  &kRun,
                                               &kOpen,  &kIdle, &kInserted};

struct QueueName {
  const char* interned;
  std::string name;
  core::QueueId id;
};

struct Session {
  // The device of the running hook call; nullptr while loading and between calls.
  core::Gpu* gpu = nullptr;
  uint64_t call = 0;
  bool inserted = false;  // queue.insert worked in this call
  bool loading = true;
  core::SmFamily family;
  bool family_declared = false;
  std::vector<QueueName> queues;
  Maps maps;

  // Where import looks, empty: nowhere; and what it reads by.
  std::string directory;
  std::function<Result<std::string>(const std::string& path)> read;
  std::deque<std::string> sources;  // all text that was loaded: the file, then its imports

  std::function<void(std::string_view)> log;
  std::vector<std::string> trace;  // a ring of kTraceLines
  uint64_t trace_count = 0;

  std::array<FieldTable, kKinds> fields;
  std::array<int, kKinds> metatable_refs{};
  LaunchRing<LaunchObject> launches;
  LaunchRing<KernelObject> kernels;
  size_t launches_used = 0;                 // by the running hook call
  std::vector<Kept<ClientObject>> clients;  // ascending by ID
  Kept<GpuObject> the_gpu;
  Kept<BudgetObject> the_budget;
  std::array<int, kMethods> method_refs{};

  static Session& of(lua_State* L) { return *static_cast<Session*>(Sandbox::of(L).host); }
};

// Adds queue, trace, now_us, import and the verdicts to the globals; inside a protected call.
void open_helpers(lua_State* L, Session& session);

// Leave the tables `budget` (budget.cc) and `map` (map_functions.cc) on the stack.
void open_budget(lua_State* L);
void open_maps(lua_State* L);
std::span<const luaL_Reg> map_methods();

void add_trace(Session& session, std::string_view line);

// The name of a verdict, or nullptr if the value at `index` is none.
const Verdict* to_verdict(lua_State* L, int index);

// Reads a text file of at most kSourceBytes: what imports are read by, unless a Source says else.
Result<std::string> read_source(const std::string& path);

// Where things lie on a policy's Lua stack, and what hooks return at most.
// Layout of the Lua stack between calls: the error handler, `p`, one function per hook.
inline constexpr int kParamsIndex = 2;
inline constexpr int kFirstHookIndex = 3;
inline constexpr int kTop = kFirstHookIndex + static_cast<int>(kHooks) - 1;
inline constexpr int kCallSlots = 8;         // a function and its arguments, or what it returns
inline constexpr int kRunResults = 5;        // RUN, k, sm, stream_priority, reason
inline constexpr int kAllowanceResults = 2;  // GATE, reason
inline constexpr int kKernelResults = 3;     // sm, stream_priority, timed

}  // namespace heddle::policy
