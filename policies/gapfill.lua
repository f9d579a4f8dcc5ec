-- gapfill.lua: run best-effort kernels in the idle gaps of more important clients (FIKIT).
--
-- A waiting launch goes if it is predicted to end before the next kernel of anyone above comes; of
-- those that fit, the longest. Where gaps are too short for any kernel, as between the launches of
-- eager PyTorch, best effort is still owed share_pct of the time that those above leave idle, and
-- floor_pct of the time that they are busy, so that nobody starves beside a dense program. That is
-- a guess, corrected by what it costs: it doubles, or halves, in 20 ms of their runs as these take
-- less or more than slowdown_pct longer than alone, and later in 200, since hosts are noisy. What
-- is owed goes when those above pause; what the pauses have no room for goes, under MPS, beside.
--
-- What is held on the device goes on until somebody above works: a gap may come out longer. Behind
-- a launch that cannot be stopped soon no more goes along than gap and quantum hold.
-- Under MPS what fits no gap can run on some of the SMs (fence_sm), so that those above have the
-- others: beside a program of small kernels best effort gets more that way, beside one that fills
-- the GPU less. Which it is, is tried; a graph that asks always runs there.
queue.create("be")

local lib = import "lib/above"

local min, max, huge = math.min, math.max, math.huge
local saved_us_max = 3000                     -- a pause must not save up a burst
local beside_us = 1500                        -- owed so much, it was more than the pauses hold
local correct_us, correct_by = 20000, 0.05    -- after so much of their runs, by 2 for so much
local try_every, tried_less = 32, 8           -- corrections; and so many times less often at most
local try_first, clearly = 4, 1.1             -- corrections; and so many times more
local enough = 0.5                            -- of the time wanted: nothing is tried then
local average_of = 10                         -- corrections
local factor_min, factor_max = 1 / 8, 32      -- of the guess
local unused_us = 2500                        -- owed so much, it was more than it uses
local fence_times = 4                         -- overrun_max_us: those above have fewer SMs so long
local stops_us = 150                          -- held on the device: a unit, see GUIDE.md
local short_us = 20                           -- under MPS: over too soon for a fence, or to wait

-- The ways to go: on all SMs, or on fence_sm of them. The factor that corrects what is owed, so
-- that either costs those above slowdown_pct or less; and, on the average of so many corrections,
-- what best effort got in the time that it wanted: launches, since the same kernel takes longer on
-- fewer SMs, and the share of it that they were predicted to take.
local ALL, FENCE = 1, 2
local wanted_us = 2000                        -- it asks this often at least while it does
local function new_way() return { factor = 1, turns = 0, launches_per_us = 0, share = 0 } end
-- By priority: what best effort is owed; the idle time of those above, and when that was read; the
-- way that it goes, for how many corrections, and what it got and wanted since; and the most of a
-- gap that was left lately when a kernel could go, for decisions come late (nil: none was yet).
local above = {}
for q = 0, 9 do
  above[q] = { owed_us = 0, idle_us = 0, at_us = 0, way = ALL, turns = 0, got = 0, got_us = 0,
               wanted_us = 0, ways = { new_way(), new_way() } }
end

-- Each way for some corrections first, the fence corrected as all SMs were. Then the fence, if it
-- gets best effort clearly more, else all SMs; and the other now and then, the more seldom, the
-- less that got it, for whoever is served now this way, now that, is served unsteadily. So is
-- whoever has enough on all SMs: no fence is tried then.
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

-- Those above took so much longer than they may. What is not used is not raised: it would be made
-- good at once when best effort can use it.
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

-- However long they take: who is hardly left to run is heard of after twice the time.
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
  if all > wanted_us and k.wait_us < all then   -- it did not ask
    a.owed_us, idle, all = min(a.owed_us, beside_us), 0, 0
  end
  a.wanted_us = a.wanted_us + min(all, wanted_us)
  local guess_us = (idle * p.share_pct + (all - idle) * p.floor_pct) / 100
  if p.slowdown_pct > 0 then
    correct(a, q, g, p)
  else
    a.way = FENCE                             -- if there is one
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
      local fenced = g.fenced_us                    -- has SMs of its own, and delays nobody
      local inflight = g.inflight_us - fenced
      local quantum = p.quantum_us
      local alone = inflight <= 0 or lib.stops_with(k, p.stop, inflight)
      local most = alone and huge or quantum - inflight
      local left = g:gap_us(q) - g.switch_us - inflight
      local few = min(p.fence_sm, math.floor(g.sm_total / 2))     -- more would fence nothing
      -- All SMs of a graph would be in the way of each kernel of those above, one after the other.
      -- What is held on the device has its place: in a gap a graph has all of them.
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
      local ahead = fence and fenced or inflight                   -- each has a quantum
      local full = ahead > 0 and ahead + k.predicted_us > quantum
      if full then return IDLE, "enough in flight" end
      if owed_us <= 0 then return IDLE, "no gap that fits" end
      local patience_us = k.wait_us / 32        -- whoever waits for long may hold up for longer
      if fence then
        local longest_us = fence_times * p.overrun_max_us + patience_us
        if k.predicted_us > longest_us then          -- it waits on, and nobody behind it
          k = queue.best_fit("be", fence_times * p.overrun_max_us)
          if not (k and k.fenceable) then return IDLE, "too long for the fence" end
        end
        charge(a, k.predicted_us, 1)
        return RUN, k, few, 0, "fenced"
      end
      -- In a gap it delays nobody, which is worth some of its own time.
      local room = not short and 2 * k.predicted_us < (a.offered_us or 0)
      local soon = room and k.wait_us < 4 * k.predicted_us
      if soon then return IDLE, "fits the next gap" end
      local hold_us = mps and k.wave_us or k.predicted_us  -- what those above wait for
      if lib.stops(k, p.stop) then hold_us = min(hold_us, lib.STOP_US) end  -- in its middle
      if hold_us > p.overrun_max_us + patience_us then
        k = queue.best_fit("be", p.overrun_max_us)   -- likewise
        if not k then return IDLE, "too long for any gap" end
      end
      charge(a, k.predicted_us, 1)
      return RUN, k, nil, 0, "owed"                  -- 0: the blocks of all others go first
    end,
  },
}
