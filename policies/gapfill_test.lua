-- Best effort runs in gaps that are predicted to be long enough.
local function two(t, sim, priority, gates)
  sim.policy = "gapfill.lua"
  local s = t.sim(sim)
  s:client { name = "lc", priority = 0 }
  s:client { name = "be", priority = priority or 9, gates = gates }
  return s
end

-- An important client with kernels of 800 µs and gaps, learned before `be` comes.
local function learned(t, options)
  local params = options.params or {}
  params.slowdown_pct = params.slowdown_pct or 0  -- 0: no correction of what best effort is owed
  local s = two(t, { params = params }, options.be)
  s:loop { client = "be", us = options.be_us, count = 8 }
  s:run(20000)
  s:loop { client = "lc", us = 800, gap_us = options.gap_us, at = 20000 }
  s:run(40000)
  return s
end

-- The number of 400 µs launches that best effort makes in 200 ms. The gaps of 200 µs are too short
-- for them.
local function progress(t, params)
  local s = learned(t, { be_us = 400, gap_us = 200, params = params })
  local before = s:stats("be").launches
  s:loop { client = "be", us = 400 }
  s:run(200000)
  return s:stats("be").launches - before
end

test("best effort waits while more important work runs", function(t)
  local s = two(t, { params = { quantum_us = 300 } })
  s:launch { client = "lc", us = 800, sync = true }
  s:launch { client = "be", us = 100, at = 5 }
  s:at(10):expect { running = "lc", waiting = "be", verdict = IDLE }
end)

test("a kernel that fits runs in the gap, and the next iteration is not late", function(t)
  local s = learned(t, { be_us = 100, gap_us = 1000, params = { share_pct = 0 } })
  s:loop { client = "be", us = 100, kernel = "kernel" }
  s:run(50000)
  t.ok(s:stats("be").launches > 50, "best effort makes progress")
  t.below(s:stats("lc").p99_us, 800 * 1.15, "p99 of lc")
end)

test("a kernel longer than the gap stays out", function(t)
  local s = learned(t, { be_us = 2000, gap_us = 300, params = { share_pct = 0, floor_pct = 0 } })
  s:launch { client = "be", us = 2000 }
  s:run(50000)
  t.eq(s:stats("be").launches, 8, "launches of be")
  t.below(s:stats("lc").max_us, 800 * 1.05, "slowest iteration of lc")
end)

test("work in flight stays below the quantum", function(t)
  local s = t.sim { policy = "gapfill.lua", params = { quantum_us = 250 } }
  s:client { name = "top", priority = 0 }
  s:loop { client = "top", us = 100, gap_us = 20000, count = 6 }
  s:run(110000)
  for i = 1, 4 do
    s:client { name = "be" .. i, priority = 9 }
    s:launch { client = "be" .. i, us = 100, at = 110000, blocks = 8 }
  end
  s:at(110050):expect { running = { "be1", "be2" }, waiting = { "be3", "be4" } }
end)

test("of the kernels that fit the longest goes", function(t)
  local one_at_a_time = { quantum_us = 310, share_pct = 0, floor_pct = 0 }
  local s = t.sim { policy = "gapfill.lua", params = one_at_a_time }
  s:client { name = "lc", priority = 0 }
  s:client { name = "short", priority = 9 }
  s:client { name = "long", priority = 9 }
  s:loop { client = "short", us = 50, count = 4 }
  s:loop { client = "long", us = 300, count = 4, at = 5000 }
  s:loop { client = "lc", us = 800, gap_us = 600, at = 30000 }
  s:run(50000)
  local log = s:log()
  local last, period = log[#log].at_us, log[#log].at_us - log[#log - 1].at_us
  local next_start = last + period * math.ceil((50100 - last) / period)
  s:launch { client = "short", us = 50, at = next_start + 100 }
  s:launch { client = "long", us = 300, at = next_start + 110 }
  s:run(5000)
  local first = false
  for _, l in ipairs(s:log()) do
    first = first or l.at_us > next_start and l.client ~= "lc" and l.client
  end
  t.eq(first, "long", "who went first")
end)

test("share_pct lets best effort progress where no gap fits", function(t)
  t.eq(progress(t, { share_pct = 0, floor_pct = 0 }), 0, "launches without a share")
  -- At most a fifth of 200 ms is idle, and half of that is 50 kernels of 400 µs.
  local launches = progress(t, { share_pct = 50, floor_pct = 0 })
  t.ok(launches > 25, "best effort progresses, " .. launches)
  t.below(launches, 60, "launches with a share")
end)

test("floor_pct lets best effort progress whatever is idle", function(t)
  -- At least four fifths of 200 ms are busy, and a fifth of that is 80 kernels of 400 µs.
  local launches = progress(t, { share_pct = 0, floor_pct = 20 })
  t.near(launches, 85, 15, "launches with a floor")
end)

test("what fits gaps counts towards the share", function(t)
  local s = learned(t, { be_us = 900, gap_us = 400, params = { share_pct = 30, floor_pct = 0 } })
  s:client { name = "short", priority = 9 }
  s:loop { client = "short", us = 100 }
  s:loop { client = "be", us = 900 }
  s:run(100000)
  t.ok(s:stats("short").launches > 150, "the short fill the gaps, " .. s:stats("short").launches)
  -- The short ones use more than the share, so the long ones get only what they were owed before:
  -- three.
  t.below(s:stats("be").launches - 8, 7, "launches of be")
end)

test("a kernel that fits gaps twice waits for the next one", function(t)
  local s = learned(t, { be_us = 300, gap_us = 1300, params = { share_pct = 100, fence_sm = 0 } })
  s:loop { client = "be", us = 300 }
  s:run(100000)
  t.near(s:stats("be").launches - 8, 4 * 100000 / 2100, 12, "launches of be: four a gap")
end)

test("best effort waits for a gap at most four times as long as it would take", function(t)
  local s = learned(t, { be_us = 100, gap_us = 1300, params = { fence_sm = 0 } })
  s:loop { client = "be", us = 100 }
  s:run(50000)
  s:client { name = "dense", priority = 0 }  -- with it there are no long gaps any more
  s:loop { client = "dense", us = 100, gap_us = 90 }
  s:run(10000)
  local before = s:stats("be")
  s:run(20000)
  t.below(s:stats("be").max_wait_us, 5000, "longest wait of be")
  t.ok(s:stats("be").launches > before.launches + 20, "it makes progress")
end)

test("a kernel that would hold up others beyond overrun_max_us waits for longer", function(t)
  -- The launch is 300 µs too long, and is let go after it has waited for 32 times that.
  local held = progress(t, { overrun_max_us = 100, fence_sm = 0 })
  local free = progress(t, { overrun_max_us = 1000, fence_sm = 0 })
  t.near(held, 200 / 9.6, 4, "launches of be")
  t.ok(free > 2 * held, "a higher limit lets more go, " .. free)
end)

-- The number of 50 µs launches that best effort makes in 200 ms beside a program that runs kernels
-- of 20 ms without a pause.
local function beside_a_dense_program(t, mps, params)
  params.slowdown_pct = params.slowdown_pct or 0
  local s = two(t, { mps = mps, params = params })
  s:loop { client = "be", us = 50, count = 8 }
  s:run(10000)
  s:loop { client = "lc", us = 20000, gap_us = 1, blocks = 66, at = 10000 }
  s:run(200000)
  s:loop { client = "be", us = 50 }
  s:run(200000)
  return s:stats("be").launches - 8
end

test("under MPS the floor goes beside a program that never pauses", function(t)
  t.near(beside_a_dense_program(t, true, { floor_pct = 10 }), 400, 60, "launches")
end)

test("under MPS the floor goes beside a program that stops pausing", function(t)
  local s = two(t, { mps = true })
  s:loop { client = "be", us = 50, count = 8 }
  s:run(10000)
  s:loop { client = "lc", us = 800, gap_us = 1000, count = 20, at = 10000 }
  s:loop { client = "lc", us = 100000, blocks = 66, at = 60000 }
  s:loop { client = "be", us = 50, at = 60000 }
  s:run(60000)
  local before = s:stats("be").launches
  s:run(90000)
  t.ok(s:stats("be").launches > before + 40, "be " .. s:stats("be").launches - before)
end)

test("beside a program that it does not slow down best effort gets far more", function(t)
  t.ok(beside_a_dense_program(t, true, { floor_pct = 10, slowdown_pct = 4 }) > 1000, "launches")
end)

-- An important client with runs of 2 ms, and best effort with kernels of 200 µs. Both fill the GPU.
local function beside_a_full_one(t, pct)
  local s = two(t, { mps = true, params = { floor_pct = 20, slowdown_pct = pct, fence_sm = 0 } })
  s:loop { client = "be", us = 200, blocks = 264, count = 8 }
  s:run(10000)
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 2640, at = 10000 }
  s:run(50000)
  s:loop { client = "be", us = 200, blocks = 264 }
  s:run(500000)                                  -- meanwhile the policy corrects its factor
  local lc, be = s:stats("lc").launches, s:stats("be").launches
  s:run(300000)
  return 300000 / 2020 / (s:stats("lc").launches - lc) - 1, s:stats("be").launches - be
end

test("those above are slowed down by slowdown_pct", function(t)
  local guessed, corrected = beside_a_full_one(t, 0), beside_a_full_one(t, 4)
  t.ok(guessed > 0.08, "a floor of 20 % alone slows by " .. guessed)
  t.near(corrected, 0.04, 0.02, "corrected")
  local _, launches = beside_a_full_one(t, 4)
  t.ok(launches > 30, "best effort gets something, " .. launches)
end)

test("now and then those above are left alone for a run", function(t)
  local s = two(t, { mps = true, params = { floor_pct = 100 } })
  s:loop { client = "lc", us = 2000, gap_us = 20, blocks = 66 }
  s:loop { client = "be", us = 50, blocks = 66 }  -- floor_pct owes it all of the time
  s:run(800000)
  local runs, alone, last_us = 0, 0, 0
  for _, launch in ipairs(s:log()) do
    if launch.client == "lc" then
      runs = runs + 1
    else
      alone, last_us = alone + (launch.at_us - last_us > 1900 and 1 or 0), launch.at_us
    end
  end
  t.ok(alone > 5, "alone " .. alone)
  t.below(alone, runs / 8, "not often")
end)

test("what ran while those above were away saves up nothing to go beside them", function(t)
  local s = two(t, { mps = true, params = { fence_sm = 0 } }, 9, true)
  s:loop { client = "be", us = 200, blocks = 264 }
  s:loop { client = "lc", us = 50, blocks = 264, launches = 60, gap_us = 100000, at = 20000 }
  s:run(1000000)
  t.below(s:stats("lc").mean_us, 3000 + 1100, "beside what was in flight, and little else")
end)

test("time-sliced, nothing goes beside others", function(t)
  t.below(beside_a_dense_program(t, false, { floor_pct = 10 }), 40, "launches")
end)

-- Kernels of 5 ms fit no gap of 1 ms. With fence_sm = 24 they run on 28 SMs, five times as long.
local function beside_long_kernels(t, params, mps, blocks, nodes)
  params.slowdown_pct = params.slowdown_pct or 0  -- 0: no trial of whether the fence is better
  local s = two(t, { mps = mps, params = params })
  s:loop { client = "be", us = 5000, blocks = blocks or 264, nodes = nodes, count = 8 }
  s:run(60000)
  s:loop { client = "lc", us = 800, gap_us = 1000, at = 60000 }
  s:run(40000)
  local late = #s:log()
  s:loop { client = "be", us = 5000, blocks = blocks or 264, nodes = nodes }
  s:run(200000)
  local sms, launches = {}, 0
  for i, launch in ipairs(s:log()) do
    if i > late and launch.client == "be" then sms[launch.sms], launches = true, launches + 1 end
  end
  return { sms = sms, launches = launches, lc = s:stats("lc") }
end

test("a kernel that fits no gap runs on fence_sm SMs, and nobody waits for it", function(t)
  local on = beside_long_kernels(t, { fence_sm = 24, overrun_max_us = 100000 })
  t.ok(on.sms[28] and not on.sms[132], "all of them on the fence")
  t.near(on.launches, 200 / 25, 2, "launches of be")
  t.below(on.lc.max_us, 800 * 1.05, "slowest iteration of lc")
end)

test("a graph that fits no gap is never beside on all SMs", function(t)
  local on = beside_long_kernels(t, { fence_sm = 24, slowdown_pct = 4 }, true, nil, 100)
  t.ok(on.sms[28] and not on.sms[132], "all of them on the fence")
end)

test("a kernel that would hold the fence for long waits for longer", function(t)
  local on = beside_long_kernels(t, { fence_sm = 24, overrun_max_us = 100 })
  t.below(on.launches, 3, "launches of be")
end)

test("a fence has half of the SMs at most", function(t)
  local on = beside_long_kernels(t, { fence_sm = 1000 })
  t.ok(on.sms[68] and not on.sms[132], "whole groups")
end)

-- The number of 100 µs kernels that `short` runs in 200 ms beside gaps of 1 ms, while `be` has
-- kernels of 5 ms and is owed `owed` percent of the time.
local function short_ones(t, with)
  local s = learned(t, { be_us = 5000, gap_us = with.gap_us or 1000, be = with.priority, params = {
                         fence_sm = with.fence_sm, overrun_max_us = with.overrun_max_us,
                         share_pct = with.owed, floor_pct = with.owed } })
  s:client { name = "short", priority = 9 }
  s:loop { client = "short", us = 100, count = 8 }
  s:run(20000)
  local before = s:stats("short").launches
  s:loop { client = "be", us = 5000, launches = 100 }
  s:loop { client = "short", us = 100 }
  s:run(200000)
  return s:stats("short").launches - before, s
end

test("beside a fenced kernel others fill gaps as before", function(t)
  local without = short_ones(t, { fence_sm = 0, owed = 0 })
  local beside = short_ones(t, { fence_sm = 24, owed = 100 })
  t.ok(without > 300, "without a fence, " .. without)
  t.ok(beside > without * 0.8, "beside it, " .. beside)
end)

test("who is too long for any gap holds up nobody else", function(t)
  local all = short_ones(t, { fence_sm = 0, owed = 60, gap_us = 50 })
  t.ok(all > 500, "on all SMs, " .. all)
  local fenced = short_ones(t, { fence_sm = 24, owed = 60, gap_us = 50, overrun_max_us = 500 })
  t.ok(fenced > 200, "on the fence, " .. fenced)
  local owed = short_ones(t, { fence_sm = 0, owed = 10, gap_us = 50, priority = 8 })
  t.below(owed, 300, "of what it is owed itself")
end)

test("the fence holds one long kernel, not a program's backlog", function(t)
  local _, s = short_ones(t, { fence_sm = 24, owed = 100 })
  t.near(s:stats("be").asks - 8, 200 / 25, 2, "asks of be")
end)

test("what is fenced counts towards the share", function(t)
  local on = beside_long_kernels(t, { fence_sm = 24, share_pct = 10, floor_pct = 0 })
  t.near(on.launches, 200 * 0.06 / 5, 2, "launches of be")
end)

test("without fence_sm a kernel that fits no gap is held", function(t)
  local held = beside_long_kernels(t, { overrun_max_us = 100, fence_sm = 0 })
  t.ok(not held.sms[28], "none on a fence")
  t.below(held.launches, 3, "launches of be")
end)

test("what has short waves is owed its turn on all SMs", function(t)
  local short = beside_long_kernels(t, { overrun_max_us = 1000, fence_sm = 0 }, true, 50 * 264)
  t.ok(short.launches > 8, "those above wait for 100 us at most, " .. short.launches)
end)

test("time-sliced, nothing is fenced", function(t)
  local sliced = beside_long_kernels(t, { fence_sm = 24, overrun_max_us = 100000 }, false)
  t.ok(sliced.sms[132] and not sliced.sms[28], "whole GPU or not at all")
end)

-- Best effort's kernels, unless `be` says otherwise, take 400 µs and fill the GPU in one wave. They
-- run beside kernels of `blocks` blocks, almost without a pause or with gaps of `gap_us`; with
-- `after`, later beside kernels of so many blocks. Of the last second's launches, returns how many
-- ran in the fence, how many on all SMs, and how many asked for no verdict.
local function tried(t, blocks, after, gap_us, be)
  be = be or {}
  local be_us, be_blocks = be.us or 400, be.blocks or 264
  local s = two(t, { mps = true, params = { fence_sm = 64 } })
  s:loop { client = "be", us = be_us, blocks = be_blocks, count = 8 }
  s:run(10000)
  s:loop { client = "lc", us = 40, gap_us = gap_us or 5, launches = 25, blocks = blocks, at = 10000,
           count = after and 500 }
  s:run(50000)
  s:loop { client = "be", us = be_us, blocks = be_blocks }
  s:run(500000)
  if after then
    s:run(100000)
    s:loop { client = "lc", us = 40, gap_us = 5, launches = 25, blocks = after }
    s:run(8000000)
  end
  local late, fenced, whole, open = #s:log(), 0, 0, 0
  s:run(1000000)
  for i, launch in ipairs(s:log()) do
    if i > late and launch.client == "be" then
      if launch.by ~= "policy" then open = open + 1
      elseif launch.sms < 132 then fenced = fenced + 1 else whole = whole + 1 end
    end
  end
  return fenced, whole, open
end

test("beside small kernels best effort goes to the fence", function(t)
  local fenced, whole = tried(t, 16)
  t.ok(fenced > 500, "on the fence, " .. fenced)
  t.below(whole, fenced / 10, "on all SMs")
end)

test("beside kernels that fill the GPU it goes to all SMs, and tries the fence seldom", function(t)
  local fenced, whole = tried(t, 264)
  t.ok(whole > 50, "on all SMs, " .. whole)
  t.below(fenced, whole / 5, "on the fence")
end)

test("short kernels are neither fenced nor wait for a gap", function(t)
  local fenced, whole = tried(t, 16, nil, 30, { us = 4, blocks = 16 })
  t.eq(fenced, 0, "on the fence")
  t.ok(whole > 50000, "on all SMs, " .. whole)
end)

test("what was worse is tried again", function(t)
  local fenced, whole = tried(t, 264, 16)
  t.ok(fenced > 500, "on the fence, " .. fenced)
  t.below(whole, fenced / 10, "on all SMs")
end)

test("who has enough of all SMs is not fenced to see whether there is more", function(t)
  local fenced, whole = tried(t, 16, nil, 2000)
  t.ok(whole > 1000, "on all SMs, " .. whole)
  t.eq(fenced, 0, "on the fence")
end)

test("those above that are hardly left to run are heard soon", function(t)
  local s = two(t, { mps = true })
  s:loop { client = "lc", us = 40, gap_us = 30, launches = 25, blocks = 16 }
  s:loop { client = "be", us = 4, gap_us = 3000, blocks = 264, count = 1000 }
  s:run(3050000)
  local before = s:stats("lc").iterations
  s:loop { client = "be", us = 1000, blocks = 264, kernel = "long" }
  s:run(500000)
  t.ok(s:stats("lc").iterations - before > 100, "lc " .. s:stats("lc").iterations - before)
end)

-- FIKIT's cases (Fig. 8, 11 and 12), time-sliced as in the paper: jobs with kernels of `us` and
-- gaps.
local function cases(t, all)
  local s = t.sim { policy = "gapfill.lua", mps = false, switch_us = 0 }
  for _, p in ipairs(all) do
    s:client { name = p.name, priority = p.priority }
    s:loop { client = p.name, us = 200, count = 8 }
    s:run(20000)
  end
  for _, p in ipairs(all) do s:loop { client = p.name, us = p.us, gap_us = p.gap_us, at = p.at } end
  return s
end

test("case A: a late, more important program goes first, the other fills its gaps", function(t)
  local s = cases(t, { { name = "low", priority = 5, us = 200, at = 40000 },
                       { name = "high", priority = 0, us = 500, gap_us = 1500, at = 60000 } })
  s:run(160000)
  t.below(s:stats("high").mean_us, 500 * 1.15, "mean of high")
  t.ok(s:stats("low").launches > 100 + 60 * 4, "low fills, " .. s:stats("low").launches)
end)

test("case B: a late, less important program only fills", function(t)
  local s = cases(t, { { name = "high", priority = 0, us = 500, gap_us = 1500, at = 40000 },
                       { name = "low", priority = 5, us = 200, at = 60000 } })
  s:run(160000)
  t.below(s:stats("high").mean_us, 500 * 1.15, "mean of high")
  t.ok(s:stats("low").launches > 60 * 4, "low fills, " .. s:stats("low").launches)
end)

test("case C: equals that are gated share what a more important program leaves", function(t)
  local s = cases(t, { { name = "A", priority = 0, us = 500, gap_us = 1500, at = 60000 },
                       { name = "B", priority = 6, us = 200, at = 100000 },
                       { name = "C", priority = 6, us = 200, at = 100000 } })
  s:run(200000)
  t.near(s:stats("B").launches, s:stats("C").launches, 8, "launches of B and C")
  t.ok(s:stats("B").launches > 200, "both fill")
end)

test("of three programs the second fills the first's gaps, the third what it leaves", function(t)
  local s = cases(t, { { name = "A", priority = 0, us = 500, gap_us = 1500, at = 60000 },
                       { name = "C", priority = 6, us = 200, at = 60000 },
                       { name = "B", priority = 3, us = 200, gap_us = 300, at = 60000 } })
  s:run(160000)
  local b, c = s:stats("B").launches, s:stats("C").launches
  t.below(s:stats("A").mean_us, 500 * 1.15, "mean of A")
  t.ok(b > 50 and c > 50, "both run, " .. b .. " and " .. c)
  t.below(s:stats("B").mean_us, s:stats("C").mean_us, "B waits for less long than C")
end)
