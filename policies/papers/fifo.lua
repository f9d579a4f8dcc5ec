-- fifo.lua: whoever asks first is served first, a few launches on the GPU at a time.
--
-- Everybody is gated, so priorities decide nothing. Typical use: equals that shall take turns
-- without one of them filling the GPU's queue. Not for latency-critical work.
queue.create("all")

local total, running = 0, {}                  -- launches in flight: of all, by client
local asked = 0

return policy {
  name = "fifo", api = 1, version = "1.0.1",
  params = {
    depth = { type = "int", min = 1, max = 64, default = 2,
              doc = "launches in flight; two hide the time of asking" },
  },
  hooks = {
    client_init = function(c, p) return GATE end,
    client_active = function(c, p) return GATE end,
    client_idle = function(c, p) return GATE end,
    client_exit = function(c)
      total = total - (running[c.id] or 0)    -- what it had in flight never ends
      running[c.id] = nil
    end,

    enqueue = function(k, p)
      asked = asked + 1                       -- among equal keys shares would count
      return queue.insert("all", k, asked)
    end,

    dispatch = function(g, p)
      if total >= p.depth then return IDLE, "enough in flight" end
      local k = queue.peek("all")
      if not k then return IDLE, "empty" end
      local id = k.client.id
      running[id] = (running[id] or 0) + 1
      total = total + 1
      return RUN, k
    end,

    stopping = function(k, p)
      local id = k.client.id
      if (running[id] or 0) == 0 then return end  -- launched before this policy was live
      running[id] = running[id] - 1
      total = total - 1
    end,
  },
}
