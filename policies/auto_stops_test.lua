-- Best effort of kernels of 30 ms, time-sliced, where what runs can be stopped in its middle: they
-- cost those above a stop, and not their length. Simulated.

local LEFT = 0.9  -- of the time, beside a service that works for 1 ms of 10
local LEARNED_US, RUN_US = 8000000, 8000000

-- The service's mean once auto has learned, best effort's part of the time, and the service.
local function measure(t, more)
  local s = t.sim { policy = "auto.lua", mps = false, params = more.params }
  s:client { name = "service", priority = 0, stops = true, slowdown_max = more.promised }
  s:loop { client = "service", us = 1000, gap_us = 9000, blocks = 264 }
  s:run(200000)
  for i = 1, more.count or 1 do
    s:client { name = "be" .. i, priority = 9, gates = more.gates, stops = true }
    s:loop { client = "be" .. i, us = 30000, blocks = 264, launches = 10 }
  end
  local function best_effort_us()
    local us = 0
    for i = 1, more.count or 1 do us = us + s:stats("be" .. i).gpu_us end
    return us
  end
  s:run(LEARNED_US)
  local before, was = s:stats("service"), best_effort_us()
  s:run(RUN_US)
  local now = s:stats("service")
  local took_us = now.mean_us * now.iterations - before.mean_us * before.iterations
  return took_us / (now.iterations - before.iterations), (best_effort_us() - was) / RUN_US, now
end

for _, gates in ipairs { false, true } do
  test("what is long has what a service leaves, gates=" .. tostring(gates), function(t)
    local mean_us, all, service = measure(t, { gates = gates })
    t.below(mean_us, 1150, "a request, 1000 us alone")
    t.below(service.p99_us, 1300, "one in a hundred")
    t.below(0.9 * LEFT, all, "best effort")
  end)

  test("where nobody is stopped it has what was promised, gates=" .. tostring(gates), function(t)
    local _, all, service = measure(t, { gates = gates, params = { stop = "never" } })
    t.below(2000, service.p99_us, "one in a hundred")
    t.below(all, 0.15, "best effort")
  end)

  test("a rule's promise is kept although a stop costs more, gates=" .. tostring(gates), function(t)
    local mean_us, all = measure(t, { gates = gates, promised = 1.03 })
    t.below(mean_us, 1055, "a request, 1000 us alone")
    t.below(0.1 * LEFT, all, "best effort")
    t.below(all, 0.6 * LEFT, "best effort")
  end)
end

test("of three that are long nothing goes beside the service", function(t)
  local mean_us, all, service = measure(t, { count = 3 })
  t.below(mean_us, 1150, "a request, 1000 us alone")
  t.below(service.p99_us, 1500, "one in a hundred")
  t.below(0.9 * LEFT, all, "best effort")
end)
