local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("kernels give up SMs beside others, and have all of them alone", function(t)
  local s = t.sim { policy = "right_size.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  s:loop { client = "a", us = 100, kernel = "small", metrics = curve, count = 4000 }
  s:run(100000)
  s:loop { client = "b", us = 100, kernel = "small", metrics = curve, count = 1000, at = 100000 }
  s:run(1000000)
  local alone, beside, after
  for _, l in ipairs(s:log()) do
    if l.client == "a" and l.at_us < 90000 then alone = l.sms end
    if l.client == "a" and l.at_us > 180000 and l.at_us < 190000 then beside = l.sms end
    if l.client == "a" then after = l.sms end
  end
  t.eq(alone, 132, "alone")
  t.eq(beside, 32, "beside b")
  t.eq(after, 132, "alone again")
end)

test("a kernel that is slower on fewer SMs shares them with one neighbour more", function(t)
  local s = t.sim { policy = "right_size.lua" }
  local slower = { us_on_1 = 340, us_on_2 = 200, us_on_4 = 129, us_on_8 = 118, us_on_all = 100 }
  for i = 1, 4 do
    s:client { name = "c" .. i }
    s:loop { client = "c" .. i, us = 100, kernel = "k", metrics = slower, count = 2000 }
  end
  s:run(200000)
  local function least()  -- of the last launches; the group that is left over has 12 SMs
    local log, found = s:log(), 132
    for i = #log - 8, #log do found = math.min(found, log[i].sms) end
    return found
  end
  t.eq(least(), 64, "two of four to an SM")
  s:reload { policy = "right_size.lua", params = { overlap = 1 } }
  s:run(200000)
  t.eq(least(), 32, "each its quarter")
end)
