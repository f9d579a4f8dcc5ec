-- ways.lua: of several ways to let best effort go, the one that gives it most within a promise.
--
-- Each way has a rate, the part of the time that best effort may take by it: 1 is all that it can.
-- What a way costs those above is measured, and corrects its rate, a step at a time, until it costs
-- what was promised or less. The ways are tried one after the other; then that goes on which gave
-- most, and of the others one is tried now and then, the more seldom the less that helped.
local min, max = math.min, math.max
local correct_us = 40000     -- of those above, alone: shorter is noise, longer is late
local correct_runs = 16      -- likewise
local few_runs, long_us = 2, 400000  -- enough instead, where runs are long
local begins_part = 1 / 4    -- of both, while a way begins
local lost_us = 20000        -- those above lost so much: no need to see more
local halve_most, double_most = 4, 1  -- at a time: what is lost comes back as a queue
local rate_first = 1 / 8     -- a way begins so, and doubles while it costs little
local average_of = 10        -- corrections: fewer would be noise
local part_min = 0.2         -- that the last correction counts for the rate: loads change
local first = 2              -- corrections of a way until it is compared
local again = 3              -- and if it is tried again
local try_every = 128        -- corrections of the best way, and then another is tried: p99 shows it
local try_every_most = 2048  -- twice as many after each trial that was no better
local clearly = 1.1          -- so many times more, or it stays as it is
local rate_min = 1 / 256     -- lower is as good as none, and comes back slowly
local saved_us = 3000        -- a pause must not save up a burst
local debt_us = 1000000      -- nor one launch be paid for longer than anybody may be held
local paused_us = 2000       -- nobody asked for longer than that: it wanted nothing meanwhile

local function new(count)
  local s = { at = 1, turns = 0, corrections = 0, try_after = try_every, owed_us = 0, seen_us = 0,
              ways = {} }
  for i = 1, count do
    s.ways[i] = { rate = rate_first, turns = 0, begins = true, got = 0, over = 0, allowed = 1,
                  slow = 0, left = 0 }
  end
  return s
end

-- What a way would give at the promise: what is lost is taken to be in proportion to the rate.
local function worth(way)
  return way.got * min(1 / max(way.over / way.allowed, way.slow, 1 / 2), 1 / way.rate)
end

-- The way that gives most; the present one unless another gave clearly more. And of two that gave
-- about the same the later one: it goes beside those above less, which their tail shows first.
local function best(s, usable)
  local at = s.best or #s.ways
  for i = #s.ways, 1, -1 do
    if usable(i) and worth(s.ways[i]) > worth(s.ways[at]) * clearly then at = i end
  end
  return at
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
  return at
end

-- After a correction: goes on, or to another way. `usable`: of the ways, those that mean something.
local function choose(s, usable)
  local way = s.ways[s.at]
  s.corrections, s.turns, way.left = s.corrections + 1, s.turns + 1, s.corrections
  if way.turns < first then return end
  for i = 1, #s.ways do                       -- each once, in their order
    if usable(i) and s.ways[i].turns == 0 then return go(s, i) end
  end
  if s.turns < again then return end
  local tried, was = s.at ~= s.best, s.best
  s.best = best(s, usable)
  if s.best ~= was then
    s.try_after = try_every
  elseif tried then
    s.try_after = min(2 * s.try_after, try_every_most)
  elseif s.turns < s.try_after then
    return
  end
  go(s, not tried and s.best == was and next_to_try(s, usable) or s.best)
end

-- Those above took `over` longer than alone, of `allowed`. They had `slow` times as many slow runs
-- as they may. Best effort made `got` launches a us.
local function correct(s, over, allowed, slow, got, usable)
  local way = s.ways[s.at]
  if not way.begins then way.turns = way.turns + 1 end
  local part = way.begins and 1 or 1 / min(way.turns, average_of)
  way.over, way.got = way.over + (over - way.over) * part, way.got + (got - way.got) * part
  way.allowed, way.slow = allowed, way.slow + (slow - way.slow) * part
  local halvings = math.log(max(over / allowed, way.slow, 1 / 4)) / math.log(2)
  way.begins = way.begins and over < allowed and way.rate < 1
  halvings = max(-double_most, min(halve_most, halvings))
  if not way.begins then halvings = halvings * max(part, part_min) end
  way.rate = max(rate_min, min(1, way.rate / 2 ^ halvings))
  choose(s, usable)
end

-- What is owed at a way of a rate below 1; math.huge: all that it can use.
local function owed(s, at_us)
  local way = s.ways[s.at]
  local all = at_us - s.seen_us
  s.seen_us = at_us
  if all > paused_us then all = 0 end
  if way.rate >= 1 then                       -- nothing is counted
    s.owed_us = 0
    return math.huge
  end
  s.owed_us = min(s.owed_us + all * way.rate, saved_us)
  return s.owed_us
end

local function charge(s, us) s.owed_us = max(s.owed_us - us, -debt_us) end

-- What was seen is enough to correct by. Of a way that begins less is: its first steps are doubled.
local function due(s, alone_us, runs, over_us)
  local part = s.ways[s.at].begins and begins_part or 1
  local enough = runs >= correct_runs * part or runs >= few_runs and alone_us >= long_us * part
  return alone_us >= correct_us * part and enough or over_us >= lost_us
end

return { new = new, correct = correct, owed = owed, charge = charge, due = due }
