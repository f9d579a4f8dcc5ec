-- On all SMs, work goes beside promised clients as far as their promises allow.

local function sim(t, mps)
  return t.sim { policy = "combined.lua", mps = mps ~= false, params = { fence_sm = 0 } }
end

-- A promised client with runs of 2 ms that fill the GPU, and best effort's kernels of `us`. Both
-- are learned for 300 ms. Returns how much slower the client is in the second after that, and best
-- effort's launches in it.
local function beside(t, o)
  local s = sim(t, o.mps)
  s:client { name = "lc", priority = 0, slowdown_max = o.slowdown_max }
  s:client { name = "be", priority = 9 }
  s:loop { client = "be", us = o.us, blocks = o.blocks or 264, count = 8 }
  s:run(20000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = o.lc_blocks or 2640, at = 20000 }
  s:run(100000)
  local alone_us = 100000 / s:stats("lc").launches
  s:loop { client = "be", us = o.us, blocks = o.blocks or 264 }
  s:run(300000)
  local lc, be = s:stats("lc").launches, s:stats("be").launches
  s:run(1000000)
  return 1e6 / (s:stats("lc").launches - lc) / alone_us, s:stats("be").launches - be, s
end

test("best effort goes beside a promised client until the promise is used up", function(t)
  local slower, launches = beside(t, { us = 200, slowdown_max = 1.10 })
  t.below(slower, 1.10, "the promised client takes")
  t.ok(slower > 1.03, "the promise is used, " .. slower)
  t.ok(launches > 100, "best effort gets something, " .. launches)
end)

test("a larger promise lets more in", function(t)
  local _, few = beside(t, { us = 600, slowdown_max = 1.05 })
  local slower, many = beside(t, { us = 600, slowdown_max = 1.30 })
  t.below(slower, 1.30, "the promised client takes")
  t.ok(many > 3 * few, many .. " launches against " .. few)
end)

test("long kernels keep the promise as well", function(t)
  local slower, launches = beside(t, { us = 3000, slowdown_max = 1.10 })
  t.below(slower, 1.10, "the promised client takes")
  t.ok(launches > 5, "best effort gets something, " .. launches)
end)

test("time-sliced the promise holds too", function(t)
  local slower, launches = beside(t, { us = 200, slowdown_max = 1.10, mps = false })
  t.below(slower, 1.10, "the promised client takes")
  t.ok(launches > 20, "best effort gets something, " .. launches)
end)

test("who was promised nothing holds nobody back", function(t)
  local _, promised = beside(t, { us = 600, slowdown_max = 1.10 })
  local slower, launches = beside(t, { us = 600 })
  t.ok(slower > 1.2, "it is slowed down, " .. slower)
  t.ok(launches > 2 * promised, launches .. " launches")
end)

-- At first a launch is charged a guess, half of its time. Then the client's runs show that it costs
-- nothing.
test("beside a program that it does not slow down best effort gets far more", function(t)
  local _, dense = beside(t, { us = 200, slowdown_max = 1.10 })
  local slower, launches = beside(t, { us = 200, slowdown_max = 1.10, blocks = 66, lc_blocks = 66 })
  t.below(slower, 1.10, "the promised client takes")
  t.ok(launches > 5 * dense, launches .. " launches against " .. dense)
end)

test("what fits a gap costs nothing", function(t)
  local s = sim(t)
  s:client { name = "lc", priority = 0, slowdown_max = 1.01 }
  s:client { name = "be", priority = 9 }
  s:loop { client = "be", us = 100, count = 8 }
  s:run(20000)
  s:loop { client = "lc", us = 300, gap_us = 1500, at = 20000 }
  s:run(60000)
  s:loop { client = "be", us = 100 }
  s:run(100000)
  local be = s:stats("be").launches
  s:run(200000)
  t.ok(s:stats("be").launches - be > 110 * 10, (s:stats("be").launches - be) .. " launches")
end)

test("the reason names the channel", function(t)
  local s = sim(t)
  s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
  s:client { name = "be", priority = 9 }
  s:launch { client = "lc", us = 5000, blocks = 264, sync = true }
  s:launch { client = "be", us = 3000, at = 5 }
  s:at(10):expect { running = "lc", waiting = "be", verdict = IDLE, reason = "interference: slots" }
end)

-- The highest mean over 10 ms of a channel's use, in the second half of a second. Each launch of
-- `alone_us` uses `part` of the channel.
local function worst(s, name, part, alone_us)
  local used, most, sum = {}, 0, 0                      -- by ms
  for ms = 0, 1100 do used[ms] = 0 end
  for _, l in ipairs(s:log()) do
    for ms = math.floor(l.at_us / 1000), math.min(1100, math.floor(l.end_us / 1000)) do
      local both_us = math.min(l.end_us, ms * 1000 + 1000) - math.max(l.at_us, ms * 1000)
      if l.client == name then
        used[ms] = used[ms] + part * alone_us * both_us / (l.end_us - l.at_us) / 10000
      end
    end
  end
  for ms = 490, 990 do
    sum = sum + used[ms] - (ms >= 500 and used[ms - 10] or 0)
    if ms >= 500 then most = math.max(most, sum) end
  end
  return most
end

for _, held in ipairs { false, true } do
  local how = held and ", held on the device" or ""
  test("a rule's dram_max bounds what best effort uses beside others" .. how, function(t)
    local function use(dram_max, dram_pct)
      local s = sim(t)
      s:client { name = "lc", priority = 0 }
      s:client { name = "be", priority = 9, dram_max = dram_max, gates = held }
      for _ = 1, 2 do                                   -- threads
        s:loop { client = "be", us = 200, launches = 20, blocks = 66, kernel = "copy",
                 metrics = { dram_pct = dram_pct } }
      end
      s:loop { client = "lc", us = 300, gap_us = 100, blocks = 66, at = 100000 }
      s:run(1000000)
      return worst(s, "be", 0.8, 200), s:stats("be").launches
    end
    local free, limited = use(nil, 48.8), use(0.3, 48.8)  -- 48.8 % is 0.8 of the peak, ncu's 61 %
    t.below(limited, 0.33, "use")
    t.ok(limited > 0.27 and free > 0.5, "use " .. limited .. ", without a limit " .. free)
    local _, unknown = use(0.3, nil)
    local _, all = use(nil, nil)
    t.near(unknown, all, all / 10, "launches of which nobody knows the use")
  end)
end

test("a client that is alone may use all of a channel", function(t)
  local s = sim(t)
  s:client { name = "be", priority = 9, issue_max = 0.1 }
  s:loop { client = "be", us = 200, launches = 20, kernel = "fma", metrics = { ipc = 3.9 } }
  s:run(200000)
  t.ok(s:stats("be").launches > 900, s:stats("be").launches .. " launches")
end)

test("a graph is held to its limit by its metrics", function(t)
  local function launches(metrics)
    local s = sim(t)
    s:client { name = "lc", priority = 0 }
    s:client { name = "be", priority = 9, dram_max = 0.1 }
    s:loop { client = "lc", us = 200, gap_us = 200, blocks = 66 }
    s:loop { client = "be", us = 200, nodes = 10, kernel = "graph", metrics = metrics }
    s:run(300000)
    return s:stats("be").launches
  end
  local none, much = launches(), launches { dram_pct = 60 }
  t.ok(much < none / 3, much .. " launches, and " .. none .. " of which nobody knows the use")
end)

-- The launch's 100 blocks leave 32 SMs to five launches of the client. With metrics the estimator
-- answers that it does not know the cost; without metrics the launch is charged half of its time
-- until the client's runs correct that.
test("a measured launch whose cost nobody knows waits for a pause", function(t)
  local function launches(metrics)
    local s = sim(t)
    s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
    s:client { name = "be", priority = 9 }
    s:loop { client = "be", us = 2000, blocks = 100, kernel = "be", metrics = metrics, count = 8 }
    s:run(30000)
    s:loop { client = "lc", us = 400, gap_us = 20, blocks = 264, kernel = "lc", metrics = metrics,
             at = 30000 }
    s:run(100000)
    s:loop { client = "be", us = 2000, blocks = 100, kernel = "be", metrics = metrics }
    local now = s:at(132000)
    if metrics then now:expect { waiting = "be", reason = "interference: unknown" } end
    s:run(500000)
    return s:stats("be").launches - 8
  end
  local unmeasured, measured = launches(nil), launches { ipc = 1 }
  t.ok(unmeasured > 10, unmeasured .. " launches without metrics")
  t.below(measured, unmeasured / 4, "launches with metrics, by the starvation bound")
end)
