// The load-time linter: looks at the bytecode of a function that was not run yet. Opcodes differ
// between LuaJIT versions, so it learns those that it needs from functions of its own.
#pragma once

namespace heddle::policy {

// Arguments: jit.util's funcinfo, funcbc and funck. Returns four functions:
//   globals(f, known, absent) -> nil, or name, line, "write" | "unknown" | "absent"
//   returns(f) -> whether f, not the functions in it, ever returns a value
//   costs(f) -> { line, what, line, what ... } of what a function that is called for each launch
//   had
//     better not do: "table", "string", "function" (made anew each time), "loop" (no bound is seen)
//   fields(f, slots, kinds) -> { line, kind, field, source ... } of fields that their object does
//     not have. slots: the kinds of f's parameters, by slot. kinds[kind][field] is the kind of what
//     is read, "" if it is none of these; "=call" is what a call gives, "*" stands for fields that
//     need not be known. A slot has a kind where every way forward to there gives it the same.
//     Functions of the policy or of its imports that f calls are looked at with what it gives them.
inline constexpr char kLinterSource[] = R"(
local info, code, constant, upvalue = ...
local floor, pairs = math.floor, pairs
local function op(f, pc)
  local ins = code(f, pc)
  return ins and ins % 256, ins
end
local function last(f)
  local pc = 1
  while op(f, pc + 1) do pc = pc + 1 end
  return (op(f, pc))
end
local READ = op(function() return PROBE end, 1)
local WRITE = op(function(a) PROBE = a end, 1)
local RETURNS = {
  [last(function(a) return a end)] = true, [last(function(a, b) return a, b end)] = true,
  [last(function(...) return ... end)] = true, [last(function(f) return f() end)] = true,
  [last(function(f, ...) return f(...) end)] = true,
}
local function globals(f, known, absent)
  local pc = 1
  while true do
    local o, ins = op(f, pc)
    if not o then break end
    if o == READ or o == WRITE then
      local name = constant(f, -(floor(ins / 65536) % 65536) - 1)
      local line = info(f, pc).currentline
      if o == WRITE then return name, line, "write" end
      if known[name] == nil then return name, line, absent[name] and "absent" or "unknown" end
    end
    pc = pc + 1
  end
  for n = -1, -65536, -1 do
    local k = constant(f, n)
    if k == nil then break end
    if type(k) == "proto" then
      local name, line, kind = globals(k, known, absent)
      if name then return name, line, kind end
    end
  end
end
local function returns(f)
  local pc = 1
  while true do
    local o = op(f, pc)
    if not o then return false end
    if RETURNS[o] then return true end
    pc = pc + 1
  end
end
local function first(f, skipped)
  return (op(f, 1 + (skipped or 0)))
end
local COSTS = {
  [first(function() return {} end)] = "table", [first(function() return { 1 } end)] = "table",
  [first(function() return function() end end)] = "function",
  [first(function(a, b) return a .. b end, 2)] = "string",  -- behind two moves
  [first(function() repeat PROBE() until PROBE end)] = "loop",
}
local function costs(f)
  local found, pc = {}, 1
  while true do
    local o = op(f, pc)
    if not o then return found end
    if COSTS[o] then
      found[#found + 1] = info(f, pc).currentline
      found[#found + 1] = COSTS[o]
    end
    pc = pc + 1
  end
end
local MOVE = first(function(a) local b = a return b end)
local JUMP = op(function() if PROBE then PROBE() end end, 3)
local CALL = op(function(f) f() return f end, 2)
local FIELD = first(function(a) return a.b end)
local UPVALUE = first(function() return op end)
local TAIL = last(function(f) return f() end)
local function argument(f, a) f(a) end
local FIRST_ARGUMENT = floor(code(argument, 2) / 256) % 256 - floor(code(argument, 1) / 256) % 256
local WRITES, WRITES_FROM, JUMPS = 1, 2, 13  -- modes of operands, as in lj_bc.h
local function operands(f, pc)
  local ins, mode = code(f, pc)
  if not ins then return end
  return ins % 256, floor(ins / 256) % 256, floor(ins / 65536) % 65536,
         floor(ins / 16777216) % 256, floor(ins / 65536) % 256,
         mode % 8, floor(mode / 128) % 16
end
-- What each turn of a `for ... in` gives, if the jump leads to the call at its end; and its slot.
local function turn(f, slots, kinds, target)
  local _, a, _, _, _, from = operands(f, target)
  local o, _, _, _, _, loop, jumps = operands(f, target + 1)
  if not o or from ~= WRITES_FROM or loop ~= WRITES_FROM or jumps ~= JUMPS then return end
  local list = kinds[slots[a - 3]]
  return list and list["=call"], a
end
local function without(slots, from)
  local left = {}
  for slot, kind in pairs(slots) do
    if slot < from then left[slot] = kind end
  end
  return left
end
local function meet(there, slots)
  if not there then return without(slots, 256) end
  for slot, kind in pairs(there) do
    if slots[slot] ~= kind then there[slot] = nil end
  end
  return there
end
local fields
-- What is wrong in the function that is called with `count` arguments behind the slot `a`, once for
-- arguments of the same kinds.
local function called(slots, a, count, kinds, found, seen)
  local f, given, key = slots[a], {}, ""
  if type(f) ~= "function" or not info(f).params then return end
  for i = 0, math.min(count, info(f).params) - 1 do
    local kind = slots[a + FIRST_ARGUMENT + i]
    given[i] = kind
    key = key .. (type(kind) == "string" and kind or "") .. ","
  end
  seen[f] = seen[f] or {}
  if seen[f][key] then return end
  seen[f][key] = true
  fields(f, given, kinds, found, seen)
end
function fields(f, slots, kinds, found, seen)
  found, seen = found or {}, seen or {}
  local at, pc, compared = {}, 1, false
  while true do
    local o, a, d, b, c, writes, jumps = operands(f, pc)
    if not o then return found end
    if at[pc] then slots = slots and meet(at[pc], slots) or at[pc] end
    slots = slots or {}
    local made
    if o == READ then
      made = constant(f, -d - 1) == "queue" and "queue" or nil
    elseif o == MOVE then
      made = slots[d]
    elseif o == UPVALUE then
      made = upvalue(f, d + 1)
    elseif o == TAIL then
      called(slots, a, d - 1, kinds, found, seen)
    elseif o == CALL then
      called(slots, a, c - 1, kinds, found, seen)
      made = (kinds[slots[a]] or {})["=call"]
    elseif o == FIELD and type(slots[b]) == "table" then
      made = rawget(slots[b], constant(f, -c - 1))
    elseif o == FIELD and kinds[slots[b]] then
      local kind, name = kinds[slots[b]], constant(f, -c - 1)
      made = kind[name]
      if not made and not kind["*"] then
        local n = #found
        found[n + 1], found[n + 2] = info(f, pc).currentline, slots[b]
        found[n + 3], found[n + 4] = name, info(f).source
      end
    end
    if writes == WRITES_FROM then slots = without(slots, a) end
    if writes == WRITES or o == CALL then slots[a] = made end
    local target = pc + 1 + d - 32768
    if jumps == JUMPS and target > pc then
      at[target] = meet(at[target], slots)
      if o == JUMP and not compared then
        local each, slot = turn(f, slots, kinds, target)
        if each then slots[slot] = each else slots = nil end
      end
    end
    compared = o < MOVE
    pc = pc + 1
  end
end
return globals, returns, costs, fields
)";

}  // namespace heddle::policy
