-- gapfill.lua: run best-effort kernels in the idle gaps of more important clients (FIKIT).
--
-- A waiting launch goes if it is predicted to end before the next kernel of any client above; of
-- those that fit, the longest goes. If gaps are too short for any kernel, as between the launches
-- of eager PyTorch, best effort is still owed share_pct of the time that those above leave idle,
-- and floor_pct of the time that they are busy, so that it does not starve beside a dense program.
-- This guess is corrected by a factor: it at most doubles or halves in 20 ms of their runs, as
-- these take less or more than slowdown_pct longer than alone; later in 200 ms, since hosts are
-- noisy. Owed launches go when those above pause; under MPS those that find no pause go beside.
--
-- Launches held on the device go on until a client above works, so they use a gap that comes out
-- longer than predicted. With a launch too long to be stopped soon, others go along only as far as
-- gap and quantum hold them.
-- Under MPS what fits no gap can run on some of the SMs (fence_sm), so that those above have the
-- others. Best effort gets more that way beside a program of small kernels, and less beside one
-- that fills the GPU, so the policy tries both. A graph that asks always runs there.
queue.create("be")

local lib = import "lib/above"

local min, max, huge = math.min, math.max, math.huge
local saved_us_max = 3000                     -- most that is owed: a pause saves up no burst
local beside_us = 1500                        -- owed more, the pauses were too short for it
local correct_us, correct_by = 20000, 0.05    -- of runs above; slowdown that halves the factor
local try_every, tried_less = 32, 8           -- corrections between trials; times that at most
local try_first, clearly = 4, 1.1             -- corrections of a first trial; gain that decides
local enough = 0.5                            -- of the time wanted: then no fence is tried
local average_of = 10                         -- corrections
local factor_min, factor_max = 1 / 8, 32      -- of the guess
local unused_us = 2500                        -- owed more, best effort did not use it
local fence_times = 4                         -- times overrun_max_us that a fenced launch may take
local stops_us = 150                          -- longest launch that gates stop soon (GUIDE.md)
local short_us = 20                           -- under MPS: too short for a fence, or to wait

-- Best effort goes one of two ways: on all SMs, or on fence_sm of them. Each way has a factor,
-- which corrects what is owed so that it costs those above slowdown_pct at most, and averages over
-- average_of corrections, in relation to the time in which best effort wanted to run: its launches
-- (not their time, since the same kernel takes longer on fewer SMs), and the share of that time
-- that they were predicted to take.
local ALL, FENCE = 1, 2
local wanted_us = 2000                        -- while best effort has work it asks so often
local function new_way() return { factor = 1, turns = 0, launches_per_us = 0, share = 0 } end
-- By priority: the time that best effort is owed; the idle time of those above, and when that was
-- read; the way that it goes, for how many corrections, and what it got and wanted since; and the
-- longest rest of a gap lately at a decision (offered_us, nil: none yet), since decisions are late.
local above = {}
for q = 0, 9 do
  above[q] = { owed_us = 0, idle_us = 0, at_us = 0, way = ALL, turns = 0, got = 0, got_us = 0,
               wanted_us = 0, ways = { new_way(), new_way() } }
end

-- Chooses the way. Each is tried for try_first corrections first; the fence begins with the factor
-- of all SMs. Then the fence is the way if best effort gets clearly more there, else all SMs. The
-- other way is tried now and then, the more seldom the less best effort got by it, because changes
-- make its service unsteady. For the same reason no fence is tried while all SMs give it enough.
local function choose(a)
  local all, fence = a.ways[ALL], a.ways[FENCE]
  if a.way == ALL and all.share > enough then return end
  a.turns = a.turns + 1
  if a.turns < 2 * try_first then
    if a.turns == try_first then a.way, fence.factor = FENCE, all.factor end
    return
  end
  local more = (fence.launches_per_us + 1e-6) / (all.launches_per_us + 1e-6)
  local best = more > clearly and FENCE or ALL
  local times_less = min(tried_less, max(more, 1 / more))
  a.way = best
  if a.turns >= try_every * times_less then
    a.way, a.turns = ALL + FENCE - best, 2 * try_first
  end
end

-- `over`: by which part those above took longer than they may. The factor is not raised while best
-- effort leaves what it is owed unused: once it could use that, it would take all of it at once.
local function correct_way(a, over, unused, p)
  local way = a.ways[a.way]
  if not unused or way.turns == 0 then
    way.turns = min(way.turns + 1, average_of)
    local step = max(-1, min(1, over / correct_by)) / way.turns
    local most = min(factor_max, 100 / max(1, p.floor_pct))  -- then all of the time is owed
    way.factor = max(factor_min, min(most, way.factor / 2 ^ step))
  end
  if a.wanted_us > 0 then
    local launches_per_us, share = way.launches_per_us, way.share
    way.launches_per_us = launches_per_us + (a.got / a.wanted_us - launches_per_us) / way.turns
    way.share = share + (a.got_us / a.wanted_us - share) / way.turns
  end
  if p.fence_sm > 0 then choose(a) end
end

-- Corrects after runs of those above that take correct_us alone. If best effort hardly lets them
-- run, that would be late: then after twice that time.
local function correct(a, q, g, p)
  local _, took_us, alone_us = g:runs(q)
  local alone = alone_us - (a.alone_us or -huge)
  local took = took_us - (a.took_us or took_us)
  if alone < correct_us and took < 2 * correct_us then return end
  if alone < huge then
    local over = took / alone - 1 - p.slowdown_pct / 100
    local unused = over < 0 and a.owed_us > unused_us
    correct_way(a, over, unused, p)
  end
  a.took_us, a.alone_us = took_us, alone_us
  a.got, a.got_us, a.wanted_us = 0, 0, 0
end

local function owed(a, q, g, k, at_us, p)
  local idle_us = g:idle_us(q)
  local idle, all = idle_us - a.idle_us, at_us - a.at_us
  if all > wanted_us and k.wait_us < all then   -- best effort had no work in between
    a.owed_us, idle, all = min(a.owed_us, beside_us), 0, 0
  end
  a.wanted_us = a.wanted_us + min(all, wanted_us)
  local guess_us = (idle * p.share_pct + (all - idle) * p.floor_pct) / 100
  if p.slowdown_pct > 0 then
    correct(a, q, g, p)
  else
    a.way = FENCE                             -- unless fence_sm is 0
  end
  a.owed_us = min(a.owed_us + min(all, guess_us * a.ways[a.way].factor), saved_us_max)
  a.idle_us, a.at_us = idle_us, at_us
  return a.owed_us
end

local function charge(a, us, launches)
  a.owed_us = max(a.owed_us - us, -saved_us_max)
  a.got, a.got_us = a.got + launches, a.got_us + us
end

return policy {
  name = "gapfill", api = 1, version = "2.0.0",
  params = {
    quantum_us = { type = "int", min = 20, max = 5000, default = 500,
                   doc = "most best-effort work in flight; one longer launch goes alone" },
    share_pct = { type = "number", min = 0, max = 100, default = 90,
                  doc = "share of the idle time of those above, even if no gap fits" },
    floor_pct = { type = "number", min = 0, max = 100, default = 5,
                  doc = "share of the time that those above are busy" },
    slowdown_pct = { type = "number", min = 0, max = 1000, default = 4,
                     doc = "both are corrected until those above take so much longer; 0: neither" },
    overrun_max_us = { type = "int", min = 0, max = 100000, default = 2500,
                       doc = "most that a launch for that share may hold up those above" },
    fence_sm = { type = "int", min = 0, max = 1024, default = 64,
                 doc = "SMs for what fits no gap, under MPS, half of them at most; 0: all" },
    stop = { type = "string", default = "long",
             doc = "time-sliced: what runs is stopped for those above: never, long, always" },
  },
  hooks = {
    client_init = function(c, p) c:stop(p.stop) end,

    enqueue = function(k, p)
      charge(above[k.priority], k.open_us, 0)
      return queue.insert("be", k, k.priority)       -- Q0 is served first
    end,

    dispatch = function(g, p)
      local k = queue.peek("be")
      if not k then return IDLE, "empty" end
      local q = k.priority
      local a = above[q]
      local mps, corrects, at_us = g.mode == "mps", p.slowdown_pct > 0, now_us()
      local owed_us = owed(a, q, g, k, at_us, p)
      if corrects and g:comparing(q) then return IDLE, "a run is timed alone" end
      local fenced = g.fenced_us                    -- on SMs of its own, it delays no client
      local inflight = g.inflight_us - fenced
      local quantum = p.quantum_us
      local alone = inflight <= 0 or lib.stops_with(k, p.stop, inflight)
      local most = alone and huge or quantum - inflight
      local left = g:gap_us(q) - g.switch_us - inflight
      local few = min(p.fence_sm, math.floor(g.sm_total / 2))     -- larger fences hardly protect
      -- On all SMs a graph's kernels would delay each kernel of those above, so it is fenced. A
      -- graph that is held on the device runs in gaps, and has all SMs there.
      local apart = a.way == FENCE or k.kind == "graph" and k.client.held ~= "device"
      lib.keep_to(k.client, mps and apart and left < huge and few or 0)
      local busy = g:busy(q)
      if not busy and left < huge then
        a.offered_us = max(left, (a.offered_us or 0) * 0.99)
      end
      local fits = queue.best_fit("be", min(left, most))
      if fits then
        local us = fits.predicted_us
        charge(above[fits.priority], us, 1)
        return us > stops_us and RUN or OPEN, fits, "fits"
      end

      local short = mps and k.predicted_us < short_us
      local fence = mps and few > 0 and apart and k.fenceable and not short
      local beside = mps and owed_us > beside_us
      if busy and not beside then return IDLE, "a more important client runs" end
      local ahead = fence and fenced or inflight                   -- a quantum inside, one outside
      local full = ahead > 0 and ahead + k.predicted_us > quantum
      if full then return IDLE, "enough in flight" end
      if owed_us <= 0 then return IDLE, "no gap that fits" end
      local patience_us = k.wait_us / 32        -- a launch that waits long may delay others longer
      if fence then
        local longest_us = fence_times * p.overrun_max_us + patience_us
        if k.predicted_us > longest_us then          -- it waits on; a shorter one may go
          k = queue.best_fit("be", fence_times * p.overrun_max_us)
          if not (k and k.fenceable) then return IDLE, "too long for the fence" end
        end
        charge(a, k.predicted_us, 1)
        return RUN, k, few, 0, "fenced"
      end
      -- In a gap the launch delays no client, so it waits a while for one that it fits twice.
      local room = not short and 2 * k.predicted_us < (a.offered_us or 0)
      local soon = room and k.wait_us < 4 * k.predicted_us
      if soon then return IDLE, "fits the next gap" end
      local hold_us = mps and k.wave_us or k.predicted_us  -- what those above wait for
      if lib.stops(k, p.stop) then hold_us = min(hold_us, lib.STOP_US) end  -- while it runs
      if hold_us > p.overrun_max_us + patience_us then
        k = queue.best_fit("be", p.overrun_max_us)   -- it waits on; a shorter one may go
        if not k then return IDLE, "too long for any gap" end
      end
      charge(a, k.predicted_us, 1)
      return RUN, k, nil, 0, "owed"                  -- 0: the lowest launch priority
    end,
  },
}
