-- Equals share by weight, at the top as well as below it.

local modes = { true, false }

for _, mps in ipairs(modes) do
  test("shares hold between equals, mps=" .. tostring(mps), function(t)
    local s = t.sim { policy = "fair.lua", mps = mps }
    s:client { name = "a", share = 3, priority = 5 }
    s:client { name = "b", share = 1, priority = 5 }
    s:loop { client = "a", us = 500, launches = 20, blocks = 264, threads = 1024 }
    s:loop { client = "b", us = 500, launches = 20, blocks = 264, threads = 1024 }
    s:run(2000000)
    s:shares { a = 3, b = 1 }
  end)

  test("shares hold whatever they launch, mps=" .. tostring(mps), function(t)
    local s = t.sim { policy = "fair.lua", mps = mps }
    s:client { name = "long", share = 2, priority = 0 }
    s:client { name = "short", priority = 0 }
    s:loop { client = "long", us = 10000, launches = 4, blocks = 264 }
    s:loop { client = "short", us = 60, launches = 100, blocks = 264 }
    s:run(2000000)
    t.near(s:stats("long").gpu_us / s:stats("short").gpu_us, 2, 0.2, "share of the GPU")
  end)

  test("shares hold between programs whose kernels leave room, mps=" .. tostring(mps), function(t)
    local s = t.sim { policy = "fair.lua", mps = mps }
    s:client { name = "a", share = 3, priority = 5 }
    s:client { name = "b", share = 1, priority = 5 }
    for _, name in ipairs { "a", "b" } do
      s:loop { client = name, us = 50, launches = 100, blocks = 264, threads = 256 }
    end
    s:run(1000000)
    s:shares { a = 3, b = 1 }
  end)

  test("shares hold between any number of clients, mps=" .. tostring(mps), function(t)
    local s = t.sim { policy = "fair.lua", mps = mps, params = { turn_us = 1000 } }
    for i = 1, 70 do
      s:client { name = "c" .. i, share = 1 + i % 2, priority = 9 }
      s:loop { client = "c" .. i, us = 200, launches = 5, blocks = 264 }
    end
    s:run(1500000)
    local one, two = 0, 0
    for i = 2, 70, 2 do
      one = one + s:stats("c" .. i).gpu_us
      two = two + s:stats("c" .. i - 1).gpu_us
    end
    t.near(two / one, 2, 0.2, "share of the GPU")
    local _, faults = s:fault()
    t.eq(faults, 0, "faults")
  end)

  test("costs little of what fifo gives, mps=" .. tostring(mps), function(t)
    local function work_us(policy)
      local s = t.sim { policy = policy, mps = mps }
      for _, name in ipairs { "a", "b" } do
        s:client { name = name }
        s:loop { client = name, us = 100, launches = 50, blocks = 264 }
      end
      s:run(500000)
      return 100 * (s:stats("a").launches + s:stats("b").launches)
    end
    t.below(0.97 * work_us("papers/fifo.lua"), work_us("fair.lua"), "97 % of the work under fifo")
  end)
end

test("under MPS long kernels that leave room run side by side", function(t)
  local s = t.sim { policy = "fair.lua" }
  for _, name in ipairs { "a", "b" } do
    s:client { name = name }
    s:loop { client = name, us = 5000, launches = 10, blocks = 66 }
  end
  s:run(500000)
  t.below(1.8 * 500, 5 * (s:stats("a").launches + s:stats("b").launches), "ms of kernels")
end)

test("who is alone is leased until another works", function(t)
  local s = t.sim { policy = "fair.lua" }
  s:client { name = "a", priority = 9 }
  s:client { name = "b", priority = 9 }
  s:loop { client = "a", us = 500, launches = 20 }
  s:run(20000)
  t.eq(s:allowed("a"), LEASE, "allowed to a alone")
  t.eq(s:stats("a").asks, 1, "asks of a alone")
  s:loop { client = "b", us = 500, at = 20000, count = 10 }
  s:run(1000)
  t.eq(s:allowed("a"), GATE, "allowed to a beside b")
  s:run(100000)
  t.eq(s:allowed("a"), LEASE, "allowed to a after b")
end)

test("time alone is not held against a client", function(t)
  local s = t.sim { policy = "fair.lua" }
  s:client { name = "a" }
  s:loop { client = "a", us = 500, launches = 20, blocks = 264 }
  for i = 1, 4 do
    s:client { name = "b" .. i }
    s:loop { client = "b" .. i, us = 500, launches = 20, blocks = 264, at = 500000 }
  end
  s:run(520000)                               -- the work that client a had queued has run
  local before = s:stats("a").gpu_us
  s:run(200000)
  t.near(s:stats("a").gpu_us - before, 200000 / 5, 4000, "GPU time of a among five")
end)

test("who comes does not wait for what was launched by lease", function(t)
  local s = t.sim { policy = "fair.lua", mps = false }
  for _, name in ipairs { "a", "b" } do s:client { name = name } end
  s:loop { client = "a", us = 500, launches = 400, blocks = 264 }
  s:launch { client = "b", us = 100, at = 10000, sync = true }
  s:run(20000)
  t.eq(s:stats("b").launches, 1, "launches of b, whose work a's queue of 200 ms would hold up")
end)

test("a pause saves up little", function(t)
  local s = t.sim { policy = "fair.lua" }
  for _, name in ipairs { "a", "b", "late" } do s:client { name = name } end
  for _, name in ipairs { "a", "b" } do
    s:loop { client = name, us = 500, launches = 20, blocks = 264 }
  end
  s:loop { client = "late", us = 500, launches = 20, blocks = 264, at = 500000 }
  s:run(600000)
  t.near(s:stats("late").gpu_us, 100000 / 3 + 10000, 10000, "GPU time of late")
end)

test("who asks for less than its part is served soon", function(t)
  local s = t.sim { policy = "fair.lua" }
  for _, name in ipairs { "busy", "few" } do s:client { name = name } end
  s:loop { client = "busy", us = 200, launches = 100, blocks = 264 }
  s:loop { client = "few", us = 100, gap_us = 1000, blocks = 264 }
  s:run(500000)
  t.below(s:stats("few").p99_us, 1500, "iterations of few")
end)

test("who asks for less than its part leaves the rest to others", function(t)
  local s = t.sim { policy = "fair.lua" }
  for _, name in ipairs { "long", "few" } do s:client { name = name } end
  s:loop { client = "long", us = 10000, launches = 10, blocks = 264 }
  s:loop { client = "few", us = 20, gap_us = 1000, blocks = 264 }
  s:run(500000)
  t.below(0.95 * 500000, s:stats("long").gpu_us, "95 % of the time")
end)

test("time-sliced, one client is on the GPU at a time", function(t)
  local s = t.sim { policy = "fair.lua", mps = false }
  for _, name in ipairs { "a", "b" } do
    s:client { name = name }
    s:loop { client = name, us = 300, launches = 20, blocks = 264 }
  end
  s:run(200000)
  local last
  for _, launch in ipairs(s:log()) do
    if launch.at_us > 20000 then              -- a's leased launches have run by then
      if last and last.client ~= launch.client then
        t.below(last.end_us - 1, launch.at_us, "end of " .. last.client .. "'s turn")
      end
      last = launch.end_us > 0 and launch or last
    end
  end
end)

test("less important work waits while more important work runs", function(t)
  local s = t.sim { policy = "fair.lua" }
  s:client { name = "high", priority = 0 }
  s:client { name = "low", priority = 9 }
  s:loop { client = "high", us = 800, gap_us = 100, count = 4 }
  s:launch { client = "low", us = 100, at = 10 }
  s:at(400):expect { running = "high", waiting = "low", verdict = IDLE,
                     reason = "a more important client runs" }
  t.eq(s:allowed("high"), LEASE, "allowed to high, alone at the top")
end)

test("the most important of those that wait goes first", function(t)
  local s = t.sim { policy = "fair.lua" }
  for name, priority in pairs { q0 = 0, q5 = 5, q7 = 7 } do
    s:client { name = name, priority = priority }
  end
  s:launch { client = "q0", us = 400, sync = true }
  s:launch { client = "q7", us = 100, at = 10 }
  s:launch { client = "q5", us = 100, at = 20 }
  s:run(2000)
  local log = s:log()
  t.eq(log[2].client .. " " .. log[3].client, "q5 q7", "the second and third to run")
end)

for _, mps in ipairs { true, false } do
  local name = "time before it was loaded is not held against a client"
  test(name .. ", mps=" .. tostring(mps), function(t)
    local s = t.sim { mps = mps, policy = "fair.lua" }
    s:client { name = "old" }
    s:loop { client = "old", us = 500, launches = 20, blocks = 264 }
    s:run(5000000)
    s:client { name = "new" }
    for _ = 1, 3 do
      s:loop { client = "new", us = 500, launches = 20, blocks = 264, at = 5000000 }
    end
    s:run(1000000)
    local old, new = s:stats("old").gpu_us, s:stats("new").gpu_us
    s:reload { policy = "fair.lua" }
    s:run(1000000)
    t.near((s:stats("old").gpu_us - old) / (s:stats("new").gpu_us - new), 1, 0.1, "old over new")
  end)
end

for _, mps in ipairs(modes) do
  test("shares hold where launches are held on the device, mps=" .. tostring(mps), function(t)
    local s = t.sim { policy = "fair.lua", mps = mps }
    s:client { name = "a", share = 3, priority = 5, gates = true }
    s:client { name = "b", share = 1, priority = 5, gates = true }
    s:loop { client = "a", us = 50, launches = 2000, blocks = 264, threads = 1024 }
    s:loop { client = "b", us = 50, launches = 2000, blocks = 264, threads = 1024 }
    s:run(2000000)
    t.near(s:stats("a").gpu_us / s:stats("b").gpu_us, 3, 0.3, "share of the GPU")
  end)
end
