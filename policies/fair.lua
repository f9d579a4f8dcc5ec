-- fair.lua: equals share the GPU's time by their weights (`share`), whatever they launch.
--
-- Typical use: tenants of one priority that always have work. They take turns by their shares, or
-- by the part of the GPU that their rules request (lib/turns.lua). A client below the top priority
-- waits while a more important one has work.
local turns = import "lib/turns"

return policy {
  name = "fair", api = 1, version = "1.1.0",
  params = {
    turn_us = { type = "int", min = 100, max = 100000, default = 4000,
                doc = "time-sliced: GPU time of a turn, times the client's share" },
    depth_us = { type = "int", min = 20, max = 100000, default = 1000,
                 doc = "predicted work in flight, if it is more than one launch" },
    slice_us = { type = "int", min = 100, max = 100000, default = 2000,
                 doc = "time-sliced: slice of the least share, others' in proportion" },
    saved_us = { type = "int", min = 0, max = 1000000, default = 10000,
                 doc = "most that a client saves up, times its share, by asking for less" },
    wait_us = { type = "int", min = 0, max = 100000, default = 300,
                doc = "under MPS: longest that a launch waits for whoever has had less" },
  },
  hooks = {
    client_init = function(c, p)
      turns.meet(c)
      c:stop("long")
      return GATE
    end,
    client_active = function(c, p) return GATE end,
    client_idle = function(c, p) return GATE end,
    client_exit = turns.forget,

    enqueue = turns.enqueue,

    dispatch = function(g, p)
      local k = turns.head(p)
      if not k then return IDLE, "empty" end
      if g:busy(k.priority) then return IDLE, "a more important client runs" end
      return turns.go(g, k, p)
    end,
  },
}
