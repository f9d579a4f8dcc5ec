#include "daemon/policy/sandbox.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "daemon/base/nearest.h"
#include "daemon/policy/linter.h"

namespace heddle::policy {
namespace {

// Longer text in a builtin that is not linear, or that multiplies.
constexpr size_t kFindBytes = 4096, kNeedleBytes = 64, kRepeatBytes = 65536, kFormatBytes = 256;
constexpr size_t kListMax = 1024;

constexpr const char* kBase[] = {"assert", "error", "ipairs",   "next",     "pairs",
                                 "select", "type",  "tonumber", "tostring", "unpack"};
constexpr const char* kMath[] = {"abs", "ceil", "floor", "max",  "min",  "huge", "sqrt",
                                 "log", "exp",  "pow",   "fmod", "modf", "pi"};
constexpr const char* kString[] = {"byte",  "char",    "len", "lower",
                                   "upper", "reverse", "sub", "format"};
constexpr const char* kTable[] = {"insert", "remove", "concat", "sort"};
// Left out on purpose or not built yet; naming one is a load error that says so.
constexpr const char* kAbsent[][2] = {
    {"partition", "this build hands out no SM groups; return RUN, k, sm"},
    {"pcall", "an error ends the hook, and the built-in decides"},
    {"xpcall", "an error ends the hook, and the built-in decides"},
    {"coroutine", "policies have no coroutines"},
    {"require", "use import \"lib/name\""},
    {"print", "use trace(fmt, ...)"},
};

int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

int64_t cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// The bounded builtins call the original, their first upvalue.
int call_original(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int bounded_rep(lua_State* L) {
  size_t bytes = 0;
  luaL_checklstring(L, 1, &bytes);
  const double count = luaL_checknumber(L, 2);
  size_t separator = 0;
  luaL_optlstring(L, 3, "", &separator);
  if (count * static_cast<double>(bytes + separator) > static_cast<double>(kRepeatBytes)) {
    return luaL_error(L, "string.rep: more than 64 KiB");
  }
  return call_original(L);
}

int bounded_format(lua_State* L) {
  size_t bytes = 0;
  luaL_checklstring(L, 1, &bytes);
  if (bytes > kFormatBytes) return luaL_error(L, "string.format: the format has over 256 bytes");
  return call_original(L);
}

int bounded_list(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (lua_objlen(L, 1) > kListMax) return luaL_error(L, "the list has over 1024 entries");
  return call_original(L);
}

// It compares in one instruction what may take seconds, so that it is charged beforehand for all
// that it may do: about one instruction's time for eight bytes of a comparison.
int charged_sort(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const size_t count = lua_objlen(L, 1);
  size_t longest = 0, bytes = 0;
  for (size_t i = 1; i <= count && i <= kListMax; ++i, lua_pop(L, 1)) {
    lua_rawgeti(L, 1, static_cast<int>(i));
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    lua_tolstring(L, -1, &bytes);
    longest = std::max(longest, bytes);
  }
  const auto rounds = static_cast<size_t>(std::bit_width(count));
  if (count <= kListMax) Sandbox::charge(L, count * rounds * (4 + longest / 8));
  return bounded_list(L);
}

// Plain text only: a pattern can run for minutes on a few kilobytes.
int plain_find(lua_State* L) {
  size_t bytes = 0, needle = 0;
  luaL_checklstring(L, 1, &bytes);
  luaL_checklstring(L, 2, &needle);
  if (bytes > kFindBytes || needle > kNeedleBytes) {
    return luaL_error(L, "string.find: text over 4096 or needle over 64 bytes");
  }
  lua_settop(L, 3);
  if (lua_isnil(L, 3)) {
    lua_pushinteger(L, 1);
    lua_replace(L, 3);
  }
  lua_pushboolean(L, 1);
  return call_original(L);
}

// Moves `names` of the library on top of the stack into a new table that takes its place.
template <size_t N>
void allow(lua_State* L, const char* const (&names)[N]) {
  lua_createtable(L, 0, N);
  for (const char* name : names) {
    lua_getfield(L, -2, name);
    lua_setfield(L, -2, name);
  }
  lua_remove(L, -2);
}

// Puts `bounded` around the function `name` of the table on top of the stack.
void bound(lua_State* L, const char* name, lua_CFunction bounded) {
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, bounded, 1);
  lua_setfield(L, -2, name);
}

void open(lua_State* L, const char* name, lua_CFunction library) {
  lua_pushcfunction(L, library);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

// Sets string's table, here and as what ("x"):rep(3) finds.
void open_string(lua_State* L, int globals) {
  lua_getglobal(L, "string");
  lua_getfield(L, -1, "find");
  lua_getfield(L, -2, "rep");
  lua_remove(L, -3);
  lua_getglobal(L, "string");
  allow(L, kString);
  bound(L, "format", bounded_format);
  lua_insert(L, -3);
  lua_pushcclosure(L, bounded_rep, 1);
  lua_setfield(L, -3, "rep");
  lua_pushcclosure(L, plain_find, 1);
  lua_setfield(L, -2, "find");
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 2);
  lua_setfield(L, globals, "string");
}

}  // namespace

bool has_place(std::string_view message) {
  const size_t colon = message.find(':');
  if (colon == message.npos) return false;
  const size_t end = message.find_first_not_of("0123456789", colon + 1);
  return end != message.npos && end > colon + 1 && message[end] == ':';
}

int raise(lua_State* L) { return luaL_error(L, "%s", Sandbox::of(L).message.c_str()); }

Sandbox::Sandbox(const Limits& limits) : limits_(limits) {
  lua_ = lua_newstate(allocate, this);
  if (lua_ == nullptr) return;
  lua_atpanic(lua_, [](lua_State*) -> int { std::abort(); });
  // A state that cannot hold the libraries is none.
  if (lua_cpcall(lua_, setup, this) != 0) {
    lua_close(lua_);
    lua_ = nullptr;
    return;
  }
  luaJIT_setmode(lua_, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  lua_pushcfunction(lua_, on_error);  // at index 1, for ever
  lua_sethook(lua_, on_count, LUA_MASKCOUNT, kFuelStep);
}

Sandbox::~Sandbox() {
  if (lua_ != nullptr) lua_close(lua_);
}

void* Sandbox::allocate(void* self, void* block, size_t old_size, size_t new_size) {
  Sandbox& s = *static_cast<Sandbox*>(self);
  if (new_size == 0) {
    s.used_ -= old_size;
    std::free(block);
    return nullptr;
  }
  const bool grows = new_size > old_size;
  if (grows && !s.in_collector_ &&
      (new_size > s.limits_.block_bytes ||
       s.used_ - old_size + new_size > s.limits_.memory_bytes)) {
    s.note_place();
    return nullptr;
  }
  void* moved = std::realloc(block, new_size);
  if (moved != nullptr) s.used_ += new_size - old_size;
  return moved;
}

// Level 0 is where it stopped: neither the allocator nor a debug hook has a frame of its own.
void Sandbox::note_place() {
  lua_Debug at{};
  for (int level = 0; lua_ != nullptr && lua_getstack(lua_, level, &at) != 0; ++level) {
    lua_getinfo(lua_, "Sl", &at);
    if (at.currentline <= 0) continue;  // a builtin, in C or in Lua: its caller is the place
    std::snprintf(stopped_at_, sizeof stopped_at_, "%s:%d: ", at.short_src, at.currentline);
    return;
  }
  stopped_at_[0] = '\0';
}

int Sandbox::setup(lua_State* L) {
  Sandbox& s = *static_cast<Sandbox*>(lua_touserdata(L, 1));
  open(L, "", luaopen_base);
  open(L, LUA_MATHLIBNAME, luaopen_math);
  open(L, LUA_STRLIBNAME, luaopen_string);
  open(L, LUA_TABLIBNAME, luaopen_table);
  open(L, LUA_BITLIBNAME, luaopen_bit);
  open(L, LUA_JITLIBNAME, luaopen_jit);

  // The linter sees jit.util; policies do not.
  if (luaL_loadbufferx(L, kLinterSource, sizeof kLinterSource - 1, "=linter", "t") != 0) {
    return lua_error(L);
  }
  lua_getfield(L, LUA_REGISTRYINDEX, "_PRELOAD");
  lua_getfield(L, -1, "jit.util");
  lua_remove(L, -2);
  lua_call(L, 0, 1);
  for (const char* name : {"funcinfo", "funcbc", "funck"}) {
    lua_getfield(L, 3, name);
  }
  lua_remove(L, 3);
  // A function of the policy, or a table of them, that another of its functions uses; else nil.
  lua_pushcfunction(L, [](lua_State* state) -> int {
    if (lua_getupvalue(state, 1, static_cast<int>(lua_tointeger(state, 2))) == nullptr) return 0;
    return lua_istable(state, -1) || lua_isfunction(state, -1) ? 1 : 0;
  });
  lua_call(L, 4, 4);
  lua_createtable(L, 4, 0);
  lua_insert(L, 2);
  lua_rawseti(L, 2, 4);
  lua_rawseti(L, 2, 3);
  lua_rawseti(L, 2, 2);
  lua_rawseti(L, 2, 1);
  s.linter_ref_ = luaL_ref(L, LUA_REGISTRYINDEX);

  lua_pushvalue(L, LUA_GLOBALSINDEX);
  allow(L, kBase);
  const int globals = lua_gettop(L);
  lua_getglobal(L, "math");
  allow(L, kMath);
  lua_setfield(L, globals, "math");
  lua_getglobal(L, "table");
  allow(L, kTable);
  bound(L, "concat", bounded_list);
  bound(L, "sort", charged_sort);
  lua_setfield(L, globals, "table");
  lua_getglobal(L, "bit");
  lua_setfield(L, globals, "bit");
  open_string(L, globals);
  lua_pushvalue(L, globals);
  s.globals_ref_ = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_replace(L, LUA_GLOBALSINDEX);
  // Nothing that was opened above stays in reach.
  for (const char* table : {"_LOADED", "_PRELOAD"}) {
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, table);
  }
  return 0;
}

void Sandbox::on_count(lua_State* L, lua_Debug*) {
  Sandbox& s = of(L);
  // Of many short calls one ends the step that those before it began: it looks at no clock.
  const bool first = std::exchange(s.spent_, s.spent_ + kFuelStep) == 0;
  const int64_t now = first ? 0 : cpu_ns();
  if (s.cpu_start_ns_ == 0) s.cpu_start_ns_ = now;
  const bool slow =
      static_cast<double>(now - s.cpu_start_ns_) > s.limits_.cpu_ms * 1e6 && s.fuel_ > 0;
  if (!s.tripped_ && s.spent_ <= s.fuel_ && !slow) return;
  s.out_of_fuel(L);
}

void Sandbox::charge(lua_State* L, size_t instructions) {
  Sandbox& s = of(L);
  s.spent_ += instructions;
  if (s.spent_ > s.fuel_) s.out_of_fuel(L);
}

void Sandbox::out_of_fuel(lua_State* L) {
  Sandbox& s = *this;
  if (!s.tripped_) {
    s.tripped_ = true;
    // Sticky: raised again at every instruction until the call has ended.
    lua_sethook(L, on_count, LUA_MASKCOUNT, 1);
  }
  s.note_place();
  lua_pushfstring(L, "%sout of fuel; bound the loop, a hook has %d instructions", s.stopped_at_,
                  static_cast<int>(s.fuel_));
  lua_error(L);
}

int Sandbox::on_error(lua_State* L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_settop(L, 0);
    lua_pushliteral(L, "an error without text; call error(\"...\")");
  }
  luaL_traceback(L, L, nullptr, 1);
  Sandbox& s = of(L);
  size_t bytes = 0;
  const char* text = lua_tolstring(L, 2, &bytes);
  s.traceback_.assign(text, bytes);
  lua_settop(L, 1);
  text = lua_tolstring(L, 1, &bytes);
  if (has_place({text, bytes})) return 1;
  // Raised by a builtin that another one called, or in a tail call.
  s.note_place();
  lua_pushstring(L, s.stopped_at_);
  lua_insert(L, 1);
  lua_concat(L, 2);
  return 1;
}

Sandbox::Stop Sandbox::fail_with(int status) {
  size_t bytes = 0;
  const bool text = lua_type(lua_, -1) == LUA_TSTRING;
  const char* what = text ? lua_tolstring(lua_, -1, &bytes) : nullptr;
  error_.assign(what != nullptr ? what : "an error without text", what != nullptr ? bytes : 21);
  if (error_.size() > kErrorBytes) error_.replace(kErrorBytes, error_.npos, "...");
  if (status == LUA_ERRMEM && !tripped_) {
    error_ = stopped_at_;
    error_ += "out of memory; a policy has " + std::to_string(limits_.memory_bytes >> 20) +
              " MiB, a string or table " + std::to_string(limits_.block_bytes >> 10) + " KiB";
    traceback_.clear();  // nobody could make one
  }
  lua_pop(lua_, 1);
  return tripped_ ? Stop::kFuel : status == LUA_ERRMEM ? Stop::kMemory : Stop::kError;
}

Sandbox::Stop Sandbox::call(int args, int results, uint32_t fuel) {
  fuel_ = fuel;
  spent_ = 0;
  cpu_start_ns_ = 0;
  tripped_ = false;
  if (cpu_seen_ns_ == 0) cpu_seen_ns_ = cpu_ns();
  const int64_t start = clock_ns(CLOCK_MONOTONIC_COARSE);  // a quarter of what the other costs
  const int status = lua_pcall(lua_, args, results, 1);
  took_ms_ = static_cast<double>(clock_ns(CLOCK_MONOTONIC_COARSE) - start) / 1e6;
  // Not what other processes took of it: no more than the thread burned since it was last seen.
  if (took_ms_ > limits_.call_ms) {
    took_ms_ = std::min(took_ms_, static_cast<double>(cpu_ns() - cpu_seen_ns_) / 1e6);
  }
  if (tripped_) lua_sethook(lua_, on_count, LUA_MASKCOUNT, kFuelStep);
  return status == 0 ? Stop::kNone : fail_with(status);
}

Sandbox::Stop Sandbox::run(lua_CFunction function, void* argument) {
  fuel_ = limits_.load_fuel;
  spent_ = 0;
  took_ms_ = 0;
  cpu_start_ns_ = 0;
  tripped_ = false;
  traceback_.clear();
  const int status = lua_cpcall(lua_, function, argument);
  if (tripped_) lua_sethook(lua_, on_count, LUA_MASKCOUNT, kFuelStep);
  return status == 0 ? Stop::kNone : fail_with(status);
}

void Sandbox::push_globals(lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, of(L).globals_ref_); }

void Sandbox::compile(lua_State* L, std::string_view source, const char* chunk) {
  lua_pushfstring(L, "=%s", chunk);
  const int name = lua_gettop(L);
  if (luaL_loadbufferx(L, source.data(), source.size(), lua_tostring(L, name), "t") != 0) {
    lua_error(L);
  }
  lua_remove(L, name);
  push_globals(L);
  lua_setfenv(L, -2);
  lint(L, chunk);
}

void Sandbox::push_linter(lua_State* L, int index) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, of(L).linter_ref_);
  lua_rawgeti(L, -1, index);
  lua_remove(L, -2);
}

void Sandbox::lint(lua_State* L, const char* chunk) {
  const int function = lua_gettop(L);
  push_linter(L, 1);
  lua_pushvalue(L, function);
  push_globals(L);
  lua_createtable(L, 0, 8);
  for (const auto& entry : kAbsent) {
    lua_pushstring(L, entry[1]);
    lua_setfield(L, -2, entry[0]);
  }
  const int absent = lua_gettop(L);
  lua_pushvalue(L, absent);
  lua_insert(L, function + 1);
  lua_call(L, 3, 3);
  if (lua_isnil(L, -3)) {
    lua_settop(L, function);
    return;
  }
  const std::string_view name = lua_tostring(L, -3);
  const std::string_view kind = lua_tostring(L, -1);
  std::string& text = of(L).message;
  text.assign(chunk).append(":").append(lua_tostring(L, -2)).append(": ");
  if (kind == "write") {
    text.append("assignment to global '").append(name).append("'; write local ").append(name);
  } else if (kind == "absent") {
    lua_getfield(L, function + 1, name.data());
    text.append(name).append(": ").append(lua_tostring(L, -1));
  } else {
    push_globals(L);
    text.append("unknown global '").append(name).append("'");
    append_keys_near(L, name, text);
  }
  lua_pushlstring(L, text.data(), text.size());
  lua_error(L);
}

// Appends the hint for `name` among the keys of the table on top of the stack.
void Sandbox::append_keys_near(lua_State* L, std::string_view name, std::string& text) {
  std::vector<std::string_view> known;
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) known.emplace_back(lua_tostring(L, -2));
  std::sort(known.begin(), known.end());
  text += did_you_mean(name, known);
}

bool Sandbox::returns_value(lua_State* L) {
  push_linter(L, 2);
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  const bool returns = lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  return returns;
}

void Sandbox::find_costs(lua_State* L, std::vector<Cost>& found) {
  push_linter(L, 3);
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  const int list = lua_gettop(L);
  for (int i = 1; i + 1 <= static_cast<int>(lua_objlen(L, list)); i += 2) {
    lua_rawgeti(L, list, i);
    lua_rawgeti(L, list, i + 1);
    found.push_back({static_cast<int>(lua_tointeger(L, -2)), lua_tostring(L, -1)});
    lua_pop(L, 2);
  }
  lua_pop(L, 1);
}

// The collector rests while a hook runs. Between calls it finishes a cycle in small steps once the
// heap has grown by a quarter.
void Sandbox::collect() {
  cpu_seen_ns_ = cpu_ns();
  if (!collecting_ && used_ < used_after_collection_ + used_after_collection_ / 4 + 32768) return;
  // It allocates to shrink LuaJIT's own tables, also when the heap is full: the cap is not for it,
  // and without memory at all it ends this step, not the process.
  in_collector_ = true;
  const auto step = [](lua_State* L) -> int {
    if (lua_gc(L, LUA_GCSTEP, 16) != 0) of(L).collecting_ = false;
    return 0;
  };
  collecting_ = true;
  if (lua_cpcall(lua_, step, nullptr) != 0) lua_pop(lua_, 1);
  lua_gc(lua_, LUA_GCSTOP, 0);
  in_collector_ = false;
  if (!collecting_) used_after_collection_ = used_;
}

}  // namespace heddle::policy
