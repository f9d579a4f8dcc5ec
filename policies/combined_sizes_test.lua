-- Compares combined.lua with sizes to combined.lua without a profile and to auto.lua: a service
-- with Poisson arrivals and a promise of 1.10, beside best effort that asks, under MPS. Best
-- effort's kernels fit on 32 of 132 SMs, and their curves show that. Simulated: the GPU is a model.
-- bench/SIZES_AND_BUDGETS.md has the output.
local KERNELS, KERNEL_US, REQUESTS = 10, 200, 300  -- of a request of the service
local FROM_US, LEARNED_US = 300000, 6000000
local WAYS = {
  { "combined", "combined.lua" }, { "with sizes", "combined.lua", sizes = true },
  { "auto", "auto.lua", sizes = true },
}

-- As many blocks as 32 SMs hold at once: on half of those SMs the kernel takes twice as long.
local function best_effort(us, sizes)
  local curve = { us_on_1 = 4 * us, us_on_2 = 2 * us, us_on_4 = us, us_on_8 = us, us_on_12 = us,
                  us_on_all = us }
  return { client = "best effort", us = us, blocks = 64, kernel = "small",
           metrics = sizes and curve }
end

local function pauses(mean_us)
  local x = 7
  return function()
    x = x * 16807 % 2147483647
    return -mean_us * math.log(x / 2147483647)
  end
end

-- The service's mean and p99 latency from the arrivals, and the part of the time in which best
-- effort runs.
local function measure(t, load, blocks, us, policy, sizes)
  local s = t.sim { policy = policy, mps = true }
  s:client { name = "service", priority = 0, slowdown_max = 1.10 }
  s:client { name = "best effort", priority = 9 }
  if policy then
    local loop = best_effort(us, sizes)
    loop.count = 8
    s:loop(loop)
    s:run(FROM_US)
    loop.count, loop.launches = nil, 50
    s:loop(loop)
  end
  local pause, at, arrivals, before = pauses(KERNELS * KERNEL_US / load), FROM_US, {}, 0
  while #arrivals < REQUESTS do
    at = at + pause()
    if at < LEARNED_US then before = before + 1 else arrivals[#arrivals + 1] = at end
    for i = 1, KERNELS do
      s:launch { client = "service", us = KERNEL_US, blocks = blocks, at = at, sync = i == KERNELS }
    end
  end
  s:at(LEARNED_US)
  local launches = s:stats("best effort").launches
  s:at(at)
  launches = s:stats("best effort").launches - launches
  s:run(300000)
  local n, took, sum = 0, {}, 0
  for _, l in ipairs(s:log()) do
    if l.client == "service" then n = n + 1 end
    local arrived = l.client == "service" and n % KERNELS == 0 and arrivals[n / KERNELS - before]
    if arrived and l.end_us > arrived then
      took[#took + 1] = l.end_us - arrived
      sum = sum + took[#took]
    end
  end
  table.sort(took)
  return { sum / #took, took[math.ceil(#took * 0.99)], launches * us / (at - LEARNED_US) }
end

local function cell(name, load, blocks, us, judge)
  test(name, function(t)
    local alone, found = measure(t, load, blocks, us), {}
    for i, way in ipairs(WAYS) do
      local m = measure(t, load, blocks, us, way[2], way.sizes)
      found[i] = { mean = m[1] / alone[1], p99 = m[2] / alone[2], got = m[3] }
      print(string.format("%-10s mean %.2f, p99 %.2f, best effort %.2f", way[1], found[i].mean,
                          found[i].p99, found[i].got))
    end
    judge(t, unpack(found))
  end)
end

cell("a service that leaves half of the GPU is not slowed, and sizes cost best effort little", 0.5,
     132, 200, function(t, plain, sized)
  t.below(sized.mean, 1.02, "mean")
  t.ok(sized.got > 0.8 * plain.got, "best effort " .. sized.got .. " of " .. plain.got)
end)
cell("beside a service that fills the GPU sizes change little for kernels of 200 us", 0.5, 264, 200,
     function(t, plain, sized)
  t.near(sized.mean, plain.mean, 0.05, "mean")
  t.near(sized.got, plain.got, 0.05, "best effort")
end)
cell("beside a service that fills the GPU kernels of 2 ms get a fifth of the time", 0.5, 264, 2000,
     function(t, _, sized)
  t.near(sized.got, 0.2, 0.05, "best effort")
  t.below(sized.mean, 1.2, "mean")
end)
cell("combined holds runs, not requests that wait for each other, as auto does", 0.9, 264, 200,
     function(t, _, sized, auto)
  t.ok(sized.mean > 1.5, "mean of combined " .. sized.mean)
  t.below(auto.mean, 1.2, "mean of auto")
end)
