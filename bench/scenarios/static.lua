-- static.lua: best effort keeps to its SMs, and nobody waits: what a static setting can do, for
-- promise.toml. Its SMs are the last groups of the GPU; whoever is more important has all.
sm_set.family { sizes = { 1, 2, 4, 6, 8, 10, 12, 14, 15 }, placement = "end" }

local BEST_EFFORT = 6   -- from this priority on
local FIRST, LAST = -5, 0

return policy {
  name = "static", api = 1, version = "1.0.0",
  params = {
    sms = { type = "int", min = 1, max = 1024, default = 32, doc = "SMs of best effort" },
    first = { type = "bool", default = true, doc = "blocks of the others go before its own" },
  },
  hooks = {
    client_init = function(c, p) return LEASE, "on its SMs" end,
    client_active = function(c, p) return LEASE, "on its SMs" end,
    client_idle = function(c, p) return LEASE, "on its SMs" end,

    kernel_init = function(kn, c, p)
      if c.priority < BEST_EFFORT then return nil end
      return p.sms, p.first and LAST or FIRST
    end,
  },
}
