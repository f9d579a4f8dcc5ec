-- What auto.lua gives training, against priority.lua, which keeps the promise here: a service with
-- Poisson arrivals at half load, whose runs scatter by 5 %, beside eager kernels of 5 to 450 µs at
-- gates. Simulated: the GPU is a model.
local FROM_US, SETTLED_US, UNTIL_US = 300000, 4000000, 8000000
local RUN_US, LOAD, SCATTER = 3000, 0.5, 0.05

-- An iteration of training: so many kernels of so many µs, in phases.
local PHASES = { { 100, 5, 100 }, { 200, 250, 450 } }

local function random(seed)
  local x = seed
  return function()
    x = x * 16807 % 2147483647
    return x / 2147483647
  end
end

local function train(s, phases, seed)
  local draw, kernels, at = random(seed), {}, 0
  for _, phase in ipairs(phases) do
    for _ = 1, phase[1] do
      kernels[#kernels + 1] = math.floor(phase[2] + (phase[3] - phase[2]) * draw() ^ 2)
    end
  end
  s:client { name = "training", priority = 9, gates = true }
  while at < UNTIL_US do
    for _, us in ipairs(kernels) do
      s:launch { client = "training", kernel = "k" .. us, us = us, blocks = 264, at = at }
      at = at + us + 8
    end
  end
end

-- Requests of so many kernels; with a `load` each is waited for. Returns when they arrive.
local function serve(s, kernels, seed, load)
  local draw, scatter, at, arrivals = random(11 * seed), random(13 * seed), FROM_US, {}
  s:client { name = "service", priority = 0 }
  while at < UNTIL_US do
    at = at - RUN_US / (load or LOAD) * math.log(draw())
    arrivals[#arrivals + 1] = at
    local us = RUN_US / kernels * (1 + SCATTER * (2 * scatter() - 1))
    for i = 1, kernels do
      s:launch { client = "service", us = us, blocks = 264, at = at,
                 sync = load ~= nil or i == kernels }
    end
  end
  return arrivals
end

-- The mean and the p99 of requests from their arrivals, and the part of the time that training's
-- kernels take.
local function measure(t, policy, kernels, seed, phases, load, from_us, until_us)
  from_us, until_us = from_us or SETTLED_US, until_us or UNTIL_US
  local s = t.sim { policy = policy, mps = true }
  local arrivals = serve(s, kernels, seed, load)
  if policy then train(s, phases, seed) end
  s:run(until_us)
  local n, took, sum_us, trained_us = 0, {}, 0, 0
  for _, l in ipairs(s:log()) do
    local after = l.at_us > from_us
    if l.client == "service" then
      n = n + 1
      if after and n % kernels == 0 and l.end_us > 0 then
        took[#took + 1] = l.end_us - arrivals[n / kernels]
        sum_us = sum_us + took[#took]
      end
    elseif after then
      trained_us = trained_us + tonumber(l.kernel:sub(2))
    end
  end
  table.sort(took)
  return sum_us / #took, took[math.ceil(0.99 * #took)], trained_us / (until_us - from_us)
end

for _, cell in ipairs { { 1, 11, 0.95 }, { 30, 9, 0.98 } } do
  local name = string.format("beside training requests of %d kernels, seed %d", cell[1],
                             cell[2])
  test(name, function(t)
    local alone_us, alone_p99_us = measure(t, nil, unpack(cell))
    local function slowed(policy)
      local mean_us, p99_us, trained = measure(t, policy, cell[1], cell[2], PHASES)
      print(string.format("%s: mean %.3f, p99 %.3f of alone, training %.3f", policy,
                          mean_us / alone_us, p99_us / alone_p99_us, trained))
      t.below(mean_us / alone_us, 1.05, policy .. ": the mean of alone")
      t.below(p99_us / alone_p99_us, 1.1, policy .. ": the p99 of alone")
      return trained
    end
    local most, trained = slowed("priority.lua"), slowed("auto.lua")
    t.ok(trained >= cell[3] * most, "training has " .. trained .. " instead of " .. most)
  end)
end

test("from the first second training has most of what priority.lua gives", function(t)
  local function first(policy)
    local mean_us, _, trained = measure(t, policy, 30, 9, PHASES, nil, FROM_US, 1000000)
    print(string.format("%s: mean %.0f us, training %.3f", policy, mean_us, trained))
    return trained
  end
  local most, trained = first("priority.lua"), first("auto.lua")
  t.ok(trained >= 0.93 * most, "training has " .. trained .. " instead of " .. most)
end)

test("a promise is of requests: at a load of 0.8 runs that came at random lose less", function(t)
  local alone_us = measure(t, nil, 1, 12, nil, 0.8, SETTLED_US, 7000000)
  local mean_us = measure(t, "auto.lua", 1, 12, { { 4, 5000, 5000 } }, 0.8, SETTLED_US, 7000000)
  print(string.format("auto.lua: mean %.3f of alone", mean_us / alone_us))
  t.below(mean_us / alone_us, 1.12, "the mean of alone")
end)

-- What priority.lua lets go costs requests more than was promised.
for name, cell in pairs {
  ["kernels of 600 us"] = { phases = { { 100, 600, 600 } }, most = 1.06, part = 0.8 },
  ["kernels of 5 ms"] = { phases = { { 4, 5000, 5000 } }, most = 1.1, part = 0.1 },
} do
  test(name .. " that nothing stops go as often as the promise allows", function(t)
    local alone_us = measure(t, nil, 1, 12)
    local function slowed(policy)
      local mean_us, _, trained = measure(t, policy, 1, 12, cell.phases)
      local slower = mean_us / alone_us
      print(string.format("%s: mean %.3f of alone, training %.3f", policy, slower, trained))
      return slower, trained
    end
    local worst, most = slowed("priority.lua")
    local slower, trained = slowed("auto.lua")
    t.ok(worst > 1.06, "priority.lua: the mean of alone " .. worst)
    t.below(slower, cell.most, "the mean of alone")
    t.ok(trained >= cell.part * most, "training has " .. trained .. " of " .. most)
  end)
end

test("short kernels keep out of the time between kernels that are waited for", function(t)
  local alone_us = measure(t, nil, 10, 3, nil, 0.7)
  local mean_us, _, trained = measure(t, "auto.lua", 10, 3, { { 200, 100, 100 } }, 0.7)
  print(string.format("auto.lua: mean %.3f of alone, training %.3f", mean_us / alone_us, trained))
  t.below(mean_us / alone_us, 1.03, "the mean of alone")
  t.ok(trained > 0.25, "training has " .. trained)
end)
