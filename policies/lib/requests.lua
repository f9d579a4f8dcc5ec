-- requests.lua: when a program's requests begin, and how much work all programs have on the GPU.

local asked = {}                              -- by client: when its last launch asked

-- Called in `enqueue`: true if the launch is the first of a request. Then its client has no work on
-- the GPU, and launched nothing for pause_us.
local function begins(k, pause_us)
  local id, now = k.client.id, now_us() - k.wait_us
  local since_us = now - (asked[id] or -math.huge) - k.open_us
  asked[id] = now
  return since_us > pause_us and k.client.inflight_us == 0
end

local function forget(c) asked[c.id] = nil end

-- Predicted time of all clients' work in flight.
local function inflight(g)
  local us = 0
  for c in g:clients() do us = us + c.inflight_us end
  return us
end

return { begins = begins, forget = forget, inflight = inflight }
