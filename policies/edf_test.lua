-- The nearest deadline goes first.

-- Two services that want the GPU at the same time: one's objective is 5 ms, the other's 100 ms.
local function pair(t, policy)
  local s = t.sim { policy = policy, mps = false, switch_us = 10 }
  s:client { name = "tight", priority = 5, slo_ms = 5 }
  s:client { name = "loose", priority = 5, slo_ms = 100 }
  s:loop { client = "loose", us = 500, launches = 60, gap_us = 5000, blocks = 264 }
  s:loop { client = "tight", us = 500, launches = 4, gap_us = 8000, blocks = 264 }
  s:run(1000000)
  return s
end

test("a request that is due sooner overtakes one that began earlier", function(t)
  local s = pair(t, "edf.lua")
  t.below(s:stats("tight").p99_us, 5000, "p99 of tight")
  t.below(s:stats("loose").p99_us, 100000, "p99 of loose")
  t.below(5000, pair(t, "papers/fifo.lua"):stats("tight").p99_us, "p99 of tight under fifo")
end)

test("without an objective a launch is due a second after its request began", function(t)
  local s = t.sim { policy = "edf.lua", mps = false }
  s:client { name = "none", priority = 0 }
  s:client { name = "due", priority = 9, slo_ms = 20 }
  s:loop { client = "none", us = 400, launches = 50, blocks = 264 }
  s:loop { client = "due", us = 400, launches = 5, gap_us = 10000, blocks = 264 }
  s:run(500000)
  t.below(s:stats("due").p99_us, 20000, "p99 of due, though the other is Q0")
  t.below(100, s:stats("none").launches, "launches of none")
end)

test("a request that is late takes no objective from one in time", function(t)
  local s = t.sim { policy = "edf.lua", mps = false }
  s:client { name = "endless", priority = 5, slo_ms = 1 }
  s:client { name = "other", priority = 5, slo_ms = 20 }
  s:loop { client = "endless", us = 500, launches = 2000, blocks = 264 }
  s:loop { client = "other", us = 500, launches = 4, gap_us = 2000, blocks = 264 }
  s:run(1000000)
  t.below(100, s:stats("other").iterations, "requests of other that were served")
  t.below(s:stats("other").p99_us, 20000, "p99 of other")
  t.below(500, s:stats("endless").launches, "launches of endless")
end)

test("one that is late does not go first for ever", function(t)
  local s = t.sim { policy = "edf.lua", mps = false, params = { default_ms = 5 } }
  s:client { name = "endless", priority = 5 }
  s:client { name = "other", priority = 5, slo_ms = 20 }
  s:loop { client = "endless", us = 500, launches = 2000, blocks = 264 }
  s:loop { client = "other", us = 500, launches = 4, gap_us = 2000, blocks = 264 }
  s:run(500000)
  t.below(5, s:stats("other").iterations, "requests of other that were served")
  t.below(s:stats("other").p99_us, 100000, "p99 of other")
end)

test("work in flight is limited", function(t)
  local s = t.sim { policy = "edf.lua", params = { depth_us = 250 } }
  for i = 1, 4 do
    s:client { name = "c" .. i, slo_ms = i }
    s:launch { client = "c" .. i, us = 100, at = 10 * i, blocks = 8 }
  end
  s:at(60):expect { running = { "c1", "c2" }, waiting = { "c3", "c4" },
                    reason = "enough in flight" }
  s:run(2000)
  t.eq(s:log()[4].client, "c4", "the last")
end)

test("who has gone leaves nothing behind", function(t)
  local s = t.sim { policy = "edf.lua" }
  for i = 1, 3 do
    s:client { name = "c", slo_ms = 5 }
    s:launch { client = "c", us = 100, sync = true }
    s:run(5000)
    s:remove("c")
  end
  local _, faults = s:fault()
  t.eq(faults, 0, "faults")
end)

test("it may be loaded while launches are in flight", function(t)
  local s = t.sim { mps = false }
  for i, name in ipairs { "a", "b" } do
    s:client { name = name, priority = 5, slo_ms = 50 * i, gates = true }
    s:loop { client = name, us = 500, launches = 40, gap_us = 1000, blocks = 264 }
  end
  s:run(62000)                                  -- in the middle of their second requests
  s:reload { policy = "edf.lua" }
  s:run(200000)
  local message, faults = s:fault()
  t.eq(faults, 0, message)
end)

test("the nearest deadline goes first where launches are held on the device", function(t)
  local s = t.sim { policy = "edf.lua", mps = false, switch_us = 10 }
  s:client { name = "tight", priority = 5, slo_ms = 5, gates = true }
  s:client { name = "loose", priority = 5, slo_ms = 100, gates = true }
  s:loop { client = "loose", us = 50, launches = 600, gap_us = 5000, blocks = 264 }
  s:loop { client = "tight", us = 50, launches = 40, gap_us = 8000, blocks = 264 }
  s:run(1000000)
  t.below(s:stats("tight").p99_us, 7000, "p99 of tight, which wants 2 ms")
end)
