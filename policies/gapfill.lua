-- gapfill.lua: run best-effort kernels in the idle gaps of more important clients (FIKIT).
--
-- A waiting launch goes if it is predicted to end before the next kernel of anyone above comes; of
-- those that fit, the longest. Where gaps are too short for any kernel, overrun_pct buys progress:
-- best effort may outlast gaps, in sum by that share of the time.
queue.create("be")

local allowance_us, at_us = 0, 0              -- of overrun, and when it was last topped up

local function top_up(p)
  local now = now_us()
  local earned = (now - at_us) * p.overrun_pct / 100
  allowance_us = math.min(allowance_us + earned, p.overrun_max_us)
  at_us = now
end

return policy {
  name = "gapfill", api = 1, version = "1.0.0",
  params = {
    quantum_us = { type = "int", min = 20, max = 5000, default = 500,
                   doc = "most predicted best-effort work in flight; longer launches go alone" },
    overrun_pct = { type = "number", min = 0, max = 100, default = 0,
                    doc = "under MPS: percent of the time by which gaps may be outlasted" },
    overrun_max_us = { type = "int", min = 0, max = 100000, default = 2000,
                       doc = "most of that time that can be saved up" },
  },
  hooks = {
    init = function(p) at_us = now_us() end,

    enqueue = function(k, p)
      if k.client.window_us > 0 then return nil end  -- its own window holds it: the built-in's
      return queue.insert("be", k, k.priority)       -- Q0 is served first
    end,

    dispatch = function(g, p)
      local k = queue.peek("be")
      if not k then return IDLE, "empty" end
      local inflight = g.inflight_us
      local most = inflight > 0 and p.quantum_us - inflight or math.huge
      local room = math.min(g:gap_us(k.priority) - g.switch_us - inflight, most)
      local fits = queue.best_fit("be", room)
      if fits then return RUN, fits end
      if p.overrun_pct == 0 or g.mode ~= "mps" then return IDLE, "no gap that fits" end

      top_up(p)
      room = math.max(room, 0)
      k = queue.best_fit("be", math.min(room + allowance_us, most))
      if not k then return IDLE, "no gap that fits, no overrun left" end
      allowance_us = allowance_us - math.max(k.predicted_us - room, 0)
      return RUN, k, "overrun"
    end,
  },
}
