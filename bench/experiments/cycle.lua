-- Every launch another size: for tests of what a program computes, not for use.
-- leased = 1: nobody asks, and the sizes of all kernels change every 10 ms.
-- leased = 0: every launch asks, and gets the next size.
sm_set.family { placement = "ring" }
queue.create("asking")

local SIZES = { 8, 64, 16, 96, 32, 24, 48, 0 }
local turn, ticks = 0, 0

local function next_size()
  turn = turn % #SIZES + 1
  local sm = SIZES[turn]
  if sm ~= 0 then return sm end
end

return policy {
  name = "cycle", api = 1, version = "1.0.0",
  params = { leased = { type = "bool", default = true, doc = "nobody asks" } },
  hooks = {
    client_init = function(c, p) if p.leased then return LEASE end return GATE end,
    client_active = function(c, p) if p.leased then return LEASE end return GATE end,
    client_idle = function(c, p) if p.leased then return LEASE end return GATE end,
    kernel_init = function(kn, c, p)
      if not p.leased then return nil end
      return next_size()
    end,
    tick = function(g, p)
      ticks = ticks + 1
      if not p.leased or ticks % 10 ~= 0 then return end
      for c in g:clients() do c:resize() end
    end,
    enqueue = function(k, p) return queue.insert("asking", k, 0) end,
    dispatch = function(g, p)
      local k = queue.peek("asking")
      if not k then return IDLE, "nobody asks" end
      return RUN, k, next_size()
    end,
  },
}
