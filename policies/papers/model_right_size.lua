-- model_right_size.lua: each program gets one size, the least on which it is as fast as on all SMs.
--
-- Typical use: the baseline of comparisons (KRISP section 5: "Model Right-Size"). The size is the
-- knee of the whole program: of its kernels' curves, each times how often it was launched. That is
-- counted anew as often as the program has run twice as long. Programs overlap where they do not
-- fit side by side. Without curves (`heddle profile sweep`) a program keeps all SMs.
sm_set.family { placement = "ring" }

local sizes = { 1, 2, 4, 8, 12 }  -- groups
local COUNT_US = 100000  -- launches are counted first after so long
local programs = {}  -- by client: time on each size and on all, and the size that follows from it

-- How long the kernel takes on each size; nil without a curve. On one that was not measured it
-- takes as long as on the next smaller one. Below the smallest its time grows as SMs shrink. A
-- smaller one that was faster was mismeasured.
local function curve_of(kn, all_us)
  local us, smaller = {}, nil
  for i = 1, #sizes do
    smaller = kn["us_on_" .. sizes[i]] or smaller
    us[i] = smaller
  end
  if not smaller then return nil end
  local least = all_us
  for i = #sizes, 1, -1 do
    least = math.max(least, us[i] or least * sizes[i + 1] / sizes[i])
    us[i] = least
  end
  return us
end

-- The kernel's part of that is its curve times its launches; one without a curve is alike on all
-- sizes. What it counted for before is taken back.
local function count(program, kn)
  local part = program.parts[kn.id] or { 0, 0, 0, 0, 0, all = 0 }
  program.parts[kn.id] = part
  local launches, all_us = math.max(1, kn.launches), kn.us_on_all or kn.mean_us
  local curve = curve_of(kn, all_us)
  program.measured = program.measured or curve ~= nil
  for i = 1, #sizes do
    program[i] = program[i] - part[i]
    part[i] = launches * (curve and curve[i] or all_us)
    program[i] = program[i] + part[i]
  end
  program.all = program.all - part.all + launches * all_us
  part.all = launches * all_us
end

local function knee(program, slack, sm_per_group)
  if not program.measured then return nil end
  for i = 1, #sizes do
    if program[i] <= program.all * slack then return sizes[i] * sm_per_group end
  end
  return nil
end

return policy {
  name = "model_right_size", api = 1, version = "1.0.0",
  params = {
    slack_pct = { type = "number", min = 0, max = 100, default = 5,
                  doc = "a program may take so much longer than on all SMs" },
    sms = { type = "int", min = 0, max = 256, default = 0,
            doc = "every program gets so many SMs; 0: its own size" },
    group_sms = { type = "int", min = 2, max = 32, default = 8, doc = "SMs of a group" },
  },
  hooks = {
    client_init = function(c, p)
      programs[c.id] = { 0, 0, 0, 0, 0, all = 0, parts = {}, since_us = now_us(),
                         count_us = now_us() + COUNT_US }
      return LEASE, "on its program's size"
    end,
    client_active = function(c, p) return LEASE, "on its program's size" end,
    client_idle = function(c, p) return LEASE, "on its program's size" end,
    client_exit = function(c) programs[c.id] = nil end,

    kernel_init = function(kn, c, p)
      if p.sms > 0 then return p.sms end
      local program = programs[c.id]
      if not program then return nil end
      count(program, kn)
      local size = knee(program, 1 + p.slack_pct / 100, p.group_sms)
      if size ~= program.size then
        program.size = size
        c:resize()  -- the kernels before this one have another size
      end
      return program.size
    end,

    tick = function(g, p)
      if p.sms > 0 then return end
      local now = now_us()
      for c in g:clients() do
        local program = programs[c.id]
        if program and now >= program.count_us then
          program.count_us = now + (now - program.since_us)
          c:resize()
        end
      end
    end,
  },
}
