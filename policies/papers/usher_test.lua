-- Usher's rule, on the model of a GPU under MPS.
local c_heavy = { occupancy_pct = 70, dram_pct = 20 }
local m_heavy = { occupancy_pct = 20, dram_pct = 70 }
local light = { occupancy_pct = 6.25, dram_pct = 1 }

-- A latency-critical program whose kernels of 500 µs follow each other, and one launch beside it.
local function launches(t, hp, be, params)
  local s = t.sim { policy = "usher.lua", mps = true, params = params }
  s:client { name = "hp", priority = 0 }
  s:client { name = "be", priority = 9 }
  s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = hp }
  s:loop { client = "be", us = 50, blocks = 32, kernel = "b", metrics = be, at = 50000 }
  s:run(400000)
  return s:stats("be").launches
end

test("C-heavy goes beside M-heavy, not beside C-heavy", function(t)
  local other, same = launches(t, c_heavy, m_heavy), launches(t, c_heavy, c_heavy)
  t.ok(other > 10 * same, other .. " beside M-heavy, " .. same .. " beside C-heavy")
end)

test("M-heavy waits for M-heavy", function(t)
  t.ok(launches(t, m_heavy, m_heavy) < launches(t, m_heavy, c_heavy) / 10, "memory")
end)

test("kernels of little occupancy share the GPU, whatever else they use", function(t)
  t.ok(launches(t, light, light) > 0.8 * launches(t, c_heavy, m_heavy), "the paper's pitfall")
end)

test("a kernel that nobody measured waits for the critical one", function(t)
  t.ok(launches(t, light, nil) < launches(t, light, light) / 10, "unknown")
end)

test("what nobody measured of a graph counts as all of the GPU", function(t)
  local function beside_graph(unknown_pct)
    local s = t.sim { policy = "usher.lua", mps = true }
    s:client { name = "hp", priority = 0 }
    s:client { name = "be", priority = 9 }
    s:loop { client = "hp", us = 500, launches = 40, nodes = 4, kernel = "h",
             metrics = { occupancy_pct = 20, dram_pct = 20, unknown_pct = unknown_pct } }
    s:loop { client = "be", us = 50, blocks = 32, kernel = "b", at = 50000,
             metrics = { occupancy_pct = 50, dram_pct = 1 } }
    s:run(400000)
    return s:stats("be").launches
  end
  local measured, half = beside_graph(0), beside_graph(50)
  t.ok(measured > 10 * half, measured .. " at 70 % in all, " .. half .. " at 110 %")
end)

test("the sum is a parameter", function(t)
  t.ok(launches(t, c_heavy, c_heavy, { sum_pct = 150 }) > 10 * launches(t, c_heavy, c_heavy),
       "140 %")
end)

test("three kernels share it while the sum of all is below 100 %", function(t)
  local function third(occupancy_pct)
    local s = t.sim { policy = "usher.lua", mps = true }
    s:client { name = "hp", priority = 0 }
    s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h",
             metrics = { occupancy_pct = 40, dram_pct = 1 } }
    s:client { name = "a", priority = 8 }
    s:loop { client = "a", us = 400, blocks = 32, kernel = "a", at = 50000,
             metrics = { occupancy_pct = 40, dram_pct = 1 } }
    s:client { name = "b", priority = 9 }
    s:loop { client = "b", us = 50, blocks = 32, kernel = "b", at = 50000,
             metrics = { occupancy_pct = occupancy_pct, dram_pct = 1 } }
    s:run(400000)
    return s:stats("b").launches
  end
  local little, much = third(15), third(25)
  t.ok(little > 3 * much, little .. " at 95 % in all, " .. much .. " at 105 %")
end)

test("of two that wait, what the GPU has less of goes first", function(t)
  local s = t.sim { policy = "usher.lua", mps = true }
  s:client { name = "hp", priority = 0 }
  s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h",
           metrics = { occupancy_pct = 50, dram_pct = 10 } }
  local function waits(name, at, us, metrics)
    s:client { name = name, priority = 9 }
    s:launch { client = name, us = us, blocks = 16, kernel = name, metrics = metrics, at = at }
  end
  waits("before", 50000, 3000, { occupancy_pct = 45, dram_pct = 10 })
  waits("c", 50200, 3000, { occupancy_pct = 45, dram_pct = 10 })
  waits("m", 50400, 3000, { occupancy_pct = 30, dram_pct = 70 })
  s:run(100000)
  local at = {}
  for _, l in ipairs(s:log()) do at[l.client] = l.at_us end
  t.ok(at.before < at.m and at.m + 2900 < at.c, "before, m, c: " .. at.before .. ", " .. at.m ..
       ", " .. at.c)
end)

test("alone it runs at once", function(t)
  local s = t.sim { policy = "usher.lua", mps = true }
  s:client { name = "be", priority = 9 }
  s:launch { client = "be", us = 50 }
  s:at(40):expect { running = "be" }
end)

test("a kernel that must wait holds up none behind it", function(t)
  local s = t.sim { policy = "usher.lua", mps = true }
  s:client { name = "hp", priority = 0 }
  s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = light }
  for i = 1, 20 do
    s:client { name = "unknown" .. i, priority = 8 }
    s:loop { client = "unknown" .. i, us = 50, blocks = 32, kernel = "u", at = 50000 }
  end
  s:client { name = "light", priority = 9 }
  s:loop { client = "light", us = 50, blocks = 32, kernel = "l", metrics = light, at = 50000 }
  s:run(400000)
  t.ok(s:stats("light").launches > 1000, s:stats("light").launches .. " launches")
end)

test("one that its equals keep out is not overtaken for ever", function(t)
  local s = t.sim { policy = "usher.lua", mps = true, starvation_us = 1e7 }
  s:client { name = "hp", priority = 0 }
  s:loop { client = "hp", us = 500, launches = 4000, blocks = 66, kernel = "h", metrics = light }
  for i, name in ipairs { "a", "b", "c" } do          -- some of them are always at work
    s:client { name = name, priority = 9 }
    s:loop { client = name, us = 170 + 30 * i, blocks = 16, kernel = name,
             metrics = { occupancy_pct = 30, dram_pct = 1 }, at = 50000 }
  end
  s:client { name = "large", priority = 9 }
  s:loop { client = "large", us = 200, blocks = 32, kernel = "l",
           metrics = { occupancy_pct = 80, dram_pct = 1 }, at = 50000 }
  s:run(400000)
  t.ok(s:stats("large").launches > 50, s:stats("large").launches .. " launches")
end)
