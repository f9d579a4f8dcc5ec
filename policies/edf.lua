-- edf.lua: the client with the nearest deadline goes first; deadlines come from the rules' slo_ms.
--
-- Typical use: services with different objectives that share a GPU, all of them important. A
-- request begins when its client asks after a pause, and is due slo_ms later; all launches of a
-- request have its deadline. A client without an objective has default_ms. Priorities mean nothing.
--
-- A request that is late has missed its objective. From then on it is due after default_ms, so that
-- it delays no request that is still in time; once that deadline is over, too, it counts as a new
-- request. So a client whose slo_ms is shorter than its request takes alone harms only itself.
-- `heddle ps -v` shows slo_ms. Not for more work than the GPU can do: then some requests are late
-- in any order.
queue.create("waiting")

local requests = import "lib/requests"

local max = math.max
local begun = {}                              -- by client: when its request began

return policy {
  name = "edf", api = 1, version = "1.1.0",
  params = {
    depth_us = { type = "int", min = 20, max = 100000, default = 500,
                 doc = "predicted work in flight, if it is more than one launch" },
    pause_us = { type = "int", min = 10, max = 1000000, default = 200,
                 doc = "after so long without a launch the next one is a new request" },
    default_ms = { type = "number", min = 0.1, max = 100000, default = 1000,
                   doc = "deadline of clients whose rule has no slo_ms, and of late requests" },
  },
  hooks = {
    client_init = function(c, p) return GATE end,
    client_active = function(c, p) return GATE end,
    client_idle = function(c, p) return GATE end,
    client_exit = function(c)
      requests.forget(c)
      begun[c.id] = nil
    end,

    enqueue = function(k, p)
      local c = k.client
      local id, now = c.id, now_us() - k.wait_us
      local slo_us = c.slo_ms * 1000
      local late_us = max(slo_us, p.default_ms * 1000)
      local begins = requests.begins(k, p.pause_us)
      if begins or not begun[id] or now > begun[id] + late_us then begun[id] = now end
      local due_us = begun[id] + (now < begun[id] + slo_us and slo_us or late_us)
      return queue.insert("waiting", k, due_us)
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local us = requests.inflight(g)
      if us > 0 and us + k.predicted_us > max(p.depth_us, k.predicted_us) then
        return IDLE, "enough in flight"
      end
      return RUN, k, "its deadline is the nearest"
    end,
  },
}
