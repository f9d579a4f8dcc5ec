-- A label has its GPU seconds in each period, and no more.

local function sim(t, quotas, params)
  params = params or {}
  params.quotas = quotas
  params.period_s = params.period_s or 0.1
  return t.sim { policy = "quota.lua", params = params, mps = false, starvation_us = 1e7 }
end

test("a label gets its quota in each period, however many clients it has", function(t)
  local s = sim(t, "train=0.02")
  for _, name in ipairs { "a", "b" } do
    s:client { name = name, label = "train", priority = 5 }
    s:loop { client = name, us = 400, launches = 10, blocks = 264 }
  end
  s:run(1000000)
  local us = s:stats("a").gpu_us + s:stats("b").gpu_us
  t.near(us / 1e6, 10 * 0.02, 0.015, "GPU seconds of train")
end)

test("what is used up holds nobody else up", function(t)
  local s = sim(t, "spent=0.01")
  s:client { name = "high", label = "spent", priority = 0 }
  s:client { name = "low", label = "free", priority = 9 }
  s:loop { client = "high", us = 400, launches = 10, blocks = 264 }
  s:loop { client = "low", us = 400, launches = 10, blocks = 264 }
  s:run(1000000)
  t.near(s:stats("high").gpu_us / 1e6, 0.1, 0.02, "GPU seconds of the label with a quota")
  t.below(0.75, s:stats("low").gpu_us / 1e6, "GPU seconds of the other")
end)

test("within their quotas the most important goes first", function(t)
  local s = sim(t, "one=10,two=10", { period_s = 100 })
  s:client { name = "high", label = "one", priority = 0 }
  s:client { name = "low", label = "two", priority = 9 }
  s:launch { client = "high", us = 800 }
  s:launch { client = "low", us = 100, at = 10 }
  s:at(400):expect { running = "high", waiting = "low", verdict = IDLE,
                     reason = "a more important client runs" }
end)

test("what waits for its quota goes when the next period begins", function(t)
  local s = sim(t, "train=0.001")
  s:client { name = "a", label = "train", priority = 5 }
  s:loop { client = "a", us = 500, blocks = 264 }
  s:at(50000):expect { waiting = "a", verdict = IDLE, reason = "its quota is used up" }
  local before = s:stats("a").launches
  s:run(60000)
  t.below(before, s:stats("a").launches, "launches of the first period")
end)

test("who leaves takes no quota along", function(t)
  local s = sim(t, "train=0.02", { period_s = 10 })
  for i = 1, 5 do
    s:client { name = "c" .. i, label = "train", priority = 5 }
    s:loop { client = "c" .. i, us = 400, launches = 10, blocks = 264 }
    s:run(30000)
    s:remove("c" .. i)
  end
  local all = 0
  for _, launch in ipairs(s:log()) do all = all + launch.end_us - launch.at_us end
  t.near(all / 1e6, 0.02, 0.003, "GPU seconds of train")
end)

test("labels that are not named have default_s", function(t)
  local s = sim(t, "", { default_s = 0.01 })
  s:client { name = "a", label = "any", priority = 5 }
  s:loop { client = "a", us = 400, launches = 10, blocks = 264 }
  s:run(1000000)
  t.near(s:stats("a").gpu_us / 1e6, 0.1, 0.015, "GPU seconds")
end)

test("work in flight is limited", function(t)
  local s = sim(t, "x=100", { depth_us = 250 })
  for i = 1, 4 do
    s:client { name = "c" .. i, label = "x", priority = 5 }
    s:launch { client = "c" .. i, us = 100, at = 10 * i, blocks = 8 }
  end
  s:at(60):expect { waiting = { "c3", "c4" }, reason = "enough in flight" }
end)

test("a label is served beside an equal without a quota", function(t)
  local s = t.sim { policy = "quota.lua", params = { quotas = "train=50" } }
  s:client { name = "free", priority = 5 }
  s:client { name = "train", label = "train", priority = 5 }
  s:loop { client = "free", us = 400, launches = 1000, gap_us = 5000, blocks = 264 }
  s:loop { client = "train", us = 400, launches = 20, gap_us = 1000, blocks = 264 }
  s:run(2000000)
  local train, free = s:stats("train").launches, s:stats("free").launches
  t.ok(train > free / 2, train .. " of train, " .. free)
end)

test("a label whose launches are held on the device gets its quota", function(t)
  local s = sim(t, "train=0.02")
  s:client { name = "a", label = "train", priority = 5, gates = true }
  s:loop { client = "a", us = 40, launches = 2000, blocks = 264 }
  s:run(1000000)
  t.near(s:stats("a").gpu_us / 1e6, 10 * 0.02, 0.02, "GPU seconds of train")
end)
