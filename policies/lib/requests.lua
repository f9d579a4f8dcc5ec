-- requests.lua: where a program's requests begin, and what all programs have on the GPU.

local asked = {}                              -- by client: when its last launch asked

-- In `enqueue`: true if the launch is the first of a request. Nothing of its client is on the GPU,
-- and none was launched for pause_us.
local function begins(k, pause_us)
  local id, now = k.client.id, now_us() - k.wait_us
  local since_us = now - (asked[id] or -math.huge) - k.open_us
  asked[id] = now
  return since_us > pause_us and k.client.inflight_us == 0
end

local function forget(c) asked[c.id] = nil end

-- As predicted.
local function inflight(g)
  local us = 0
  for c in g:clients() do us = us + c.inflight_us end
  return us
end

return { begins = begins, forget = forget, inflight = inflight }
