-- Kernels of 30 ms below a service that works for 1 ms of 10, time-sliced, where running kernels
-- can be stopped: under priority.lua, and under the built-in policy, which does the same.
-- Simulated.

local LEFT = 0.9  -- of the time, which the service leaves
local FIRST_US, RUN_US = 1000000, 4000000

-- `below`: names, whose priorities are `more.priorities`, or 9.
local function begin(t, policy, below, more)
  local s = t.sim { policy = policy or nil, mps = false, params = more.params }
  s:client { name = "service", priority = 0, stops = true }
  s:loop { client = "service", us = 1000, gap_us = more.gap_us or 9000, blocks = 264 }
  s:run(200000)
  for i, name in ipairs(below) do
    local priority = more.priorities and more.priorities[i] or 9
    s:client { name = name, priority = priority, gates = more.gates, stops = not more.fixed }
    s:loop { client = name, us = 30000, blocks = 264, launches = 10 }
  end
  return s
end

-- Measured once the kernels are learned: the service's mean, and the parts of the time in which
-- each client below and all of them run.
local function measure(t, policy, below, more)
  local s = begin(t, policy, below, more or {})
  s:run(FIRST_US)
  local before, was = s:stats("service"), {}
  for _, name in ipairs(below) do was[name] = s:stats(name).gpu_us end
  s:run(RUN_US)
  local part, all, now = {}, 0, s:stats("service")
  for _, name in ipairs(below) do
    part[name] = (s:stats(name).gpu_us - was[name]) / RUN_US
    all = all + part[name]
  end
  local took_us = now.mean_us * now.iterations - before.mean_us * before.iterations
  return took_us / (now.iterations - before.iterations), part, all, s
end

for _, name in ipairs { "priority.lua", "the built-in" } do
  local policy = name == "priority.lua" and name
  for _, gates in ipairs { false, true } do
    local how = name .. (gates and ", held on the device" or "")

    test("what is long is stopped for a service: " .. how, function(t)
      local mean_us, _, all, s = measure(t, policy, { "batch" }, { gates = gates })
      t.below(mean_us, 1150, "a request, 1000 us alone")
      t.below(s:stats("service").p99_us, 1300, "one in a hundred")
      t.below(0.9 * LEFT, all, "best effort")
      t.ok(s:stats("batch").stops > 100 and s:stats("batch").stopped_us > 100000, "stops")
    end)

    test("three that are long are no worse than one: " .. how, function(t)
      local mean_us, part, all = measure(t, policy, { "a", "b", "c" }, { gates = gates })
      t.below(mean_us, 1180, "a request, 1000 us alone")
      t.below(0.9 * LEFT, all, "best effort")
      t.below(0.2, math.min(part.a, part.b, part.c), "each of them")
    end)

    test("B goes before C: " .. how, function(t)
      local more = { priorities = { 5, 9 }, gates = gates }
      local mean_us, part = measure(t, policy, { "b", "c" }, more)
      t.below(mean_us, 1270, "a request, 1000 us alone")
      t.below(part.c, 0.1 * part.b, "c beside b")
    end)
  end

  test("what cannot be stopped holds a service up: " .. name, function(t)
    t.below(2000, (measure(t, policy, { "batch" }, { fixed = true })), "a request")
  end)

  test("beside a service without pauses a stop ends by the bound: " .. name, function(t)
    local s = begin(t, policy, { "batch" }, { gap_us = 0 })
    s:run(8000000)
    local ended, longest_us = 0, 0
    for _, launch in ipairs(s:log()) do
      if launch.client == "batch" and launch.end_us > 0 then
        ended, longest_us = ended + 1, math.max(longest_us, launch.end_us - launch.at_us)
      end
    end
    t.below(2, ended, "kernels that ended")
    t.below(longest_us, 1200000, "the longest")
    t.below(0.9 * 8000000, s:stats("service").gpu_us, "the service")
  end)

  test("equals are not stopped for each other: " .. name, function(t)
    local s = t.sim { policy = policy or nil, mps = false }
    for _, who in ipairs { "a", "b" } do
      s:client { name = who, priority = 5, stops = true }
      s:loop { client = who, us = 20000, blocks = 264, launches = 10 }
    end
    s:run(2000000)
    t.eq(s:stats("a").stops + s:stats("b").stops, 0, "stops")
    s:shares { a = 1, b = 1 }
    t.below(0.9 * 2000000, s:stats("a").gpu_us + s:stats("b").gpu_us, "both")
  end)
end

test("nobody is stopped where the policy is told so", function(t)
  local mean_us = measure(t, "priority.lua", { "batch" }, { params = { stop = "never" } })
  t.below(2000, mean_us, "a request")
end)

for _, policy in ipairs { "priority.lua", "gapfill.lua", "auto.lua" } do
  test("a change of `stop` holds for who is attached: " .. policy, function(t)
    local s = begin(t, policy, { "batch" }, { params = { stop = "never" } })
    s:run(FIRST_US)
    t.eq(s:stats("batch").stops, 0, "stops while the policy is told never")
    s:set("stop", "long")
    s:run(FIRST_US)
    local stops = s:stats("batch").stops
    t.below(10, stops, "stops after the change")
    s:set("stop", "never")
    s:run(FIRST_US)
    t.eq(s:stats("batch").stops, stops, "stops after it was changed back")
  end)
end
