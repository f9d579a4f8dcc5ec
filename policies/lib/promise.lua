-- promise.lua: how much longer than alone the runs of those above may take.

local min, max = math.min, math.max
local slo_part = 0.5      -- of what slo_ms leaves: the mean is held, and the tail is longer
local least = 0.01        -- a promise that nothing can keep lets so much in: nobody starves
local queue_most = 0.97   -- busier than that it has no queue of requests, but one after the other
local queue_part = 0.2    -- of the promise at least: less could not be told from noise

-- Of one client whose runs take so long alone.
local function of(c, alone_us, default)
  if c.slowdown_max > 0 then return max(least, c.slowdown_max - 1) end
  if c.slo_ms > 0 and alone_us > 0 then
    return max(least, slo_part * (c.slo_ms * 1000 / alone_us - 1))
  end
  return default
end

-- The strictest of all above `q` that are at work. A promise is of requests, from their arrival;
-- what is measured are runs. Where runs take a little longer, requests take `queued` times as much
-- longer: that of a queue with Poisson arrivals and equal runs (M/D/1). `first`: a run takes longer
-- only where none was just before it; then those that wait behind it wait no longer than it did.
-- Second: what was promised of requests. Third: whether a rule promises any of them a tail.
local function allowed(g, q, alone_us, load, default, first)
  local strictest, tail = math.huge, false
  for c in g:clients() do
    if c.active and c.priority < q then strictest = min(strictest, of(c, alone_us, default)) end
    tail = tail or c.priority < q and c.slowdown_p99_max > 0
  end
  if strictest == math.huge then strictest = default end
  if load > queue_most then return strictest, strictest, tail end
  local queued = first and 2 / (2 - load) or 1 + load / ((1 - load) * (2 - load))
  return strictest * max(queue_part, 1 / queued), strictest, tail
end

return { allowed = allowed }
