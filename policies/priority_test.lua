-- Strict priorities: a client does not run while a more important one has work.

test("less important work waits while more important work runs", function(t)
  local s = t.sim { policy = "priority.lua" }
  s:client { name = "high", priority = 0 }
  s:client { name = "low", priority = 9 }
  s:loop { client = "high", us = 800, gap_us = 100, count = 4 }
  s:launch { client = "low", us = 100, at = 10 }
  s:at(400):expect { running = "high", waiting = "low", verdict = IDLE,
                     reason = "a more important client runs" }
  s:run(700)
  t.eq(s:stats("low").launches, 1, "launches of low in the gap")
end)

test("the most important of those that wait goes first", function(t)
  local s = t.sim { policy = "priority.lua" }
  s:client { name = "top", priority = 0 }
  s:client { name = "q7", priority = 7 }
  s:client { name = "q5", priority = 5 }
  s:launch { client = "top", us = 400, sync = true }
  s:launch { client = "q7", us = 100, at = 10 }
  s:launch { client = "q5", us = 100, at = 20 }
  s:run(2000)
  local log = s:log()
  t.eq(#log, 3, "launches")
  t.eq(log[2].client, "q5", "the second to run")
  t.eq(log[3].client, "q7", "the third to run")
end)

test("work in flight below the top is limited", function(t)
  local s = t.sim { policy = "priority.lua", params = { inflight_us = 250 } }
  s:client { name = "top", priority = 0 }
  s:launch { client = "top", us = 20, sync = true }
  for i = 1, 4 do
    s:client { name = "be" .. i, priority = 9 }
    s:launch { client = "be" .. i, us = 100, at = 100, blocks = 8 }
  end
  -- None of these kernels was measured before, so each counts as 100 µs.
  s:at(150):expect { running = { "be1", "be2" }, waiting = { "be3", "be4" },
                     reason = "enough in flight" }
end)

test("equals share the GPU's time by weight, however long their kernels are", function(t)
  local s = t.sim { policy = "priority.lua" }
  s:client { name = "top", priority = 0 }
  s:client { name = "two", priority = 9, share = 2 }
  s:client { name = "one", priority = 9 }
  s:loop { client = "top", us = 20, gap_us = 1000 }
  s:loop { client = "two", us = 100, launches = 100, blocks = 264 }  -- each fills the GPU
  s:loop { client = "one", us = 200, launches = 100, blocks = 264 }
  s:run(400000)
  t.near(s:stats("two").gpu_us / s:stats("one").gpu_us, 2, 0.2, "GPU time of two over one's")
end)

test("threads buy no share", function(t)
  local s = t.sim { policy = "priority.lua", params = { inflight_us = 100 } }
  s:client { name = "top", priority = 0 }
  s:client { name = "many", priority = 9 }
  s:client { name = "few", priority = 9 }
  s:loop { client = "top", us = 20, gap_us = 1000 }
  for _ = 1, 4 do s:loop { client = "many", us = 100, launches = 100 } end
  s:loop { client = "few", us = 100, launches = 100 }
  s:run(400000)
  t.near(s:stats("many").gpu_us / s:stats("few").gpu_us, 1, 0.1, "GPU time of many over few's")
end)

test("a pause saves up a turn or two, and no more", function(t)
  local s = t.sim { policy = "priority.lua" }
  for _, name in ipairs { "here", "late" } do s:client { name = name, priority = 9 } end
  s:client { name = "top", priority = 0 }
  s:loop { client = "top", us = 20, gap_us = 1000 }
  s:loop { client = "here", us = 100, launches = 100 }
  s:loop { client = "late", us = 100, launches = 100, at = 200000 }
  s:run(200000)
  local before = s:stats("here").gpu_us
  s:run(40000)
  t.near(s:stats("late").gpu_us - (s:stats("here").gpu_us - before), 2000, 1000, "ahead, in us")
end)

-- The launches of `low` are held on the device, and their kernels are learned; `top` has gaps of 2
-- ms for 300 ms.
local function on_device(t, launch)
  local s = t.sim { policy = "priority.lua" }
  s:client { name = "top", priority = 0 }
  s:client { name = "low", priority = 9, gates = true }
  launch.client, launch.count = "low", 4
  s:loop(launch)
  s:run(40000)
  launch.launches, launch.count = 2000, 0
  s:loop(launch)
  s:loop { client = "top", us = 800, gap_us = 2000, at = 41000 }
  s:run(1000)
  local before = s:stats("low")
  s:run(300000)
  local top, low = s:stats("top"), s:stats("low")
  return { top_max_us = top.max_us, pauses = top.iterations, asks = low.asks - before.asks,
           us = low.gpu_us - before.gpu_us, rest_us = 300000 - top.gpu_us }
end

test("what is held on the device has all that those above leave, by one verdict a gap", function(t)
  local r = on_device(t, { us = 60, blocks = 264 })
  t.below(r.top_max_us, 800 + 150 + 50, "slowest iteration of top: it waits for a unit")
  t.ok(r.us > 0.9 * r.rest_us, "GPU time of low, " .. r.us .. " of " .. r.rest_us)
  t.below(r.asks, 1.2 * r.pauses, "verdicts")
end)

test("important work waits for a piece of a graph that is held on the device", function(t)
  local r = on_device(t, { us = 5000, nodes = 100, blocks = 264 })
  t.below(r.top_max_us, 800 + 200 + 50, "slowest iteration of top")
  t.ok(r.us > 0.9 * r.rest_us, "GPU time of low, " .. r.us .. " of " .. r.rest_us)
  t.below(r.asks, 1.2 * r.pauses, "verdicts")
end)
