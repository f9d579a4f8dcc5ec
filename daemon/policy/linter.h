// The load-time linter: looks at the bytecode of a function that was not run yet. Opcodes differ
// between LuaJIT versions, so it learns those that it needs from functions of its own.
#pragma once

namespace heddle::policy {

// Arguments: jit.util's funcinfo, funcbc and funck. Returns two functions:
//   globals(f, known, absent) -> nil, or name, line, "write" | "unknown" | "absent"
//   returns(f) -> whether f, not the functions in it, ever returns a value
//   costs(f) -> { line, what, line, what ... } of what a function that is called for each launch
//   had
//     better not do: "table", "string", "function" (made anew each time), "loop" (no bound is seen)
inline constexpr char kLinterSource[] = R"(
local info, code, constant = ...
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
      local name = constant(f, -(math.floor(ins / 65536) % 65536) - 1)
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
return globals, returns, costs
)";

}  // namespace heddle::policy
