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
