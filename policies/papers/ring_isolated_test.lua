local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("a kernel takes the groups from its client's anchor on that its curve says", function(t)
  local s = t.sim { policy = "ring_isolated.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  for _, name in ipairs { "a", "b" } do
    s:loop { client = name, us = 100, kernel = "small", metrics = curve, count = 50 }
  end
  s:run(50000)
  local sets = {}
  for _, l in ipairs(s:log()) do sets[l.client] = l.set end
  t.eq(sets.a, 0x000f, "four groups")
  t.eq(sets.b, 0x0f00, "four groups from the anchor on")
  t.eq(s:stats("a").asks + s:stats("b").asks, 0, "asks")
end)

test("a kernel without a curve keeps to its client's part", function(t)
  local s = t.sim { policy = "ring_isolated.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  for _, name in ipairs { "a", "b" } do s:loop { client = name, us = 500, count = 50 } end
  s:run(50000)
  for _, l in ipairs(s:log()) do
    if l.at_us > 5000 and l.at_us < 20000 then
      t.eq(l.set, l.client == "a" and 0x00ff or 0xff00, l.client)
    end
  end
end)
