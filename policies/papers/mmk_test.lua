-- MMK, section III-C, on the model of a GPU under MPS.

-- An online program whose iterations are 40 kernels of 500 µs without a pause, and offline ones
-- beside it, for so long.
local function beside(t, params, shares, us)
  local s = t.sim { policy = "mmk.lua", params = params, mps = true }
  s:client { name = "online", priority = 0 }
  s:loop { client = "online", us = 500, launches = 40, blocks = 264, threads = 1024 }
  for name, share in pairs(shares) do
    s:client { name = name, label = name, priority = 9, share = share }
    s:loop { client = name, us = 100, blocks = 264, threads = 1024, at = 5 }
  end
  s:run(us)
  return s
end

test("an offline launch goes once DURATION of online kernels has passed", function(t)
  local s = beside(t, { duration_us = 5000 }, { offline = 1 }, 200000)
  -- 200 ms of kernels, one launch for each 5 ms, and one in each of 10 pauses
  t.near(s:stats("offline").launches, 45, 8, "launches")
end)

test("a DURATION below a millisecond counts too", function(t)
  local function granted(us)
    local s = t.sim { policy = "mmk.lua", params = { duration_us = us }, mps = true }
    s:client { name = "online", priority = 0 }
    s:client { name = "offline", priority = 9 }
    s:loop { client = "online", us = 500, launches = 40, blocks = 66, threads = 1024 }
    s:loop { client = "offline", us = 20, launches = 10000, blocks = 8, threads = 128, at = 5 }
    s:run(200000)
    return s:stats("offline").asks
  end
  t.near(granted(250) / granted(1000), 4, 0.6, "asks granted at 250 µs over those at 1000")
end)

test("a program that paused waits through all of DURATION again", function(t)
  local s = t.sim { policy = "mmk.lua", params = { duration_us = 20000 }, mps = true }
  s:client { name = "online", priority = 0 }
  s:client { name = "offline", priority = 9 }
  s:loop { client = "online", us = 500, launches = 1000, blocks = 66, threads = 1024 }
  s:launch { client = "offline", us = 100, blocks = 8, at = 5 }
  s:launch { client = "offline", us = 100, blocks = 8, at = 100000 }
  s:run(200000)
  local at = {}
  for _, l in ipairs(s:log()) do
    if l.client == "offline" then at[#at + 1] = l.at_us end
  end
  t.near(at[1], 20000, 1500, "the first goes at")
  t.near(at[2], 120000, 1500, "the second goes at")
end)

test("a smaller MPS limit waits longer", function(t)
  local function launches(share)
    return beside(t, { duration_us = 1500 }, { offline = share }, 200000):stats("offline").launches
  end
  t.near(launches(1) / launches(0.5), 2, 0.4, "launches at share 1 over those at 0.5")
end)

test("a longer DURATION costs online programs less", function(t)
  local short = beside(t, { duration_us = 500 }, { offline = 1 }, 200000)
  local long = beside(t, { duration_us = 20000 }, { offline = 1 }, 200000)
  t.below(long:stats("online").mean_us, short:stats("online").mean_us * 0.97, "mean of online")
  t.ok(long:stats("offline").launches < short:stats("offline").launches / 5, "fewer offline ones")
end)

test("an offline launch goes when the online kernel has ended", function(t)
  local s = t.sim { policy = "mmk.lua", params = { duration_us = 5000 }, mps = true }
  s:client { name = "online", priority = 0 }
  s:client { name = "offline", priority = 9 }
  s:launch { client = "online", us = 4000, sync = true }
  s:launch { client = "offline", us = 100, at = 5 }
  s:at(3000):expect { running = "online", waiting = "offline", reason = "online first" }
  s:at(4500)
  t.eq(s:stats("offline").launches, 1, "launches")
end)

test("online kernels count, not the time in between", function(t)
  local s = t.sim { policy = "mmk.lua", params = { duration_us = 2000 }, mps = true,
                    idle_us = 100000 }
  s:client { name = "online", priority = 0 }
  s:client { name = "long", priority = 9 }
  s:client { name = "waits", priority = 9 }
  for _, name in ipairs { "long", "waits" } do       -- how long they take is learned
    s:loop { client = name, us = 20000, count = 8 }
  end
  s:run(400000)
  s:launch { client = "online", us = 100, sync = true, at = 400000 }
  s:launch { client = "long", us = 20000, at = 400500 }
  s:launch { client = "waits", us = 20000, at = 400600 }
  s:at(410000):expect { running = "long", waiting = "waits", reason = "enough in flight" }
end)

test("with nobody online on the GPU an offline launch goes at once", function(t)
  local s = t.sim { policy = "mmk.lua", mps = true }
  s:client { name = "online", priority = 0 }
  s:client { name = "offline", priority = 9 }
  s:launch { client = "offline", us = 3000, at = 5 }
  s:at(20):expect { running = "offline" }
end)

test("of two that wait the more important goes first", function(t)
  local s = t.sim { policy = "mmk.lua", mps = true }
  s:client { name = "online", priority = 0 }
  s:client { name = "q8", priority = 8 }
  s:client { name = "q7", priority = 7 }
  s:launch { client = "online", us = 900, sync = true }
  s:launch { client = "q8", us = 2000, at = 5 }
  s:launch { client = "q7", us = 2000, at = 10 }
  s:at(1500)
  t.eq(s:log()[2].client, "q7")
end)

test("with promises, what the online program can afford goes beside it", function(t)
  local function launches(promises)
    local s = t.sim { policy = "mmk.lua", mps = true,
                      params = { duration_us = 1000000, promises = promises } }
    s:client { name = "online", priority = 0, slowdown_max = 1.5 }
    s:client { name = "offline", priority = 9 }
    s:loop { client = "online", us = 500, blocks = 32, threads = 128 }
    s:loop { client = "offline", us = 100, blocks = 8, threads = 128, at = 5 }
    s:run(200000)
    return s:stats("offline").launches
  end
  t.ok(launches(true) > launches(false) + 50, launches(true) .. " against " .. launches(false))
end)

test("an offline program runs on its label's SMs, and waits by that share", function(t)
  local function of(sizes)
    local s = beside(t, { duration_us = 1500, sizes = sizes }, { offline = 1 }, 200000)
    local sms = {}
    for _, l in ipairs(s:log()) do sms[l.client] = l.sms end
    return s:stats("offline").launches, sms
  end
  local all, on_all = of("")
  local half, on_half = of("offline=64")
  t.eq(on_all.offline, 132, "SMs without a size")
  t.near(on_half.offline, 64, 4, "SMs of its size, in groups")
  t.eq(on_half.online, 132, "SMs of the program without a size")
  t.near(all / half, 132 / 64, 0.4, "launches at share 1 over those at 64 SMs")
end)

test("programs that wait at the same time wait through the same online kernels", function(t)
  local alone = beside(t, { duration_us = 5000 }, { a = 1 }, 200000):stats("a").launches
  local s = beside(t, { duration_us = 5000 }, { a = 1, b = 1, c = 1, d = 1 }, 200000)
  for _, name in ipairs { "a", "b", "c", "d" } do
    t.near(s:stats(name).launches, alone, 8, "launches of " .. name)
  end
end)

test("a program that waits for long holds up none that waits for less", function(t)
  local s = beside(t, { duration_us = 5000 }, { slow = 0.05, fast = 1 }, 200000)
  t.near(s:stats("fast").launches, 45, 8, "launches of the one with a share of 1")
  t.below(s:stats("slow").launches, 15, "launches of the other")
end)

test("what is held on the device goes on until the online program works", function(t)
  local s = t.sim { policy = "mmk.lua", mps = true }
  s:client { name = "online", priority = 0 }
  s:client { name = "offline", priority = 9, gates = true }
  s:loop { client = "offline", us = 60, blocks = 264, count = 8 }
  s:run(20000)
  s:loop { client = "online", us = 800, gap_us = 5000 }
  s:loop { client = "offline", us = 60, blocks = 264, launches = 4000 }
  s:run(200000)
  local offline = s:stats("offline")
  t.ok(offline.gpu_us > 150000, "GPU time of offline, " .. offline.gpu_us)
  t.below(offline.asks, offline.launches / 15, "verdicts")
  t.below(s:stats("online").max_us, 800 + 150 + 50, "slowest iteration of online")
end)
