test("two clients of any priority run side by side on all SMs", function(t)
  local s = t.sim { policy = "mps_default.lua" }
  s:client { name = "a", priority = 0 }
  s:client { name = "b", priority = 9 }
  s:launch { client = "a", us = 1000, blocks = 60 }
  s:launch { client = "b", us = 1000, blocks = 60 }
  s:at(300):expect { running = { "a", "b" } }
  s:run(5000)
  for _, l in ipairs(s:log()) do t.eq(l.sms, 132, "SMs") end
  t.eq(s:stats("b").asks, 0, "asks")
end)
