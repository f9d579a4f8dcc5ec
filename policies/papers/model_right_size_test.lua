local small = { us_on_1 = 104, us_on_2 = 102, us_on_4 = 101, us_on_8 = 100, us_on_all = 100 }
local large = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 300, us_on_8 = 104, us_on_all = 100 }

test("all kernels of a program have the size of its knee", function(t)
  local s = t.sim { policy = "model_right_size.lua" }
  s:client { name = "a" }
  s:loop { client = "a", us = 100, kernel = "small", metrics = small, count = 20 }
  s:loop { client = "a", us = 100, kernel = "large", metrics = large, count = 20, at = 500 }
  s:run(20000)
  local last = {}
  for _, l in ipairs(s:log()) do last[l.kernel] = l.sms end
  t.eq(last.large, last.small, "one size")
  t.eq(last.large, 64, "eight groups")
end)

-- KRISP section 5: the knee is that of the model's latency, to which each launch adds.
test("a kernel counts as often as it is launched", function(t)
  local s = t.sim { policy = "model_right_size.lua" }
  s:client { name = "a" }
  s:loop { client = "a", us = 100, kernel = "large", metrics = large, gap_us = 20000 }
  s:loop { client = "a", us = 100, kernel = "small", metrics = small, at = 500 }
  s:run(300000)
  local log = s:log()
  t.eq(log[#log].sms, 32, "SMs, of which large alone needs 64 and small alone 8")
end)

test("a size that was not measured, or cannot be true, is not chosen", function(t)
  local gap = { us_on_2 = 500, us_on_4 = 300, us_on_8 = 104, us_on_all = 100 }
  local wrong = { us_on_1 = 100, us_on_2 = 215, us_on_4 = 173, us_on_8 = 138, us_on_all = 100 }
  local small_gap = { us_on_2 = 103, us_on_4 = 102, us_on_8 = 101, us_on_all = 100 }
  for _, case in ipairs { { gap, 64 }, { small_gap, 16 }, { wrong, 132 } } do
    local s = t.sim { policy = "model_right_size.lua" }
    s:client { name = "a" }
    s:loop { client = "a", us = 100, kernel = "k", metrics = case[1], count = 20 }
    s:run(20000)
    local log = s:log()
    t.eq(log[#log].sms, case[2], "SMs")
  end
end)

test("a program without curves keeps all SMs", function(t)
  local s = t.sim { policy = "model_right_size.lua" }
  s:client { name = "a" }
  s:loop { client = "a", us = 100, count = 20 }
  s:run(20000)
  for _, l in ipairs(s:log()) do t.eq(l.sms, 132, "SMs") end
end)

test("a size that is given holds for every program, measured or not", function(t)
  local s = t.sim { policy = "model_right_size.lua", params = { sms = 32 } }
  s:client { name = "a" }
  s:loop { client = "a", us = 100, count = 20 }
  s:loop { client = "a", us = 100, kernel = "large", metrics = large, count = 20, at = 500 }
  s:run(20000)
  local last = {}
  for _, l in ipairs(s:log()) do last[l.kernel or ""] = l.sms end
  for _, sms in pairs(last) do t.eq(sms, 32, "SMs") end
  s:reload { policy = "model_right_size.lua", params = { sms = 64 } }
  s:loop { client = "a", us = 100, count = 5 }
  s:run(2000)
  local log = s:log()
  t.eq(log[#log].sms, 64, "SMs, as heddle policy set loads it")
end)
