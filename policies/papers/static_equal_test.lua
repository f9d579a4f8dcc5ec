test("two clients at work have half of the SMs each, and who is alone has all", function(t)
  local s = t.sim { policy = "static_equal.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  s:launch { client = "a", us = 100 }
  s:run(100000)
  s:loop { client = "a", us = 500, count = 40, at = 100000 }
  s:loop { client = "b", us = 500, count = 40, at = 100000 }
  s:run(200000)
  local all = s:log()
  t.eq(all[1].sms, 132, "SMs of who is alone")
  local sets = {}
  for _, l in ipairs(all) do
    if l.at_us > 105000 and l.at_us < 115000 then sets[l.client] = l.set end
  end
  t.eq(sets.a, 0x00ff, "the first eight groups")
  t.eq(sets.b, 0xff00, "the other eight")
end)

local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("with curves a kernel takes the groups from its client's anchor that it needs", function(t)
  local s = t.sim { policy = "static_equal.lua", params = { curves = true } }
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

test("with curves a kernel without a curve keeps to its client's part", function(t)
  local s = t.sim { policy = "static_equal.lua", params = { curves = true } }
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
