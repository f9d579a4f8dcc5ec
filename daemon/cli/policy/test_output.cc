// What tests and their policies print.
#include <cstdio>

#include "daemon/cli/policy/test_api.h"

namespace heddle::cli {
namespace {

// print(...), as Lua's; tostring is its upvalue.
int print(lua_State* L) {
  TestFile& file = TestFile::of(L);
  file.text.clear();
  for (int i = 1, n = lua_gettop(L); i <= n; ++i) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    const char* text = lua_tostring(L, -1);
    file.text.append(i > 1 ? "\t" : "").append(text != nullptr ? text : "?");
    lua_pop(L, 1);
  }
  file.say(file.text);
  return 0;
}

// trace(fmt, ...), as policies have it; string.format is its upvalue.
int trace(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  TestFile::of(L).say(lua_tostring(L, -1));
  return 0;
}

}  // namespace

void TestFile::say(std::string_view line) {
  if (output.size() < kOutputMax) {
    output.emplace_back(line);
  } else {
    ++unsaid;
  }
}

void TestFile::say_trace(const sim::VirtualMachine& machine, std::string_view line) {
  char at[32];
  std::snprintf(at, sizeof at, "%.1f us: ", static_cast<double>(machine.now()) / 1e3);
  say(std::string(at).append(line));
}

void open_output(lua_State* L) {
  lua_getfield(L, -1, "tostring");
  lua_pushcclosure(L, print, 1);
  lua_setfield(L, -2, "print");
  lua_getfield(L, -1, "string");
  lua_getfield(L, -1, "format");
  lua_remove(L, -2);
  lua_pushcclosure(L, trace, 1);
  lua_setfield(L, -2, "trace");
}

}  // namespace heddle::cli
