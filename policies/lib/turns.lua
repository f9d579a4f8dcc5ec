-- turns.lua: clients of one priority share the GPU's time by their weights, whatever they launch,
-- and none has more of it than its limit.
--
-- A weight is what a client's rule requests of the GPU, in percent, else its share. What counts is
-- the GPU time that each has had (c.gpu_us): who has had least for its weight goes first, and
-- others of its priority wait, so that each has its part even where all are the most important.
-- Who is alone is leased and pays nothing, unless it has a limit.
--
-- Time-sliced, one client is on the GPU at a time, and for a turn: each change costs switch_us.
-- With `slice_us` all take slices by their weights instead, where they can, and nobody is held for
-- an equal: right for long kernels. Who waits for its own work leaves the rest of its slice.
queue.create("waiting")
queue.create("limited")

local max, min, floor = math.max, math.min, math.floor
local SLICE_LEAST_US, SLICE_MOST_US = 100, 1000000
local SAVED_US = 15000                        -- by a limit, or a request: a burst
local RESUME_US = 2500                        -- who reached its limit waits until it has so much
local LEAD_US = 1000                          -- nobody waits for whoever has had so little less
local mps = false
-- By client: what to add to its GPU time over its weight, to have its account. By priority: the
-- account of whoever was served last. Who comes, or asks for less than its part, starts from there.
local base, served = {}, {}
for q = 0, 9 do served[q] = 0 end
local leftover = {}                           -- clients that have launches of a lease in flight
local last_us = 0                             -- the launch that was let go last, as predicted
local last_id, away_us = 0, nil               -- its client, and since when that asks for nothing
local requested, limited = {}, {}             -- by client: what is left of its part
local due_us = {}                             -- when it may go on, by its limit

local function weight(c) return c.request > 0 and 100 * c.request or c.share end
local function account(c)
  return (base[c.id] or 0) + (c.gpu_us + c.inflight_us) / weight(c)
end
local function set_account(c, us) base[c.id] = us - (c.gpu_us + c.inflight_us) / weight(c) end

local function meet(c) set_account(c, served[c.priority]) end
-- Who had nothing to do has saved nothing up.
local function comes(c)
  if account(c) < served[c.priority] then meet(c) end
end
local function forget(c)
  local id = c.id
  base[id], leftover[id], requested[id], limited[id], due_us[id] = nil, nil, nil, nil, nil
end

-- What is left of a part of the GPU's time: it grows with time, and shrinks by what the client has.
local function left(of, c, part)
  local now, had_us = now_us(), c.gpu_us + c.inflight_us
  local a = of[c.id]
  if not a then
    a = { us = SAVED_US, at_us = now, had_us = had_us }
    of[c.id] = a
  end
  a.us = min(SAVED_US, a.us + (now - a.at_us) * part - (had_us - a.had_us))
  a.at_us, a.had_us = now, had_us
  return a.us
end

-- Gives the equals of `own` slices by their weights. False, and they have none, if one of them that
-- works cannot or has a limit, or while somebody above works: two that are under way are two to be
-- stopped.
local function slices(g, own, least_us)
  local q, least, may = own.priority, math.huge, true
  for c in g:clients() do
    if c.priority == q then least = min(least, weight(c)) end
    if c.active and (c.priority < q or c.priority == q and (not c.stoppable or c.limit > 0)) then
      may = false
    end
  end
  for c in g:clients() do
    local us = max(SLICE_LEAST_US, min(SLICE_MOST_US, floor(least_us * weight(c) / least)))
    if c.priority == q then c:slice(may and us or 0) end
  end
  return may
end

-- Ascending: the account; time-sliced in whole turns, and in each one client at a time.
local function key(c, turn_us)
  local us = account(c)
  return mps and us or floor(us / turn_us) * 1024 + c.id % 1024
end
local function insert(k, turn_us)
  return queue.insert("waiting", k, k.priority * 2 ^ 45 + key(k.client, turn_us))
end

local function enqueue(k, p)
  local c, q = k.client, k.priority
  due_us[c.id] = nil
  if account(c) < served[q] - p.saved_us then set_account(c, served[q] - p.saved_us) end
  return insert(k, p.turn_us)
end

-- The launch whose turn it is; nil: nobody's. Who reached a limit waits until it may go on.
local function head(p)
  local now, k = now_us(), queue.peek("limited")
  while k and due_us[k.client.id] <= now do
    due_us[k.client.id] = nil
    insert(k, p.turn_us)
    k = queue.peek("limited")
  end
  k = queue.peek("waiting")
  while k do
    local c = k.client
    local us = c.limit > 0 and left(limited, c, c.limit) or 1
    if us > 0 then return k end
    due_us[c.id] = now + (RESUME_US - us) / c.limit
    queue.insert("limited", k, due_us[c.id])
    k = queue.peek("waiting")
  end
end

-- The verdict on the head, while nobody above is active. Who is alone is leased, or at open gates
-- if `open`: then whoever comes above need not ask, and finds them closed.
local function go(g, k, p, open)
  mps = g.mode == "mps"
  local q, own = k.priority, k.client
  if not mps and p.slice_us and slices(g, own, p.slice_us) then
    k.client:lease()
    served[q] = max(served[q], account(own))
    return RUN, k, nil, nil, "by its slice"
  end
  local alone, inflight_us, others_us, away = own.limit == 0, 0, 0, false
  local least_us = account(own)                 -- of the active equals
  for c in g:clients() do
    local id = c.id
    if c.priority < q then
      alone = alone and not c.active
    elseif id ~= own.id then
      if c.priority == q and c.active then
        alone = false
        away = away or id == last_id and not due_us[id] and key(c, p.turn_us) < key(own, p.turn_us)
        if not due_us[id] then least_us = min(least_us, account(c)) end
      end
      if not c.gated then
        c:gate()
        meet(c)  -- its time alone does not count
        leftover[id] = true
      end
    end
    if c.priority == q then
      local us = c.inflight_us
      if us == 0 then leftover[id] = nil end
      if not leftover[id] then            -- nobody waits for what was launched by lease
        inflight_us = inflight_us + us
        if id ~= own.id then others_us = others_us + us end
      end
    end
  end
  if alone and open then return OPEN, k, nil, nil, "alone" end
  if alone then
    own:lease()
    return RUN, k, nil, nil, "alone"
  end
  if not mps and others_us > 0 then return IDLE, "another client's turn ends" end
  -- To let another in, and back, costs more than a short pause of whose turn it is.
  if not mps and away then
    away_us = away_us or now_us()
    local left_us = away_us + 3 * g.switch_us - now_us()
    if left_us > 0 then return IDLE, left_us, "whose turn it is comes back" end
  end
  -- Beside a launch longer than depth_us one more goes: two of them hide the time of asking, or run
  -- side by side.
  if inflight_us > last_us and inflight_us + k.predicted_us > p.depth_us then
    return IDLE, "enough in flight"
  end
  -- Kernels that leave room never queue: who has had more waits for the others' next launches.
  -- Not for one who has saved up all that it may: it asks for less than its part.
  local ahead_us = account(own) - least_us - (LEAD_US + k.predicted_us) / weight(own)
  local us = k.predicted_us
  local wait_us = max(p.wait_us, own.held == "device" and min(8 * us, us + 1000) or 0)
  if mps and ahead_us > 0 and ahead_us < p.saved_us and k.wait_us < wait_us then
    return IDLE, "ahead of its share"
  end
  served[q], last_us = max(served[q], account(own)), k.predicted_us
  last_id, away_us = own.id, nil
  return RUN, k
end

-- Whether the head goes beside others who work above: its client has less than its rule requests.
local function beside(k, p)
  local c = k.client
  if c.request == 0 or left(requested, c, c.request) <= 0 then return false end
  return c.inflight_us == 0 or c.inflight_us + k.predicted_us <= p.depth_us
end

return { meet = meet, comes = comes, forget = forget, enqueue = enqueue, head = head, go = go,
         beside = beside }
