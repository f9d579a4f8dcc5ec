-- A label has its SMs, from the next launch after a change on.

local function sim(t, sizes)
  local s = t.sim { policy = "shares.lua", params = { sizes = sizes } }
  for _, name in ipairs { "api", "embed", "other" } do s:client { name = name, label = name } end
  return s
end

local function last_of(s)
  local sms = {}
  for _, l in ipairs(s:log()) do sms[l.client] = l.sms end
  return sms
end

test("each label has its SMs, who is not named has all", function(t)
  local s = sim(t, "api=64,embed=32")
  for _, name in ipairs { "api", "embed", "other" } do
    s:loop { client = name, us = 500, count = 10 }
  end
  s:run(100000)
  local sms = last_of(s)
  t.eq(sms.api, 64, "SMs of api")
  t.eq(sms.embed, 32, "SMs of embed")
  t.eq(sms.other, 132, "SMs of the label that is not named")
end)

test("the sets of two labels that fit side by side do not meet", function(t)
  local s = t.sim { policy = "shares.lua", params = { sizes = "api=64,embed=64" } }
  for _, name in ipairs { "api", "embed" } do
    s:client { name = name, label = name }
    s:loop { client = name, us = 500, count = 10 }
  end
  s:run(100000)
  local sets = {}
  for _, l in ipairs(s:log()) do sets[l.client] = l.set end
  t.eq(bit.band(sets.api, sets.embed), 0, "groups that both have")
end)

test("a change holds from the next launches on, and 0 gives all back", function(t)
  local s = sim(t, "api=64")
  s:loop { client = "api", us = 500, count = 400 }
  s:run(20000)
  t.eq(last_of(s).api, 64, "SMs before")
  s:reload { policy = "shares.lua", params = { sizes = "api=16,embed=32" } }
  s:run(20000)
  t.eq(last_of(s).api, 16, "SMs after a change")
  s:reload { policy = "shares.lua", params = { sizes = "api=0" } }
  s:run(20000)
  t.eq(last_of(s).api, 132, "SMs after it was given all")
end)

test("blanks around labels and numbers mean nothing", function(t)
  local s = sim(t, " api = 64 , embed= 32 ")
  for _, name in ipairs { "api", "embed" } do s:loop { client = name, us = 500, count = 10 } end
  s:run(100000)
  local sms = last_of(s)
  t.eq(sms.api, 64, "SMs of api")
  t.eq(sms.embed, 32, "SMs of embed")
end)
