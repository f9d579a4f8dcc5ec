-- The request that has used least GPU time goes first.

-- A notebook with short requests beside trainings, which ask all the time.
local function beside(t, trainings, policy, params, held)
  local s = t.sim { policy = policy, mps = false, switch_us = 10, params = params }
  for i = 1, trainings do
    s:client { name = "training" .. i, gates = held }
    s:loop { client = "training" .. i, us = 400, launches = 4000, blocks = 264 }
  end
  s:client { name = "notebook", gates = held }
  s:loop { client = "notebook", us = 400, launches = 4, gap_us = 1600, blocks = 264, at = 100000 }
  s:run(1000000)
  return s
end

test("a short request overtakes long ones, though its client uses more than they", function(t)
  local function p99_us(policy) return beside(t, 3, policy):stats("notebook").p99_us end
  t.below(p99_us("mlfq.lua"), 2600, "p99 of requests that take 1.6 ms alone")
  t.below(4000, p99_us("fair.lua"), "p99 under fair")
end)

test("a request sinks as it uses GPU time, and one that sank less goes first", function(t)
  local s = t.sim { policy = "mlfq.lua", mps = false, params = { boost_ms = 100000 } }
  s:client { name = "long" }
  s:client { name = "middle" }
  s:loop { client = "long", us = 500, launches = 400, blocks = 264 }
  s:loop { client = "middle", us = 500, launches = 26, gap_us = 1000, blocks = 264, at = 100000 }
  s:run(200000)
  local first = s:stats("middle").p99_us
  t.below(first, 26 * 500 + 2000, "p99 of what takes 13 ms alone, beside one that used 100 ms")
end)

test("those of one level take turns", function(t)
  local s = t.sim { policy = "mlfq.lua", mps = false }
  for _, name in ipairs { "a", "b" } do
    s:client { name = name }
    s:loop { client = name, us = 500, launches = 4000, blocks = 264 }
  end
  s:run(1000000)
  t.near(s:stats("a").launches, s:stats("b").launches, 20, "launches")
end)

test("a long request starves for boost_ms at most", function(t)
  local function longest(boost_ms)
    local s = t.sim { policy = "mlfq.lua", mps = false, starvation_us = 1e7,
                      params = { boost_ms = boost_ms } }
    s:client { name = "long" }
    s:loop { client = "long", us = 400, launches = 4000, blocks = 264 }
    for i = 1, 3 do                                   -- together they leave no GPU time
      s:client { name = "short" .. i }
      s:loop { client = "short" .. i, us = 400, launches = 3, gap_us = 600, blocks = 264,
               at = 50000 }
    end
    s:run(1000000)
    return s:stats("long").max_wait_us
  end
  local often, seldom = longest(50), longest(400)
  t.below(often, 60000, "the longest wait, boosted each 50 ms")
  t.below(200000, seldom, "the longest wait, boosted each 400 ms")
end)

test("work in flight is limited", function(t)
  local s = t.sim { policy = "mlfq.lua", params = { depth_us = 250 } }
  for i = 1, 4 do
    s:client { name = "c" .. i }
    s:launch { client = "c" .. i, us = 100, at = 10 * i, blocks = 8 }
  end
  s:at(60):expect { running = { "c1", "c2" }, waiting = { "c3", "c4" },
                    reason = "enough in flight" }
end)

test("what is held on the device sinks too", function(t)
  local s = beside(t, 1, "mlfq.lua", { depth_us = 2000 }, true)
  t.below(s:stats("notebook").p99_us, 4500, "p99 of requests that take 1.6 ms alone")
end)
