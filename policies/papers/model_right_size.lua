-- model_right_size.lua: each program gets one size, the least on which it is as fast as on all SMs.
--
-- Typical use: the baseline of comparisons (KRISP section 5: "Model Right-Size"). The size is the
-- knee of the whole program: of its kernels' curves, each times how often it was launched. Programs
-- overlap where they do not fit side by side. Without curves (`heddle profile sweep`) a program
-- keeps all SMs.
sm_set.family { placement = "ring" }

local sizes = { 1, 2, 4, 8, 12 }
local programs = {}  -- by client: time on each size and on all, and the size that follows from it

-- Adds the kernel's curve; a kernel without one counts as alike on all sizes.
local function add(program, kn)
  local weight = math.max(1, kn.launches)
  local all = kn.us_on_all or kn.mean_us
  program.all = program.all + weight * all
  for i = 1, #sizes do
    local us = kn["us_on_" .. sizes[i]] or all
    program[i] = program[i] + weight * us
    if kn["us_on_" .. sizes[i]] then program.measured = true end
  end
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
      programs[c.id] = { 0, 0, 0, 0, 0, all = 0, kernels = 0 }
      return LEASE, "on its program's size"
    end,
    client_active = function(c, p) return LEASE, "on its program's size" end,
    client_idle = function(c, p) return LEASE, "on its program's size" end,
    client_exit = function(c) programs[c.id] = nil end,

    kernel_init = function(kn, c, p)
      if p.sms > 0 then return p.sms end
      local program = programs[c.id]
      if not program then return nil end
      if not program[kn.id] then
        program[kn.id] = true
        add(program, kn)
        local size = knee(program, 1 + p.slack_pct / 100, p.group_sms)
        if size ~= program.size then
          program.size = size
          c:resize()  -- the kernels before this one have another size
        end
      end
      return program.size
    end,
  },
}
