-- promise.lua: how much longer than alone the runs of those above may take.

local min, max = math.min, math.max
local slo_part = 0.5      -- of what slo_ms leaves: the mean is held, and the tail is longer
local least = 0.01        -- a promise that nothing can keep lets so much in: nobody starves
local load_us = 3000000   -- the load is the mean of so long: bursts are part of it
local queue_most = 0.97   -- busier than that it has no queue of requests, but one after the other;
local queue_us = 60000000 -- or it has a queue that is full, if it was less busy not so long ago,
local known_us = 5000000  -- or is not known for long
local queue_part = 0.2    -- of the promise at least: less could not be told from noise
local even = 0.8          -- of pauses: the square of their mean root over their mean. 1: all are
                          -- alike; 0.79: as of Poisson arrivals, if none had to wait
local even_of = 16        -- corrections

-- Follows the load of those above, who were idle so long of the `all_us` before `at_us`.
local function follow_load(s, idle_us, all_us, at_us)
  local part = min(1, all_us / min(load_us, at_us - s.first_us))
  s.load = s.load + (1 - idle_us / all_us - s.load) * part
  if s.load < queue_most then s.queue_until_us = at_us + queue_us end
  s.queues = at_us < max(s.queue_until_us, s.first_us + known_us)
end

-- Follows the pauses of those above: so many, and their sums. Where all are short and alike each
-- request follows the one before it, or they come at a steady pace: none waits for another.
local function follow_pauses(s, count, pauses_us, roots, alone_us)
  if count <= 0 or pauses_us <= 0 then return end
  local alike = 2 * pauses_us < alone_us and roots * roots / (count * pauses_us) or 0
  s.alike = s.alike + (alike - s.alike) / even_of
end

-- Of one client whose runs take so long alone.
local function of(c, alone_us, default)
  if c.slowdown_max > 0 then return max(least, c.slowdown_max - 1) end
  if c.slo_ms > 0 and alone_us > 0 then
    return max(least, slo_part * (c.slo_ms * 1000 / alone_us - 1))
  end
  return default
end

-- The strictest of all above `q` that are at work; `s` has followed their load. A promise is of
-- requests from their arrival; what is measured are runs. Where runs take a little longer, requests
-- take `queued` times as much longer: that of a queue with Poisson arrivals and equal runs (M/D/1).
-- `first`: only a run that had none just before it takes longer, and all that wait behind it wait
-- as much longer. That is right for delays that are short beside a run. Second: what was promised
-- of requests. Third: whether a rule promises any of them a tail.
local function allowed(g, q, alone_us, s, default, first)
  local strictest, tail = math.huge, false
  for c in g:clients() do
    if c.active and c.priority < q then strictest = min(strictest, of(c, alone_us, default)) end
    tail = tail or c.priority < q and c.slowdown_p99_max > 0
  end
  if strictest == math.huge then strictest = default end
  if not s.queues or s.alike > even then return strictest, strictest, tail end
  local load = min(s.load, queue_most)
  local queued = first and 2 / (2 - load) or 1 + load / ((1 - load) * (2 - load))
  return strictest * max(queue_part, 1 / queued), strictest, tail
end

return { follow_load = follow_load, follow_pauses = follow_pauses, allowed = allowed }
