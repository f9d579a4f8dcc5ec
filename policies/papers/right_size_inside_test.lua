test("the old name still gives kernels fewer SMs beside others", function(t)
  local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }
  local s = t.sim { policy = "right_size_inside.lua" }
  for _, name in ipairs { "a", "b" } do
    s:client { name = name }
    s:loop { client = name, us = 100, kernel = "small", metrics = curve, count = 2000 }
  end
  s:run(200000)
  local beside
  for _, l in ipairs(s:log()) do
    if l.client == "a" and l.at_us > 100000 then beside = l.sms end
  end
  t.eq(beside, 32, "beside b")
end)
