local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("kernels outside graphs are sized as right_size does", function(t)
  local s = t.sim { policy = "right_size_inside.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  s:loop { client = "a", us = 100, kernel = "small", metrics = curve, count = 4000 }
  s:run(100000)
  s:loop { client = "b", us = 100, kernel = "small", metrics = curve, count = 1000, at = 100000 }
  s:run(1000000)
  local alone, beside
  for _, l in ipairs(s:log()) do
    if l.client == "a" and l.at_us < 90000 then alone = l.sms end
    if l.client == "a" and l.at_us > 180000 and l.at_us < 190000 then beside = l.sms end
  end
  t.eq(alone, 132, "alone")
  t.eq(beside, 32, "beside b")
end)
