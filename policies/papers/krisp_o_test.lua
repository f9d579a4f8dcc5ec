local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("clients share a set rather than wait or get less", function(t)
  local s = t.sim { policy = "krisp_o.lua" }
  for i = 1, 8 do
    s:client { name = "c" .. i, gates = i > 4 }  -- who may wait on the GPU asks
    s:launch { client = "c" .. i, us = 2000, kernel = "small", blocks = 32, metrics = curve }
  end
  s:run(40000)
  for _, l in ipairs(s:log()) do t.eq(l.sms >= 32, true, "SMs") end
end)
