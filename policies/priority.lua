-- priority.lua: strict priorities, Q0 (highest) to Q9 (lowest).
--
-- A launch runs when no more important client has work outstanding, the most important one first.
-- Gaps are filled whatever their length, so each may delay the important client by the work in
-- flight; gapfill.lua looks at the length first. Launches held on the device go on until a client
-- above works, and delay it by one unit at most. Longer launches are stopped while they run, if
-- that is possible (time-sliced).
queue.create("waiting")

local above = import "lib/above"

return policy {
  name = "priority", api = 1, version = "1.0.0",
  params = {
    inflight_us = { type = "int", min = 20, max = 100000, default = 500,
                    doc = "most predicted work below the top in flight that nothing stops" },
    stop = { type = "string", default = "long",
             doc = "time-sliced: what runs is stopped for those above: never, long, always" },
  },
  hooks = {
    client_init = function(c, p) c:stop(p.stop) end,

    enqueue = function(k, p)
      return queue.insert("waiting", k, k.priority)    -- Q0 is served first
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      if g:busy(k.priority) then return IDLE, "a more important client runs" end
      local us, inflight, most = k.predicted_us, g.inflight_us, p.inflight_us
      if inflight > 0 and inflight + us > most and not above.stops_with(k, p.stop, inflight) then
        return IDLE, "enough in flight"
      end
      return OPEN, k
    end,
  },
}
