-- Orion, Listing 1, on the model of a GPU under MPS.
local compute = { fma_pct = 80, dram_pct = 10 }
local memory = { fma_pct = 10, dram_pct = 75 }

-- A latency-critical program whose kernels of 500 µs follow each other, and one launch beside it.
local function beside(t, hp, be, params, nodes)
  local s = t.sim { policy = "orion.lua", mps = true, params = params }
  s:client { name = "hp", priority = 0 }
  s:client { name = "be", priority = 9 }
  s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = hp }
  s:loop { client = "be", us = 50, blocks = 32, nodes = nodes, kernel = "b", metrics = be,
           at = 50000 }
  s:run(400000)
  return s
end

local function launches(t, hp, be, params, nodes)
  return beside(t, hp, be, params, nodes):stats("be").launches
end

test("a kernel goes beside one of the other kind, not of its own", function(t)
  local other, same = launches(t, compute, memory), launches(t, compute, compute)
  t.ok(other > 10 * same, other .. " beside the other kind, " .. same .. " beside its own")
  t.ok(launches(t, memory, memory) < other / 10, "nor beside memory")
end)

test("a kernel that nobody measured goes beside any", function(t)
  t.ok(launches(t, compute, nil) > 0.8 * launches(t, compute, memory), "unknown")
end)

test("a kernel that needs too many SMs waits for the critical one", function(t)
  t.ok(launches(t, compute, memory, { sm_threshold = 8 }) <
       launches(t, compute, memory) / 10, "8 SMs at most")
end)

test("a graph waits for the critical one, for it may need all SMs", function(t)
  t.ok(launches(t, compute, memory, nil, 4) < launches(t, compute, memory) / 10, "a graph")
end)

-- A critical graph of kernels that use all that they may of compute.
test("a graph is of a kind by the part of it that was measured", function(t)
  local function beside_graph(unknown_pct)
    local s = t.sim { policy = "orion.lua", mps = true }
    s:client { name = "hp", priority = 0 }
    s:client { name = "be", priority = 9 }
    s:loop { client = "hp", us = 500, launches = 40, nodes = 4, kernel = "h",
             metrics = { fma_pct = 80, dram_pct = 10, unknown_pct = unknown_pct } }
    s:loop { client = "be", us = 50, blocks = 32, kernel = "b", metrics = compute, at = 50000 }
    s:run(400000)
    return s:stats("be").launches
  end
  local measured, most, little = beside_graph(0), beside_graph(20), beside_graph(50)
  t.ok(little > 10 * measured, little .. " beside one hardly measured, " .. measured .. " else")
  t.ok(most < little / 10, most .. " where four fifths are measured: 64 % of compute at least")
end)

test("so much below is in flight as is a part of the critical run", function(t)
  local function together(params)  -- the most launches of two below that overlap
    local s = t.sim { policy = "orion.lua", mps = true, params = params }
    s:client { name = "hp", priority = 0 }
    s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = compute }
    for _, name in ipairs { "a", "b" } do
      s:client { name = name, priority = 9 }
      s:loop { client = name, us = 200, blocks = 32, kernel = "b", metrics = memory, at = 50000 }
    end
    s:run(300000)
    local last, most = 0, 0
    for _, l in ipairs(s:log()) do
      if l.client ~= "hp" then
        if l.at_us < last then most = most + 1 end
        last = math.max(last, l.end_us)
      end
    end
    return most
  end
  local much, little = together { duration_pct = 50 }, together { duration_pct = 0.1 }
  t.ok(much > 10 * math.max(1, little), much .. " overlap under 50 %, " .. little .. " under 0.1 %")
end)

test("alone it runs at once", function(t)
  local s = t.sim { policy = "orion.lua", mps = true }
  s:client { name = "be", priority = 9 }
  s:launch { client = "be", us = 50 }
  s:at(40):expect { running = "be" }
end)

test("a critical program that was killed is forgotten", function(t)
  local s = t.sim { policy = "orion.lua", mps = true }
  s:client { name = "killed", priority = 0 }
  s:client { name = "hp", priority = 5 }
  s:client { name = "be", priority = 9 }
  s:loop { client = "killed", us = 500, launches = 40, blocks = 66, kernel = "k", metrics = memory }
  s:run(50000)
  s:remove("killed")
  s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = compute }
  s:loop { client = "be", us = 50, blocks = 32, kernel = "b", metrics = memory, at = 100000 }
  s:run(400000)
  t.ok(s:stats("be").launches > 300, s:stats("be").launches .. " beside the other kind")
end)

test("a critical kernel that has ended, or was killed, hides none that runs", function(t)
  local s = t.sim { policy = "orion.lua", mps = true }
  s:client { name = "hp", priority = 0 }
  s:loop { client = "hp", us = 5000, launches = 40, blocks = 66, kernel = "h", metrics = compute }
  s:client { name = "be", priority = 9 }
  s:loop { client = "be", us = 50, blocks = 32, kernel = "b", metrics = compute, at = 50000 }
  for i = 1, 4 do
    local brief = "brief" .. i
    s:client { name = brief, priority = 0 }
    s:launch { client = brief, us = 50, blocks = 32, kernel = brief, metrics = memory,
               at = 31000 + i * 20000 }
  end
  for i = 1, 4 do
    s:run(40000)
    if i % 2 == 0 then s:remove("brief" .. i) end
  end
  t.ok(s:stats("be").launches < 10, s:stats("be").launches .. " launches beside their own kind")
end)

-- Listing 1 peeks the head of each client's queue.
test("a client whose launches must not join holds up no other client", function(t)
  local function of(first, threads)
    local s = t.sim { policy = "orion.lua", mps = true }
    s:client { name = "hp", priority = 0 }
    s:loop { client = "hp", us = 500, launches = 40, blocks = 66, kernel = "h", metrics = compute }
    s:client { name = "first", priority = 8 }
    for _ = 1, threads do
      s:loop { client = "first", us = 50, blocks = 32, kernel = "f", metrics = first, at = 50000 }
    end
    s:client { name = "other", priority = 9 }
    s:loop { client = "other", us = 50, blocks = 32, kernel = "o", metrics = memory, at = 50000 }
    s:run(200000)
    return s:stats("other").launches
  end
  local behind, many, beside_it = of(compute, 1), of(compute, 40), of(memory, 1)
  t.ok(behind > beside_it / 2, behind .. " behind one of its kind, " .. beside_it .. " else")
  t.ok(many > behind / 2, many .. " behind 40 threads, " .. behind .. " behind one")
end)

test("the pause before a critical run is no part of it", function(t)
  local s = t.sim { policy = "orion.lua", mps = true, params = { duration_pct = 15 } }
  s:client { name = "hp", priority = 0 }
  s:loop { client = "hp", us = 5000, gap_us = 5000, blocks = 66, kernel = "h", metrics = compute }
  for _, name in ipairs { "a", "b" } do
    s:client { name = name, priority = 9 }
    s:loop { client = name, us = 600, blocks = 32, kernel = name, metrics = memory, at = 100000 }
  end
  s:run(400000)
  local hp_end, be_end, beside, most = 0, 0, 0, 0
  for _, l in ipairs(s:log()) do
    if l.client == "hp" then
      hp_end = l.end_us
    elseif l.at_us > 150000 and l.at_us > hp_end - 4000 and l.at_us < hp_end - 700 then
      beside = beside + 1
      if l.at_us < be_end then most = most + 1 end
      be_end = l.end_us
    end
  end
  t.ok(beside > 50 and most == 0, most .. " of " .. beside .. " join another; 15 % is 750 us")
end)
