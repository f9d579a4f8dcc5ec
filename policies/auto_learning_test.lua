-- How long auto learns, and what those above pay meanwhile: a service comes to a host that is busy
-- with training, and ten seconds later it changes its rate. priority.lua has nothing to learn, and
-- keeps the promise here. Simulated: the GPU is a model.

local RUN_US, SECOND_US = 3000, 1000000
local COMES_US, CHANGES_US, UNTIL_US = 2 * SECOND_US, 12 * SECOND_US, 22 * SECOND_US

local function random(seed)
  local x = seed
  return function()
    x = x * 16807 % 2147483647
    return x / 2147483647
  end
end

-- By second from COMES_US on: what the requests that came in it took, from their arrival, and what
-- the training's kernels that began in it take.
local function seconds(t, policy, with, loads)
  local s = t.sim { policy = policy, mps = with.mps }
  if policy then
    s:client { name = "training", priority = 9, gates = true, stops = not with.mps }
    s:loop { client = "training", us = with.us, launches = 200, blocks = 264 }
  end
  s:run(COMES_US)
  s:client { name = "service", priority = 0 }
  local draw, at, found = random(77), COMES_US, {}
  for i = 1, (UNTIL_US - COMES_US) / SECOND_US do found[i] = { us = 0, trained_us = 0 } end
  local function second(us) return found[math.floor((us - COMES_US) / SECOND_US) + 1] end
  local came, n = {}, 0  -- by thousands: a list is short
  while at < UNTIL_US do
    at = at - RUN_US / loads[at < CHANGES_US and 1 or 2] * math.log(draw())
    if at >= UNTIL_US then break end
    n = n + 1
    local thousand = math.floor(n / 1000)
    came[thousand] = came[thousand] or {}
    came[thousand][n % 1000] = at
    s:launch { client = "service", us = RUN_US, blocks = 264, at = at, sync = true }
  end
  s:run(UNTIL_US - COMES_US + SECOND_US)
  n = 0
  for _, l in ipairs(s:log()) do
    if l.client == "service" then
      n = n + 1
      local from_us = came[math.floor(n / 1000)][n % 1000]
      local of = second(from_us)
      of.us = of.us + l.end_us - from_us
    elseif l.at_us >= COMES_US and l.at_us < UNTIL_US then
      local of = second(l.at_us)
      of.trained_us = of.trained_us + with.us
    end
  end
  return found
end

-- The last comes six times a second. Under MPS priority.lua makes its requests 6 % longer.
local HOW = { { us = 300, mps = false }, { us = 9000, mps = false }, { us = 300, mps = true } }
local LOADS = { { 0.5, 0.2 }, { 0.2, 0.5 }, { 0.018, 0.018 } }
for i = 1, 8 do
  local loads = LOADS[math.ceil(i / 3)]
  local with = HOW[(i - 1) % 3 + 1]
  local name = string.format("within a second, loads of %g and %g, %d us, mps=%s", loads[1],
                             loads[2], with.us, tostring(with.mps))
  test(name, function(t)
    local alone, most = seconds(t, nil, with, loads), seconds(t, "priority.lua", with, loads)
    for second, of in ipairs(seconds(t, "auto.lua", with, loads)) do
      local trained, slower = of.trained_us / most[second].trained_us, of.us / alone[second].us
      print(string.format("second %d: training %.2f of what priority.lua gives, mean %.3f",
                          second, trained, slower))
      t.below(second == 1 and 0.75 or 0.8, trained, "training in second " .. second)
      if alone[second].us > 0 then t.below(slower, 1.06, "the mean of second " .. second) end
    end
  end)
end
