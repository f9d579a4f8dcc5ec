-- Priority, then interference budgets, then a size for each kernel.

local function three(t, params)
  local s = t.sim { policy = "combined.lua", mps = true, params = params }
  s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
  s:client { name = "mid", priority = 5 }
  s:client { name = "be", priority = 9 }
  return s
end

test("nobody above: it goes at once, on all SMs", function(t)
  local s = three(t)
  s:launch { client = "be", us = 500 }
  s:at(20):expect { running = "be" }
  s:run(2000)
  t.eq(s:log()[1].sms, 132, "SMs")
end)

test("the more important of those that wait goes first", function(t)
  local s = three(t)
  s:launch { client = "lc", us = 5000, blocks = 264, sync = true }
  s:launch { client = "be", us = 3000, blocks = 264, at = 5 }
  s:launch { client = "mid", us = 3000, blocks = 264, at = 10 }
  s:at(15):expect { running = "lc", waiting = { "be", "mid" }, verdict = IDLE,
                    reason = "interference: slots" }
  s:run(12000)
  t.eq(s:log()[2].client, "mid", "after the promised one")
end)

-- As in combined_budget_test.lua: both are learned first, then measured for a second.
local function beside(t, params)
  local s = three(t, params)
  s:loop { client = "be", us = 600, blocks = 264, count = 8 }
  s:run(20000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 2640, at = 20000 }
  s:run(100000)
  local alone_us = 100000 / s:stats("lc").launches
  s:loop { client = "be", us = 600, blocks = 264 }
  s:run(300000)
  local lc, be = s:stats("lc").launches, s:stats("be").launches
  s:run(1000000)
  return 1e6 / (s:stats("lc").launches - lc) / alone_us, s:stats("be").launches - be, s
end

test("the promise is kept, and used", function(t)
  local slower, launches = beside(t)
  t.below(slower, 1.10, "the promised client takes")
  t.ok(slower > 1.02, "the promise is used, " .. slower)
  t.ok(launches > 50, "best effort gets something, " .. launches)
end)

test("a fence_sm of 0 is no limit, and one above half of the GPU is half", function(t)
  local function most(fence_sm)
    local _, _, s = beside(t, { fence_sm = fence_sm })
    local sms = 0
    for _, launch in ipairs(s:log()) do
      if launch.client == "be" and launch.at_us > 300000 then sms = math.max(sms, launch.sms) end
    end
    return sms
  end
  t.eq(most(0), 132, "SMs without a limit")
  t.below(most(1000), 69, "SMs of one too high")
end)

test("who joins others runs on fence_sm SMs at most", function(t)
  local slower, _, s = beside(t)
  t.below(slower, 1.10, "the promised client takes")
  local joined = 0
  for _, launch in ipairs(s:log()) do
    if launch.client == "be" and launch.at_us > 300000 then
      joined = joined + 1
      t.below(launch.sms, 69,  -- eight groups, the last one larger
              "SMs at " .. launch.at_us)
    end
  end
  t.ok(joined > 50, joined .. " launches")
end)

test("who joins others has no more SMs than its curve says", function(t)
  local s = three(t)
  local small = { client = "be", us = 600, blocks = 16, kernel = "small", count = 8,
                  metrics = { us_on_1 = 1200, us_on_2 = 605, us_on_4 = 600, us_on_8 = 600,
                              us_on_all = 600 } }
  s:loop(small)
  s:run(20000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 66, at = 20000 }
  small.count = nil
  s:loop(small)
  s:run(300000)
  local joined = 0
  for _, launch in ipairs(s:log()) do
    if launch.client == "be" and launch.at_us > 200000 then
      joined = joined + 1
      t.below(launch.sms, 21, "SMs at " .. launch.at_us)  -- two groups, the last one larger
    end
  end
  t.ok(joined > 20, joined .. " launches")
end)

test("shorter launches do not overtake a long one for ever", function(t)
  local s = t.sim { policy = "combined.lua" }
  s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
  s:client { name = "long", priority = 5 }
  s:client { name = "short", priority = 9 }
  s:loop { client = "long", us = 3000, blocks = 66, count = 8 }
  s:loop { client = "short", us = 600, blocks = 66, count = 8, at = 30000 }
  s:run(60000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 264, at = 60000 }
  s:run(200000)
  s:loop { client = "long", us = 3000, blocks = 66 }
  s:loop { client = "short", us = 600, blocks = 66 }
  s:run(2000000)
  t.ok(s:stats("long").launches > 8 + 30, s:stats("long").launches - 8 .. " launches of long")
end)

test("in a gap that holds it a launch has all SMs", function(t)
  local s = three(t)
  s:loop { client = "lc", us = 500, gap_us = 5000, blocks = 264 }
  s:loop { client = "be", us = 300, blocks = 264, at = 50000 }
  s:run(200000)
  local lc_end, all, fenced = 0, 0, 0
  for _, l in ipairs(s:log()) do
    if l.client == "lc" then lc_end = l.end_us end
    if l.client == "be" and l.at_us > math.max(80000, lc_end) and l.at_us < lc_end + 3000 then
      if l.sms == 132 then all = all + 1 else fenced = fenced + 1 end
    end
  end
  t.ok(all > 50 and fenced == 0, all .. " on all SMs, " .. fenced .. " fenced")
end)

test("a graph that is held on the device joins others by the piece within the promise", function(t)
  local s = t.sim { policy = "combined.lua", mps = true }
  s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
  s:client { name = "be", priority = 9, gates = true }
  s:loop { client = "be", us = 5000, nodes = 100, blocks = 264, count = 4 }
  s:run(30000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 264, at = 30000 }
  s:run(100000)
  local alone_us = 100000 / s:stats("lc").launches
  s:loop { client = "be", us = 5000, nodes = 100, blocks = 264, launches = 100 }
  s:run(300000)
  local lc, be = s:stats("lc").launches, s:stats("be").gpu_us
  s:run(1000000)
  t.below(1e6 / (s:stats("lc").launches - lc) / alone_us, 1.10, "lc takes")
  t.ok(s:stats("be").gpu_us - be > 50000, "GPU time of be, " .. s:stats("be").gpu_us - be)
end)

test("what is held on the device has a gap by one verdict", function(t)
  local s = t.sim { policy = "combined.lua", mps = true }
  s:client { name = "lc", priority = 0, slowdown_max = 1.10 }
  s:client { name = "be", priority = 9, gates = true }
  s:loop { client = "be", us = 60, blocks = 264, count = 8 }
  s:run(20000)
  s:loop { client = "lc", us = 800, gap_us = 5000 }
  s:loop { client = "be", us = 60, blocks = 264, launches = 4000 }
  s:run(200000)
  local be = s:stats("be")
  t.ok(be.gpu_us > 150000, "GPU time of be, " .. be.gpu_us)
  t.below(be.asks, be.launches / 8, "verdicts")
end)
