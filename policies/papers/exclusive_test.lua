-- FIKIT's cases (Fig. 8, 11 and 12) without its filling, on the model of a time-sliced GPU.

local function sim(t)
  return t.sim { policy = "exclusive.lua", mps = false, switch_us = 0 }
end

test("case A: a late, more important program stops the other, who goes on after it", function(t)
  local s = sim(t)
  s:client { name = "low", priority = 5 }
  s:loop { client = "low", us = 200 }
  s:run(20000)
  s:client { name = "high", priority = 0 }
  s:loop { client = "high", us = 500, gap_us = 1500, count = 50, at = 20000 }
  s:run(30000)
  local before = s:stats("low").launches
  s:run(60000)
  t.eq(s:stats("low").launches, before, "launches of low in high's gaps")
  t.below(s:stats("high").mean_us, 500 * 1.02, "mean of high")
  s:run(100000)
  t.eq(s:stats("high").iterations, 50, "iterations of high")
  t.ok(s:stats("low").launches > before + 200, "low goes on, " .. s:stats("low").launches)
end)

test("case B: a late, less important program waits, whatever the gaps", function(t)
  local s = sim(t)
  s:client { name = "high", priority = 0 }
  s:loop { client = "high", us = 500, gap_us = 1500 }
  s:run(40000)
  s:client { name = "low", priority = 5 }
  s:loop { client = "low", us = 200, at = 40000 }
  s:run(100000)
  t.eq(s:stats("low").launches, 0, "launches of low")
  t.below(s:stats("high").mean_us, 500 * 1.02, "mean of high")
end)

test("case C: equals share", function(t)
  local s = sim(t)
  for _, name in ipairs { "A", "B" } do
    s:client { name = name, priority = 0 }
    s:loop { client = name, us = 500 }
  end
  s:run(100000)
  t.near(s:stats("A").launches, s:stats("B").launches, 10, "launches of A and B")
  t.ok(s:stats("A").launches > 50, "both run, " .. s:stats("A").launches)
end)

test("of three programs the second waits for the first, the third for both", function(t)
  local s = sim(t)
  for name, priority in pairs { A = 0, B = 3, C = 6 } do
    s:client { name = name, priority = priority }
  end
  -- C asks before B does.
  s:loop { client = "A", us = 500, gap_us = 1500, count = 10, at = 1000 }
  s:launch { client = "C", us = 300, at = 2000 }
  s:launch { client = "B", us = 300, at = 2100 }
  s:at(2700):expect { waiting = { "B", "C" }, verdict = IDLE,
                      reason = "a more important program is active" }
  s:run(100000)
  local order = {}
  for _, launch in ipairs(s:log()) do order[#order + 1] = launch.client end
  t.eq(table.concat(order, " "), ("A "):rep(10) .. "B C", "who ran")
end)
