-- ways.lua: of several ways to let best effort go, the one that gives it most within a promise.
--
-- Each way has a rate: 1 is all that best effort can take by it. Beside those above it has that
-- part of the time. Of their pauses it has that part, each of them whole: however long it is at
-- work in one, they wait for what is in flight at its end, and find the caches full of its data.
-- What a way costs those above is measured, and corrects its rate until it costs what was promised
-- or less. The first choice is in force, at a rate of 1. Each other way is tried against what is in
-- force until it is clearly better, which takes many measurements, or is not, which takes few. That
-- costs best effort something, so the first trials are the further apart the less a way can add. A
-- way that was no better is tried again, the more seldom the less that helped.
local min, max = math.min, math.max
local correct_us = 40000     -- of those above, alone: shorter is noise, longer is late
local correct_runs = 16      -- likewise
local few_runs, long_us = 2, 400000  -- enough instead, where runs are long
local begins_part = 1 / 4    -- of both, while a way begins
local lost_us = 20000        -- those above lost so much: no need to see more
local rate_first = 1 / 8     -- a way begins so, and doubles
local begins_most = 3        -- while it costs less than so many promises: less is noise
local lower_most, raise_most = 1 / 8, 2  -- at a time: what is lost comes back as a queue
local lowered_of = 3         -- corrections that count after it was lowered: it may have been noise
local average_of = 10        -- corrections: fewer would be noise
local over_most = 1.2        -- of the promise: as much is left alone, for it may be noise
local tried = 3              -- corrections of a way, and it is compared
local much_worse = 1 / 2     -- of what the best is worth: below that one correction is enough
local got_most = 0.95        -- of the GPU's time: more is taken for so much, and is not all
local sure = 8               -- and it takes the place of another
local between = 24           -- first trials are so many corrections apart where half is to be won
local try_every = 128        -- corrections of the best way, and then another is tried: p99 shows it
local try_every_most = 2048  -- twice as many after each, until another way is in force
local slow_most = 2          -- times as many slow runs as there may be: fewer are noise
local slow_aim = 0.7         -- of those that there may be, where they are bounded
local slow_saved, slow_debt = 300, 1000  -- runs: so many allow three slow ones, and pay for ten
local clearly = 1.1          -- so many times more, or it stays as it is
local rate_min = 1 / 256     -- lower is as good as none, and comes back slowly
local saved_us = 3000        -- a pause must not save up a burst
local debt_us = 1000000      -- nor one launch be paid for longer than anybody may be held
local paused_us = 2000       -- nobody asked for longer than that: it wanted nothing meanwhile

-- `first`: the way that is in force until another is clearly better.
local function new(count, first)
  local s = { first = first, at = first, best = first, turns = 0, corrections = 0,
              try_after = try_every, owed_us = 0, seen_us = 0, pauses = 0,
              bounds_slow = false, slow_left = 0, ways = {} }
  for i = 1, count do
    s.ways[i] = { rate = rate_first, turns = 0, of = 0, begins = true, got = 0, over = 0, slow = 0,
                  left = 0 }
  end
  s.ways[first].rate = 1
  return s
end

-- What it costs those above, 1: as much as was promised. `bounds_slow`: slow runs are part of that.
local function cost(s, way) return s.bounds_slow and max(way.over, way.slow) or way.over end

-- Slow runs are bounded, and there were too many: none is left until others have made up for them.
local function in_debt(s) return s.bounds_slow and s.slow_left < 0 end

-- What a way would give at the promise: what is lost is taken to be in proportion to the rate. It
-- is worth less if it makes runs slow where the first choice does not.
local function worth(s, i)
  local way = s.ways[i]
  local slow = s.ways[s.first].slow < slow_most and max(1, way.slow / slow_most) or 1
  return way.got * min(1 / max(cost(s, way), 1 / 2), 1 / way.rate) / slow
end

local function go(s, at)
  s.at, s.turns, s.owed_us = at, 0, 0
end

-- Of the others the one that was left longest ago.
local function next_to_try(s, usable)
  local at
  for i = 1, #s.ways do
    if i ~= s.best and usable(i) and not (at and s.ways[at].left <= s.ways[i].left) then at = i end
  end
  return at or s.best
end

-- After a correction: goes on, or to another way. `usable`: of the ways, those that mean something.
local function choose(s, usable)
  local way = s.ways[s.at]
  s.corrections, s.turns, way.left = s.corrections + 1, s.turns + 1, s.corrections
  if s.turns < tried and worth(s, s.at) >= worth(s, s.best) * much_worse then return end
  local better = worth(s, s.at) > worth(s, s.best) * clearly
  if better and way.turns < sure then return end
  if better and s.ways[s.best].turns < sure then return go(s, s.best) end
  if better then s.best, s.try_after = s.at, try_every end
  local at = next_to_try(s, usable)
  if s.at ~= s.best then return go(s, s.best) end
  local got = min(s.ways[s.best].got, got_most)
  if s.ways[at].begins and s.turns >= between * got / (1 - got) then return go(s, at) end
  for i = 1, #s.ways do
    if usable(i) and worth(s, i) > worth(s, s.at) * clearly then return go(s, i) end
  end
  if s.turns >= s.try_after then
    s.try_after = min(2 * s.try_after, try_every_most)
    go(s, at)
  end
end

-- Those above took `over` times longer than they may. Of `runs` so many were slow as of `slow` may.
-- Best effort had `got` of the GPU's time.
local function correct(s, over, slow, runs, got, usable)
  local way, was_in_debt = s.ways[s.at], in_debt(s)
  local left = s.bounds_slow and s.slow_left or 0
  s.slow_left = max(-slow_debt, min(slow_saved, left + slow_aim * runs - slow))
  if was_in_debt then return end              -- best effort had nothing, and so cost nothing
  if way.begins and way.rate < 1 and over < begins_most then
    way.rate = min(1, way.rate * 2)
    return
  end
  way.begins, way.turns, way.of = false, way.turns + 1, min(way.of + 1, average_of)
  local part = 1 / way.of
  way.over, way.got = way.over + (over - way.over) * part, way.got + (got - way.got) * part
  way.slow = way.slow + (slow / max(1, runs) - way.slow) * part
  local most = cost(s, way)
  if most < 1 or most > over_most then
    local was = way.rate
    way.rate = max(rate_min, min(1, was * max(lower_most, min(raise_most, 1 / max(most, 1e-9)))))
    local times = way.rate / was
    way.got, way.over, way.slow = way.got * times, way.over * times, way.slow * times
    if way.rate < was then way.of = min(way.of, lowered_of) end
  end
  choose(s, usable)
end

-- What is owed at a way of a rate below 1; math.huge: all that it can use; 0: nothing, in debt.
local function owed(s, at_us)
  local way = s.ways[s.at]
  local all = at_us - s.seen_us
  s.seen_us = at_us
  if in_debt(s) then return 0 end
  if all > paused_us then all = 0 end
  if way.rate >= 1 then                       -- nothing is counted
    s.owed_us = 0
    return math.huge
  end
  s.owed_us = min(s.owed_us + all * way.rate, saved_us)
  return s.owed_us
end

-- Whether best effort may take the next pause of those above.
local function takes_pause(s)
  if in_debt(s) then return false end
  s.pauses = s.pauses + s.ways[s.at].rate
  local takes = s.pauses >= 1
  if takes then s.pauses = s.pauses - 1 end
  return takes
end

local function charge(s, us) s.owed_us = max(s.owed_us - us, -debt_us) end

-- What was seen is enough to correct by. Of a way that begins less is: its first steps are doubled.
local function due(s, alone_us, runs, over_us)
  local part = s.ways[s.at].begins and begins_part or 1
  local enough = runs >= correct_runs * part or runs >= few_runs and alone_us >= long_us * part
  return alone_us >= correct_us * part and enough or over_us >= lost_us
end

-- Whether the best way keeps the promise at a rate of 1. Then a way that lets less go gives less.
local function unbound(s)
  local best = s.ways[s.best]
  return best.rate == 1 and best.of > 0 and (s.best == s.first or best.slow < slow_most)
end

return { new = new, correct = correct, owed = owed, takes_pause = takes_pause, charge = charge,
         due = due, unbound = unbound }
