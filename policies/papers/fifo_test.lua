-- Who comes first is served first, whatever its priority.

local function order(s)
  local names = {}
  for _, launch in ipairs(s:log()) do names[#names + 1] = launch.client end
  return table.concat(names, " ")
end

test("launches run in the order in which they asked", function(t)
  local s = t.sim { policy = "fifo.lua", params = { depth = 1 } }
  for _, name in ipairs { "c", "a", "b" } do s:client { name = name, priority = 5 } end
  s:launch { client = "c", us = 200, at = 0 }
  s:launch { client = "b", us = 50, at = 10 }
  s:launch { client = "a", us = 90, at = 20 }
  s:launch { client = "b", us = 50, at = 30 }
  s:run(2000)
  t.eq(order(s), "c b a b", "order")
end)

test("priority buys nothing", function(t)
  local s = t.sim { policy = "fifo.lua", params = { depth = 1 } }
  s:client { name = "low", priority = 9 }
  s:client { name = "high", priority = 0 }
  s:launch { client = "low", us = 300 }
  s:launch { client = "low", us = 300 }
  s:launch { client = "high", us = 100, at = 50 }
  s:at(100):expect { running = "low", waiting = { "high", "low" } }
  t.eq(s:allowed("high"), GATE, "allowed to high")
  s:run(2000)
  t.eq(order(s), "low low high", "order")
end)

test("only `depth` launches are in flight", function(t)
  local s = t.sim { policy = "fifo.lua", params = { depth = 2 } }
  for _, name in ipairs { "a", "b", "c" } do
    s:client { name = name }
    s:launch { client = name, us = 500, blocks = 8 }
  end
  s:at(100):expect { running = { "a", "b" }, waiting = "c", verdict = IDLE,
                     reason = "enough in flight" }
end)

test("what a client had in flight when it left does not count for ever", function(t)
  local s = t.sim { policy = "fifo.lua", params = { depth = 1 } }
  s:client { name = "gone" }
  s:client { name = "stays" }
  s:launch { client = "gone", us = 5000 }
  s:run(100)
  s:remove("gone")
  s:launch { client = "stays", us = 100, at = 200 }
  s:at(290):expect { running = "stays" }
end)
