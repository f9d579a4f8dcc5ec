local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

test("krisp_i: kernels of several clients get sets without others' work", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  for _, c in ipairs { "a", "b", "c", "d" } do
    s:client { name = c }
    s:launch { client = c, us = 2000, kernel = "small", blocks = 32, metrics = curve }
  end
  s:run(20000)
  local seen = 0
  for _, l in ipairs(s:log()) do
    t.eq(l.sms, l.set >= 0x8000 and 36 or 32, "SMs of the right size")
    for bit = 0, 15 do
      if math.floor(l.set / 2 ^ bit) % 2 == 1 then
        t.eq(math.floor(seen / 2 ^ bit) % 2, 0, "group " .. bit .. " was free")
      end
    end
    seen = seen + l.set
  end
  t.eq(seen, 0xffff, "all groups")
end)

-- KRISP's Algorithm 1: of the positions at groups 0, 4, 8 and 12 that with the fewest kernels.
test("krisp_i: the second of two clients runs where the first does not", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  for c, blocks in pairs { a = 64, b = 32 } do
    s:client { name = c }
    -- As fast on 8 groups as on all: 4 would make it twice as slow.
    local half = { us_on_1 = 800, us_on_2 = 400, us_on_4 = 200, us_on_8 = 102, us_on_all = 100 }
    s:loop { client = c, us = 2000, kernel = c, blocks = blocks, metrics = half, count = 20 }
  end
  s:run(40000)
  local set = {}
  for _, l in ipairs(s:log()) do set[l.client] = l.set end
  t.eq(set.a + set.b, 0xffff, "a half of the GPU each")
end)

-- Two launches that ran at the same time on one of the 16 groups.
local function met(log)
  for i, a in ipairs(log) do
    for j = i + 1, #log do
      local b = log[j]
      if a.client ~= b.client and a.at_us < b.end_us and b.at_us < a.end_us then
        for bit = 0, 15 do
          local both = math.floor(a.set / 2 ^ bit) % 2 + math.floor(b.set / 2 ^ bit) % 2
          if both == 2 then return a.client .. " and " .. b.client .. " on group " .. bit end
        end
      end
    end
  end
  return "none"
end

-- Section 5: "we allocate only what is available to the kernel", and "concurrent kernels are
-- isolated".
test("krisp_i: five clients never meet on a group", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  for i = 1, 5 do
    s:client { name = "c" .. i }
    s:loop { client = "c" .. i, us = 2000, kernel = "small", blocks = 32, metrics = curve,
             count = 20 }
  end
  s:run(100000)
  t.eq(met(s:log()), "none", "clients that met")
  t.eq(s:stats("c5").launches, 20, "launches of the fifth")
end)

test("krisp_i: who finds fewer SMs free than its kernel needs gets those", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  for i = 1, 3 do
    s:client { name = "c" .. i }
    s:launch { client = "c" .. i, us = 2000, kernel = "small", blocks = 32, metrics = curve }
  end
  s:client { name = "large" }
  local half = { us_on_1 = 800, us_on_2 = 400, us_on_4 = 200, us_on_8 = 102, us_on_all = 100 }
  s:launch { client = "large", us = 2000, kernel = "large", blocks = 64, metrics = half, at = 20 }
  s:run(20000)
  t.eq(s:log()[4].set, 0xf000, "the groups that three leave")
end)

test("krisp_i: a kernel without a curve beside others gets what they leave", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  s:client { name = "a" }
  s:client { name = "b" }
  s:loop { client = "a", us = 2000, kernel = "small", blocks = 32, metrics = curve, count = 20 }
  s:loop { client = "b", us = 500, kernel = "unmeasured", count = 20, at = 100 }
  s:run(100000)
  t.eq(met(s:log()), "none", "clients that met")
  t.eq(s:stats("b").launches, 20, "launches of b")
end)

test("a kernel without a curve runs on all SMs", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  s:client { name = "a" }
  s:launch { client = "a", us = 100 }
  s:run(5000)
  t.eq(s:log()[1].sms, 132, "SMs")
end)
