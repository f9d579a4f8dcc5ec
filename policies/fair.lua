-- fair.lua: equals share the GPU's time by their weights (`share`), whatever they launch.
--
-- Typical use: tenants of one priority that always have work. What counts is the GPU time that each
-- has had (c.gpu_us), not what was predicted: who has had least for its weight goes first. Others
-- of its priority wait, so that each has its part even where all are the most important. Who is
-- alone is leased and pays nothing. Below the top a client waits while anyone above has work.
--
-- Time-sliced, the GPU itself gives each its part where all take slices by share: nobody is held
-- for an equal. Else one client is on it at a time, and for a turn: each change costs switch_us.
queue.create("waiting")

local max, min, floor = math.max, math.min, math.floor
local SLICE_LEAST_US, SLICE_MOST_US = 100, 1000000
local mps = false
-- By client: what to add to its GPU time over its share, to have its account. By priority: the
-- account of whoever was served last. Who comes, or asks for less than its part, starts from there.
local base, served = {}, {}
for q = 0, 9 do served[q] = 0 end
local leftover = {}                           -- clients that have launches of a lease in flight
local last_us = 0                             -- the launch that was let go last, as predicted

local function account(c)
  return (base[c.id] or 0) + (c.gpu_us + c.inflight_us) / c.share
end
local function set_account(c, us) base[c.id] = us - (c.gpu_us + c.inflight_us) / c.share end

-- Whether a launch may go beside another longer than depth_us: then two of them hide the time of
-- asking, or run side by side. Not if others were only quick to end, and ask again in a moment.
local function one_more(g, c, inflight_us, turn_us)
  if inflight_us > last_us then return false end
  local us, q = account(c) - turn_us, c.priority
  for other in g:clients() do
    if other.priority == q and other.active and account(other) < us then return false end
  end
  return true
end

-- Gives the equals of `own` slices by their shares. False, and they have none, if one of them that
-- works cannot, or while somebody above works: two that are under way are two to be stopped.
local function slices(g, own, least_us)
  local q, least, may = own.priority, math.huge, true
  for c in g:clients() do
    if c.priority == q then least = min(least, c.share) end
    if c.active and (c.priority < q or c.priority == q and not c.stoppable) then may = false end
  end
  for c in g:clients() do
    local us = max(SLICE_LEAST_US, min(SLICE_MOST_US, floor(least_us * c.share / least)))
    if c.priority == q then c:slice(may and us or 0) end
  end
  return may
end

-- Ascending: priority, then account; time-sliced in whole turns, and in each one client at a time.
local function key_of(q, us, id, turn_us)
  if mps then return q * 2 ^ 45 + us end
  return q * 2 ^ 45 + floor(us / turn_us) * 1024 + id % 1024
end

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
      local q = c.priority
      set_account(c, served[q])
      c:stop("long")
      return GATE
    end,
    client_active = function(c, p) return GATE end,
    client_idle = function(c, p) return GATE end,
    client_exit = function(c) base[c.id], leftover[c.id] = nil, nil end,

    enqueue = function(k, p)
      local c, q = k.client, k.priority
      local us = account(c)
      if us < served[q] - p.saved_us then
        us = served[q] - p.saved_us
        set_account(c, us)
      end
      return queue.insert("waiting", k, key_of(q, us, c.id, p.turn_us))
    end,

    dispatch = function(g, p)
      mps = g.mode == "mps"
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local q, own = k.priority, k.client
      if g:busy(q) then return IDLE, "a more important client runs" end
      if not mps and slices(g, own, p.slice_us) then
        k.client:lease()
        served[q] = max(served[q], account(own))
        return RUN, k, "by its slice"
      end
      local alone, inflight_us, others_us = true, 0, 0
      local least_us = account(own)                 -- of the active equals
      for c in g:clients() do
        local id = c.id
        if c.priority < q then
          alone = alone and not c.active
        elseif id ~= own.id then
          if c.priority == q and c.active then
            alone = false
            least_us = min(least_us, account(c))
          end
          if not c.gated then                -- its time alone does not count
            c:gate()
            set_account(c, served[c.priority])
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
      if alone then
        own:lease()
        return RUN, k, "alone"
      end
      if not mps and others_us > 0 then return IDLE, "another client's turn ends" end
      if inflight_us > 0 and inflight_us + k.predicted_us > p.depth_us
        and not one_more(g, own, inflight_us, p.turn_us) then
        return IDLE, "enough in flight"
      end
      -- Kernels that leave room never queue: who has had more waits for the others' next launches.
      -- Not for one who has saved up all that it may: it asks for less than its part.
      local ahead_us = account(own) - least_us
      local wait_us = max(p.wait_us, k.client.held == "device" and 8 * k.predicted_us or 0)
      if mps and ahead_us > 0 and ahead_us < p.saved_us and k.wait_us < wait_us then
        return IDLE, "ahead of its share"
      end
      served[q], last_us = max(served[q], account(own)), k.predicted_us
      return RUN, k
    end,
  },
}
