-- Best effort with kernels of 30 ms, which fit no gap, time-sliced, where running kernels can be
-- stopped: they delay those above by the time of a stop. Simulated.

local LEFT = 0.9  -- of the time: the service works for 1 ms of 10
local RUN_US = 8000000

-- Returns the service's statistics, and the part of the time in which best effort runs.
local function measure(t, more)
  local s = t.sim { policy = "gapfill.lua", mps = false, params = more.params }
  s:client { name = "service", priority = 0, stops = true }
  s:loop { client = "service", us = 1000, gap_us = 9000, blocks = 264 }
  s:run(200000)
  for i = 1, more.count or 1 do
    s:client { name = "be" .. i, priority = 9, gates = more.gates, stops = true }
    s:loop { client = "be" .. i, us = 30000, blocks = 264, launches = 10 }
  end
  s:run(RUN_US)
  local all = 0
  for i = 1, more.count or 1 do all = all + s:stats("be" .. i).gpu_us / RUN_US end
  return s:stats("service"), all
end

for _, gates in ipairs { false, true } do
  test("what is too long for any gap is stopped, gates=" .. tostring(gates), function(t)
    local service, all = measure(t, { gates = gates })
    t.below(service.mean_us, 1150, "a request, 1000 us alone")
    t.below(service.p99_us, 1300, "one in a hundred")
    t.below(0.8 * LEFT, all, "best effort")
  end)

  test("three that are too long for any gap are stopped, gates=" .. tostring(gates), function(t)
    local service, all = measure(t, { count = 3, gates = gates })
    t.below(service.mean_us, 1200, "a request, 1000 us alone")
    t.below(0.8 * LEFT, all, "best effort")
  end)

  test("where nobody is stopped it waits for longer, gates=" .. tostring(gates), function(t)
    local service, all = measure(t, { gates = gates, params = { stop = "never" } })
    t.below(2000, service.p99_us, "one in a hundred")
    t.below(all, 0.15, "best effort")
  end)
end
