-- What a rule requests of the GPU's time is had beside others, and what it limits is never passed:
-- both within two points.

local POINTS = 0.02
local US = 4000000

local function part(s, name) return s:stats(name).gpu_us / US end
local function busy(s, name, us)
  s:loop { client = name, us = us, launches = 20, blocks = 264, threads = 1024 }
end

for _, mps in ipairs { true, false } do
  for _, gates in ipairs { true, false } do
    for _, us in ipairs { 80, 700, 9000 } do
      local how = ", mps=" .. tostring(mps) .. ", gates=" .. tostring(gates) .. ", us=" .. us

      test("four that are busy have what they request" .. how, function(t)
        local s = t.sim { policy = "auto.lua", mps = mps }
        for _, request in ipairs { 40, 30, 20, 10 } do
          local name = "r" .. request
          s:client { name = name, priority = 5, request = request / 100, gates = gates }
          busy(s, name, us)
        end
        s:run(US)
        for _, request in ipairs { 40, 30, 20, 10 } do
          t.near(part(s, "r" .. request), request / 100, POINTS, "r" .. request)
        end
      end)

      test("what one leaves others have, up to their limits" .. how, function(t)
        local s = t.sim { policy = "auto.lua", mps = mps }
        s:client { name = "idle", priority = 5, request = 0.4, gates = gates }
        s:client { name = "held", priority = 5, request = 0.2, limit = 0.3, gates = gates }
        s:client { name = "rest", priority = 5, request = 0.1, gates = gates }
        for _, name in ipairs { "held", "rest" } do busy(s, name, us) end
        s:run(US)
        t.near(part(s, "held"), 0.3, POINTS, "held")
        t.ok(part(s, "rest") > 0.6, "rest has what is left, not " .. part(s, "rest"))
      end)

      test("who bursts has what it requests at once, and takes nobody's" .. how, function(t)
        local s = t.sim { policy = "auto.lua", mps = mps }
        for _, request in ipairs { 40, 30, 20, 10 } do
          local name = "r" .. request
          s:client { name = name, priority = 5, request = request / 100, gates = gates }
          if request < 40 then busy(s, name, us) end
        end
        s:run(US)
        local before = {}
        for _, request in ipairs { 30, 20, 10 } do
          before[request] = s:stats("r" .. request).gpu_us
        end
        busy(s, "r40", us)
        s:run(1000000)
        local points = POINTS + 2 * us / 1000000  -- two kernels
        t.below(0.4 - points, s:stats("r40").gpu_us / 1000000, "r40")
        for _, request in ipairs { 30, 20, 10 } do
          local part = (s:stats("r" .. request).gpu_us - before[request]) / 1000000
          t.below(request / 100 - points, part, "r" .. request)
        end
      end)

      test("alone it has its limit" .. how, function(t)
        local s = t.sim { policy = "auto.lua", mps = mps }
        s:client { name = "held", priority = 5, limit = 0.3, gates = gates }
        busy(s, "held", us)
        s:run(US)
        t.near(part(s, "held"), 0.3, POINTS, "held")
      end)

      -- What is shorter than what it joins the GPU serves one to one, whoever lets it go.
      if us > 100 then
        test("a request is had beside a service, and its limit is not passed" .. how, function(t)
          local s = t.sim { policy = "auto.lua", mps = mps }
          s:client { name = "service", priority = 0, gates = gates }
          s:client { name = "job", priority = 9, request = 0.2, limit = 0.5, gates = gates,
                     stops = not mps }
          s:loop { client = "service", us = 1000, launches = 1, blocks = 264, threads = 1024 }
          busy(s, "job", us)
          s:run(US)
          local job = part(s, "job")
          t.ok(job > 0.2 - POINTS and job < 0.5 + POINTS, "the job has " .. job)
        end)

        test("a limit is kept once a service pauses, and stays away" .. how, function(t)
          local s = t.sim { policy = "auto.lua", mps = mps }
          s:client { name = "service", priority = 0, gates = gates }
          s:client { name = "job", priority = 9, limit = 0.5, gates = gates, stops = not mps }
          s:loop { client = "service", us = 1000, gap_us = 4000, blocks = 264, count = 300 }
          busy(s, "job", us)
          s:run(500000)                   -- how long a kernel takes is known now
          local known_us = s:stats("job").gpu_us
          s:run(1000000)
          local beside_us = s:stats("job").gpu_us
          t.below((beside_us - known_us) / 1000000, 0.5 + POINTS, "the job beside the service")
          s:run(US)
          t.below(part(s, "job") - beside_us / US, 0.5 + POINTS, "the job alone")
        end)
      end

      test("an equal without a request has what is left" .. how, function(t)
        local s = t.sim { policy = "auto.lua", mps = mps }
        s:client { name = "half", priority = 5, request = 0.5, limit = 0.5, gates = gates }
        s:client { name = "other", priority = 5, gates = gates }
        for _, name in ipairs { "half", "other" } do busy(s, name, us) end
        s:run(US)
        t.near(part(s, "half"), 0.5, POINTS, "half")
        t.ok(part(s, "other") > 0.44, "the other has " .. part(s, "other"))
      end)
    end
  end
end

for _, gates in ipairs { true, false } do
  test("who was alone is held for a service that comes, gates=" .. tostring(gates), function(t)
    local s = t.sim { policy = "auto.lua", mps = true }
    s:client { name = "job", priority = 5, request = 0.1, gates = gates }
    busy(s, "job", 500)
    s:run(500000)
    s:client { name = "service", priority = 0, gates = gates }
    s:loop { client = "service", us = 1000, launches = 1, blocks = 264, threads = 1024 }
    local before = s:stats("job").gpu_us
    s:run(2000000)
    local part = (s:stats("job").gpu_us - before) / 2000000
    t.ok(part < 0.1 + POINTS, "the job has " .. part .. " beside a service that never pauses")
  end)

  test("in a service's pauses no limit is passed, gates=" .. tostring(gates), function(t)
    local s = t.sim { policy = "auto.lua", mps = true }
    s:client { name = "service", priority = 0, gates = gates }
    s:client { name = "job", priority = 9, limit = 0.2, gates = gates }
    s:loop { client = "service", us = 1000, launches = 1, gap_us = 9000, blocks = 264 }
    s:loop { client = "job", us = 100, launches = 400, blocks = 264, threads = 1024 }
    s:run(US)
    local job = part(s, "job")
    t.ok(job > 0.15 and job < 0.2 + POINTS, "the job has " .. job)
  end)
end
