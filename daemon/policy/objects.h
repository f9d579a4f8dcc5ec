// The objects that hooks see: k (launch), kn (kernel), c (client), g (GPU). Userdata with read-only
// fields, made before they are needed, so that a hook call allocates nothing. A client has one
// object from attach to exit; launches are handed out from a ring, which a hook call can use up but
// never goes around in. So an object never turns into another one while a hook looks at it. Each
// remembers the hook call that it was handed out in; used in a later one it raises "stale".
#pragma once

#include <array>
#include <luajit-2.1/lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/policy.h"
#include "daemon/policy/limits.h"

namespace heddle::policy {

struct Session;

enum class Kind : uint32_t { kLaunch, kKernel, kClient, kGpu, kBudget, kParams, kMap };
inline constexpr size_t kKinds =
    5;  // with fields of their own; `p` reads a table, a map has methods

struct Object {
  Kind kind = Kind::kGpu;
  bool filled = false;
  Session* session = nullptr;  // of all kinds but kParams
  uint64_t call = 0;           // number of the hook call
};

struct LaunchObject : Object {
  core::LaunchId id = 0;  // 0: it has ended
  size_t place = 0;       // in its ring; its kernel is at the same one
  core::LaunchView view;
};

struct KernelObject : Object {
  LaunchObject* launch = nullptr;  // always the same; its view has the kernel's fields
};

struct ClientObject : Object {
  core::ClientId id = 0;
  core::ClientView view;
};

struct GpuObject : Object {
  core::GpuView view;
};

// g.budget: what is left of each channel.
struct BudgetObject : Object {};

// One field or method of a kind. `push` leaves one value on the stack.
struct Field {
  const char* name;
  void (*push)(lua_State*, Session&, Object&);
  bool is_method = false;  // the same of each object
};

// Finds a field by the address of its interned name: no hashing, no comparison of text.
class FieldTable {
 public:
  // `interned` is what lua_topointer says of the name.
  void add(const void* interned, const Field* field);
  const Field* find(const void* interned) const {
    for (size_t i = slot(interned);; i = (i + 1) % kSlots) {
      if (keys_[i] == interned) return fields_[i];
      if (keys_[i] == nullptr) return nullptr;
    }
  }

 private:
  static constexpr size_t kSlots = 64;
  static size_t slot(const void* p) {
    return (reinterpret_cast<uintptr_t>(p) >> 3) * 0x9e3779b97f4a7c15u >> 58;
  }
  std::array<const void*, kSlots> keys_{};
  std::array<const Field*, kSlots> fields_{};
};

// Userdata and the reference that keeps it.
template <class T>
struct Kept {
  T* object = nullptr;
  int ref = LUA_NOREF;
};

template <class T>
using LaunchRing = std::array<Kept<T>, kLaunchObjects>;

// Methods of the objects: g's, then c's, then kn's.
enum Method : size_t {
  kGapUs,
  kBusy,
  kComparing,
  kRuns,
  kSlowerRuns,
  kClients,
  kLeaseIt,
  kGateIt,
  kLaunchPriorityIs,
  kIdleUs,
  kGapLengthUs,
  kNextClient,  // what g:clients() iterates by
  kSizeFor,
  kResizeIt,
  kKeepTo,
  kStopIt,
  kSliceIt,
  kParkIt,
  kUnparkIt
};
inline constexpr size_t kMethods = kUnparkIt + 1;
lua_CFunction method(size_t method);

// What methods begin with: the object at `index`, of this kind and this hook call, or an error.
Object& check(lua_State* L, int index, Kind kind);
// Raised where an object is used after the hook call that it was handed out in.
int raise_stale(lua_State* L, const Object& object);
core::LaunchView& launch_view(lua_State* L, Session& session, Object& launch_or_kernel);
void push_size(lua_State* L, core::SmCount sm);  // nil for 0

// Of a kind, "k.client" and so on.
std::vector<std::string> field_names(Kind kind);

// Makes the rings and metatables; inside a protected call.
void open_objects(lua_State* L, Session& session);

// The first launch of a hook call never raises.
void push_launch(lua_State* L, Session& session, core::LaunchId id);
void push_ended_launch(lua_State* L, Session& session, const core::LaunchView& view);
// The kernel of a view that is no launch's; the first of a hook call.
void push_kernel(lua_State* L, Session& session, const core::LaunchView& view);
void push_gpu(lua_State* L, Session& session);
// Makes the client's object if there is none; inside a protected call.
void make_client(lua_State* L, Session& session, core::ClientId id);
void push_client(lua_State* L, Session& session, core::ClientId id);  // makes it likewise
void forget_client(lua_State* L, Session& session, core::ClientId id);

// The launch, client at `index` if it is one and of this hook call; else nullptr, or an error for
// which `what` names the place.
LaunchObject* to_launch(lua_State* L, const Session& session, int index);
LaunchObject& check_launch(lua_State* L, Session& session, int index, const char* what);
ClientObject& check_client(lua_State* L, int index, const char* what);

}  // namespace heddle::policy
