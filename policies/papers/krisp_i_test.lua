local curve = { us_on_1 = 900, us_on_2 = 500, us_on_4 = 104, us_on_8 = 101, us_on_all = 100 }

for _, name in ipairs { "krisp_i", "krisp_o" } do
  test(name .. ": kernels of several clients get sets without others' work", function(t)
    local s = t.sim { policy = name .. ".lua" }
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
end

-- KRISP's Algorithm 1: of the positions at groups 0, 4, 8 and 12 that with the fewest kernels.
for _, name in ipairs { "krisp_i", "krisp_o" } do
  test(name .. ": the second of two clients runs where the first does not", function(t)
    local s = t.sim { policy = name .. ".lua" }
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
end

test("krisp_i: who finds no free set gets a smaller one, krisp_o the size it asked for", function(t)
  for _, name in ipairs { "krisp_i", "krisp_o" } do
    local s = t.sim { policy = name .. ".lua" }
    for i = 1, 5 do
      s:client { name = "c" .. i }
      s:launch { client = "c" .. i, us = 2000, kernel = "small", blocks = 32, metrics = curve }
    end
    s:run(20000)
    local all = s:log()
    t.eq(all[5].sms, name == "krisp_i" and 16 or 32, name)
  end
end)

test("a kernel without a curve runs on all SMs", function(t)
  local s = t.sim { policy = "krisp_i.lua" }
  s:client { name = "a" }
  s:launch { client = "a", us = 100 }
  s:run(5000)
  t.eq(s:log()[1].sms, 132, "SMs")
end)
