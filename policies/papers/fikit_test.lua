-- The paper's cases (Fig. 8, 11 and 12) on the model of a time-sliced GPU, as the paper has it.

-- Program A: kernels of 500 µs, gaps of `gap_us`.
local function busy(t, gap_us)
  local s = t.sim { policy = "fikit.lua", mps = false, switch_us = 0 }
  s:client { name = "A", priority = 0 }
  s:loop { client = "A", us = 500, gap_us = gap_us }
  return s
end

-- Launches of 100 µs that teach how long they take, one by one, before anybody else is there.
local function learn(s, client, us)
  s:loop { client = client, us = us, count = 8 }
  s:run(20000)
end

-- 40 ms of program A, beside a less important one that rests and whose launches of `us` are known.
local function beside_known(t, gap_us, name, us)
  local s = t.sim { policy = "fikit.lua", mps = false, switch_us = 0 }
  s:client { name = "A", priority = 0 }
  s:client { name = name, priority = 5 }
  learn(s, name, us)
  s:loop { client = "A", us = 500, gap_us = gap_us, at = 20000 }
  s:run(40000)
  return s
end

local function order(s, from_us, until_us)
  local names = {}
  for _, launch in ipairs(s:log()) do
    if launch.at_us >= from_us and launch.at_us < until_us then
      names[#names + 1] = launch.client
    end
  end
  return table.concat(names, " ")
end

test("case A: a late, more important program goes first, the other fills its gaps", function(t)
  local s = t.sim { policy = "fikit.lua", mps = false, switch_us = 0 }
  s:client { name = "low", priority = 5 }
  s:loop { client = "low", us = 200 }
  s:run(20000)
  s:client { name = "high", priority = 0 }
  s:loop { client = "high", us = 500, gap_us = 1500, at = 20000 }
  s:run(100000)
  t.below(s:stats("high").mean_us, 500 * 1.35, "mean of high")
  t.ok(s:stats("low").launches > 100 + 40 * 3, "low fills, " .. s:stats("low").launches)
end)

test("case B: a late, less important program only fills", function(t)
  local s = busy(t, 1500)
  s:run(40000)
  s:client { name = "low", priority = 5 }
  s:loop { client = "low", us = 200, at = 40000 }
  s:run(100000)
  t.below(s:stats("A").mean_us, 500 * 1.15, "mean of A")
  t.ok(s:stats("low").launches > 40 * 3, "low fills, " .. s:stats("low").launches)
end)

test("case C: equals share as they would without anybody's help", function(t)
  local s = busy(t, 0)
  s:client { name = "B", priority = 0 }
  s:loop { client = "B", us = 500 }
  s:run(100000)
  t.near(s:stats("A").launches, s:stats("B").launches, 10, "launches of A and B")
  t.ok(s:stats("A").launches > 50, "both run, " .. s:stats("A").launches)
end)

test("case C: equals for which a gap has no room together take turns, with MPS, too", function(t)
  for _, mps in ipairs { false, true } do
    local s = t.sim { policy = "fikit.lua", mps = mps, switch_us = 0 }
    for _, client in ipairs { { "A", 0 }, { "B", 6 }, { "C", 6 } } do
      s:client { name = client[1], priority = client[2] }
    end
    learn(s, "B", 900)
    learn(s, "C", 900)
    s:loop { client = "A", us = 500, gap_us = 1500, at = 40000 }
    s:loop { client = "B", us = 900, at = 80000 }
    s:loop { client = "C", us = 900, at = 80000 }
    s:run(180000)
    t.near(s:stats("B").launches, s:stats("C").launches, 4, "launches of B and C")
    t.ok(s:stats("B").launches > 8 + 20, "both fill, " .. s:stats("B").launches)
    t.below(s:stats("A").mean_us, 500 * 1.15, "mean of A")
  end
end)

test("of three programs the gap goes to the second first, then to the third", function(t)
  local s = t.sim { policy = "fikit.lua", mps = false, switch_us = 0 }
  for name, priority in pairs { A = 0, B = 3, C = 6 } do
    s:client { name = name, priority = priority }
  end
  learn(s, "B", 300)
  learn(s, "C", 300)
  s:loop { client = "A", us = 500, gap_us = 1500, at = 40000 }
  s:run(60000)
  local log = s:log()
  local last = log[#log].at_us
  -- C asks before B does; both wait until A's kernel has ended.
  s:launch { client = "C", us = 300, at = last + 2000 + 100 }
  s:launch { client = "B", us = 300, at = last + 2000 + 200 }
  s:run(4100)
  t.eq(order(s, last + 1900, last + 3900), "A B C", "who ran")
end)

test("a kernel that does not fit what is left stays out", function(t)
  local s = beside_known(t, 1500, "long", 900)
  local before = s:stats("long").launches
  s:loop { client = "long", us = 900 }
  s:run(100000)
  t.near(s:stats("long").launches - before, 50, 8, "one a gap, not two")
  t.below(s:stats("A").mean_us, 500 * 1.15, "mean of A")
end)

test("gaps below 0.1 ms are not filled", function(t)
  local s = beside_known(t, 80, "short", 20)
  local before = s:stats("short").launches
  s:loop { client = "short", us = 20 }
  s:run(50000)
  t.eq(s:stats("short").launches, before, "launches of short")
end)

test("the next launch ends a gap that was predicted to be longer", function(t)
  local s = beside_known(t, 1500, "low", 100)
  local log = s:log()
  local next = log[#log].at_us + 2003           -- A starts, runs 500 µs, and pauses
  s:loop { client = "low", us = 100, at = next }
  s:launch { client = "A", us = 500, at = next + 1200 }  -- 800 µs early
  s:at(next + 1000):expect { running = "low" }
  s:at(next + 1500):expect {
    running = "A", waiting = "low", verdict = IDLE, reason = "the gap is over"
  }
end)

test("what is held on the device has the rest of a gap, and no more", function(t)
  local s = t.sim { policy = "fikit.lua", mps = true, switch_us = 0 }
  s:client { name = "A", priority = 0 }
  s:client { name = "B", priority = 5, gates = true }
  learn(s, "B", 60)
  s:loop { client = "A", us = 500, gap_us = 900, at = 20000, count = 20 }
  s:run(60000)
  s:loop { client = "A", us = 500, at = 80000, count = 1 }
  s:loop { client = "B", us = 60, launches = 4000, at = 80100 }
  local before = s:stats("B")
  s:run(2300)                                 -- 0.9 to 1.3 ms were predicted
  t.near(s:stats("B").gpu_us - before.gpu_us, 1100, 250, "GPU time of B in a gap of 1.8 ms")
end)
