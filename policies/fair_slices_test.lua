-- Time-sliced, with a time slice for each client: equals share by their slices, and none is held
-- for another. Simulated.

local function begin(t, clients, more)
  more = more or {}
  local s = t.sim { policy = "fair.lua", mps = false, params = more.params }
  for _, c in ipairs(clients) do
    s:client { name = c[1], share = c[2], priority = 5, gates = more.gates,
               stops = c[1] ~= more.fixed }
    s:loop { client = c[1], us = more.us or 20000, launches = 10, blocks = 264 }
  end
  return s
end

for _, gates in ipairs { false, true } do
  test("slices are the shares of busy equals, gates=" .. tostring(gates), function(t)
    local s = begin(t, { { "a", 3 }, { "b", 1 } }, { gates = gates })
    s:run(4000000)
    local a, b = s:stats("a"), s:stats("b")
    t.near(a.gpu_us / b.gpu_us, 3, 0.15, "a over b")
    t.below(0.9 * 4000000, a.gpu_us + b.gpu_us, "both of them")
    t.eq(a.asks + b.asks, 2, "asks: nobody is held")
    t.eq(a.stops + b.stops, 0, "stops")
  end)
end

test("slices follow the least share", function(t)
  local s = begin(t, { { "a", 10 }, { "b", 10 }, { "c", 20 } }, { us = 700 })
  s:run(2000000)
  s:shares { a = 1, b = 1, c = 2 }
  t.below(s:stats("a").max_us, 10 * 700 * 4.2 + 4000, "ten kernels of a: its slice is a short one")
end)

test("who can have no slice has its share by turns, and so have those beside it", function(t)
  local s = begin(t, { { "a", 3 }, { "b", 1 } }, { fixed = "b" })
  s:run(4000000)
  s:shares { a = 3, b = 1 }
  t.below(20, s:stats("a").asks, "asks of a")
end)

test("below the top one is on the GPU at a time, and is stopped", function(t)
  local s = t.sim { policy = "fair.lua", mps = false }
  s:client { name = "service", priority = 0, stops = true }
  s:loop { client = "service", us = 1000, gap_us = 9000, blocks = 264 }
  s:run(200000)
  for _, name in ipairs { "a", "b" } do
    s:client { name = name, priority = 5, stops = true }
    s:loop { client = name, us = 20000, launches = 10, blocks = 264 }
  end
  s:run(1000000)                               -- launches let go before they were learned have run
  local before = s:stats("service")
  s:run(3000000)
  local now = s:stats("service")
  local took_us = now.mean_us * now.iterations - before.mean_us * before.iterations
  t.below(took_us / (now.iterations - before.iterations), 1250, "a request, 1000 us alone")
  t.below(0.8 * 0.9 * 4000000, s:stats("a").gpu_us + s:stats("b").gpu_us, "both of them")
end)
