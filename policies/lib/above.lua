-- above.lua: who is more important than a launch, and whether it must wait for that alone.

-- The priority of the most important active client; math.huge if there is none.
local function top(g)
  local best = math.huge
  for c in g:clients() do
    if c.active and c.priority < best then best = c.priority end
  end
  return best
end

-- Gates all from `q` on for so long. In a long pause of those above they would go as they like.
local function gate(g, q, for_us)
  for c in g:clients() do
    if c.priority >= q then c:gate(for_us) end
  end
end

-- True if nobody is above the launch. Else false, or false and why it must not join them now: one
-- of them is to be left alone, so that it is known what its runs take, or enough is in flight.
local function goes_first(k, g, inflight_us_max)
  if k.priority <= top(g) then return true end
  if g:comparing(k.priority) then return false, "comparing" end
  local inflight = g.inflight_us
  if inflight > 0 and inflight + k.predicted_us > inflight_us_max then
    return false, "enough in flight"
  end
  return false
end

-- What is held on the device is put on SMs as it is posted: such a client is kept to so many from
-- its next launch on, as long as it is let go there; 0: to none. In a long pause it has all again.
local KEEP_US = 400000
local kept = map.hash("kept", { key = "client", max = 4096 })
local kept_us = map.hash("kept_us", { key = "client", max = 4096 })
local function keep_to(c, sm)
  if c.held ~= "device" or sm == 0 and not kept:get(c) then return end
  local now = now_us()
  if sm == 0 then
    kept:erase(c)
  elseif kept:get(c) == sm and now - kept_us:get(c) < KEEP_US / 2 then
    return
  else
    kept:set(c, sm)
    kept_us:set(c, now)
  end
  c:keep_to(sm, sm > 0 and KEEP_US or 0)
end

-- What those above wait at most where what runs can be stopped in its middle: until it stands, and
-- until they have the GPU.
local STOP_US = 500
-- Whether what runs of the launch is stopped for those above, by the policy's parameter `stop`.
local function stops(k, when) return when ~= "never" and k.client.stoppable end
-- Whether it stops with all that is in flight, so that more of it makes those above wait no longer.
local function stops_with(k, when, inflight_us)
  return stops(k, when) and inflight_us <= k.client.inflight_us
end

return { top = top, gate = gate, goes_first = goes_first, keep_to = keep_to, STOP_US = STOP_US,
         stops = stops, stops_with = stops_with }
