// map.hash, map.lru, map.array, and the methods of what they return.
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <new>

#include "daemon/base/nearest.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

using Form = MapForm;

struct MapObject : Object {
  size_t number = 0;  // in Session::maps
};

MapObject& check_map(lua_State* L) {
  auto* object =
      lua_type(L, 1) == LUA_TUSERDATA ? static_cast<Object*>(lua_touserdata(L, 1)) : nullptr;
  if (object == nullptr || object->kind != Kind::kMap) {
    luaL_error(L, "argument 1 is no map; call its methods with a colon");
  }
  return static_cast<MapObject&>(*object);
}

Map& map_of(lua_State* L) { return Session::of(L).maps.at(check_map(L).number); }

uint64_t array_place(lua_State* L, const Form& form) {
  const double place = luaL_checknumber(L, 2);
  if (!(place >= 1 && place <= form.max) || place != std::floor(place)) {
    luaL_error(L, "this array has the places 1 to %d", static_cast<int>(form.max));
  }
  return static_cast<uint64_t>(place);
}

// The key at index 2, of the map's type.
uint64_t key_of(lua_State* L, const Form& form) {
  if (form.kind == Form::Kind::kArray) return array_place(L, form);
  if (form.key == Form::Key::kClient) return check_client(L, 2, "map").id;
  if (form.key == Form::Key::kString) {
    luaL_checktype(L, 2, LUA_TSTRING);
    size_t bytes = 0;
    const char* text = lua_tolstring(L, 2, &bytes);
    return XXH3_64bits(text, bytes);
  }
  luaL_checktype(L, 2, LUA_TNUMBER);
  const double number = lua_tonumber(L, 2);
  if (std::isnan(number)) luaL_error(L, "map: the key is not a number (NaN)");
  return std::bit_cast<uint64_t>(number + 0.0);  // -0 is 0
}

int get(lua_State* L) {
  Map& map = map_of(L);
  if (const double* value = map.find(key_of(L, map.form()))) {
    lua_pushnumber(L, *value);
  } else {
    lua_pushnil(L);
  }
  return 1;
}

int set(lua_State* L) {
  Map& map = map_of(L);
  lua_pushboolean(L, map.set(key_of(L, map.form()), luaL_checknumber(L, 3)) ? 1 : 0);
  return 1;
}

// m:add(key, by): what is not there counts from 0. nil: full.
int add(lua_State* L) {
  Map& map = map_of(L);
  const uint64_t key = key_of(L, map.form());
  const double* there = map.find(key);
  const double sum = (there != nullptr ? *there : 0) + luaL_checknumber(L, 3);
  if (!map.set(key, sum)) return lua_pushnil(L), 1;
  lua_pushnumber(L, sum);
  return 1;
}

int erase(lua_State* L) {
  Map& map = map_of(L);
  map.erase(key_of(L, map.form()));
  return 0;
}

int len(lua_State* L) {
  const Map& map = map_of(L);
  const bool array = map.form().kind == Form::Kind::kArray;
  lua_pushnumber(L, static_cast<double>(array ? map.form().max : map.size()));
  return 1;
}

// The place of the string `field` of the table at index 2 among `names`, 0 if it is not there.
size_t read_name(lua_State* L, const char* field, std::initializer_list<std::string_view> names) {
  lua_getfield(L, 2, field);
  if (lua_isnil(L, -1)) return lua_pop(L, 1), 0;
  const std::string_view given = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?";
  const auto* found = std::find(names.begin(), names.end(), given);
  if (found == names.end()) {
    std::string& message = Sandbox::of(L).message;
    message.assign("map: ").append(field).append(" is");
    for (const std::string_view name : names) message.append(" \"").append(name).append("\"");
    raise(L);
  }
  lua_pop(L, 1);
  return static_cast<size_t>(found - names.begin());
}

int make_map(lua_State* L, Form::Kind kind) {
  constexpr std::string_view kKeys[] = {"key", "max", "reload"};
  Session& s = Session::of(L);
  if (!s.loading) return luaL_error(L, "a map is made at the top level of the file");
  size_t bytes = 0;
  const char* name = luaL_checklstring(L, 1, &bytes);
  luaL_checktype(L, 2, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, 2) != 0; lua_pop(L, 1)) {
    const char* key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      Sandbox::of(L).message = std::string("map: unknown key '") + key + "'";
      Sandbox::of(L).message += did_you_mean(key, kKeys);
      return raise(L);
    }
  }
  Form form;
  form.kind = kind;
  form.key = static_cast<Form::Key>(read_name(L, "key", {"number", "string", "client"}));
  form.keep = read_name(L, "reload", {"reset", "keep"}) == 1;
  if (kind == Form::Kind::kArray && form.key != Form::Key::kNumber) {
    return luaL_error(L, "map.array: its keys are its places; leave key out");
  }
  lua_getfield(L, 2, "max");
  const double max = lua_tonumber(L, -1);
  if (!(max >= 1 && max + s.maps.entries() <= kMapEntriesMax) || max != std::floor(max)) {
    return luaL_error(L, "map: max is from 1; the maps of a policy have %d entries at most",
                      static_cast<int>(kMapEntriesMax));
  }
  form.max = static_cast<uint32_t>(max);
  if (s.maps.all().size() >= kMapsMax || bytes == 0 || bytes > kNameBytes) {
    return luaL_error(L, "a policy has at most %d maps, with names of 1 to %d characters",
                      static_cast<int>(kMapsMax), static_cast<int>(kNameBytes));
  }
  auto* object = new (lua_newuserdata(L, sizeof(MapObject))) MapObject();
  object->kind = Kind::kMap;
  object->session = &s;
  const int number = s.maps.add({name, bytes}, form);
  if (number < 0) return luaL_error(L, "map '%s' is made twice", name);
  object->number = static_cast<size_t>(number);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_setmetatable(L, -2);
  return 1;
}

int hash(lua_State* L) { return make_map(L, Form::Kind::kHash); }
int lru(lua_State* L) { return make_map(L, Form::Kind::kLru); }
int array(lua_State* L) { return make_map(L, Form::Kind::kArray); }

int on_newindex(lua_State* L) {
  return luaL_error(L, "a map has methods alone; write m:set(key, number)");
}

constexpr luaL_Reg kMapMethods[] = {
    {"get", get}, {"set", set}, {"add", add}, {"erase", erase}, {"len", len}};

}  // namespace

std::span<const luaL_Reg> map_methods() { return kMapMethods; }

void open_maps(lua_State* L) {
  lua_createtable(L, 0, 3);
  lua_createtable(L, 0, 2);
  lua_createtable(L, 0, static_cast<int>(std::size(kMapMethods)));
  for (const luaL_Reg& method : kMapMethods) {
    lua_pushcfunction(L, method.func);
    lua_setfield(L, -2, method.name);
  }
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, on_newindex);
  lua_setfield(L, -2, "__newindex");
  for (const luaL_Reg& f : {luaL_Reg{"hash", hash}, {"lru", lru}, {"array", array}}) {
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, f.func, 1);
    lua_setfield(L, -3, f.name);
  }
  lua_pop(L, 1);
}

}  // namespace heddle::policy
