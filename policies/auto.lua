-- auto.lua: keeps what important clients were promised, and gives best effort what that leaves.
--
-- Typical use: a service beside best effort, where you know the classes and no more. Give the
-- service priority 0 to 4 and everything else a lower one; where you like, its rule a slowdown_max
-- or an slo_ms, and a slowdown_p99_max. Else its requests may take slowdown_pct longer.
--
-- Best effort can go in several ways (STEPS), from launch priorities alone to a few SMs. What each
-- costs those above is measured, and what it gives; the one that clearly gives most within the
-- promise is in force, at a rate that keeps it (lib/ways.lua). `heddle explain` says which.
-- Without anybody above a launch goes; among equals the built-in decides.
queue.create("be")

local above, promise, ways = import "lib/above", import "lib/promise", import "lib/ways"
local turns = import "lib/turns"

local min, max, huge = math.min, math.max, math.huge
local NONE, FEW, ALL, FITS = 0, 1, 2, 3
-- On which SMs best effort goes while those above work, and while they pause; from the freest.
local STEPS = {
  { busy = ALL, pause = ALL, why = "step 1: launch priorities alone" },
  { busy = FEW, pause = ALL, why = "step 2: few SMs beside, all in pauses", sets = true },
  { busy = FEW, pause = FEW, why = "step 3: few SMs", sets = true },
  { busy = NONE, pause = ALL, why = "step 4: pauses" },
  { busy = NONE, pause = FITS, why = "step 5: pauses that are predicted to hold it" },
}
-- Whether `a` lets nothing go that `b` holds.
local function within(a, b) return a.busy <= b.busy and (a.pause == b.pause or b.pause == ALL) end
local PAUSES = 4          -- as the built-in does: in force until another way is clearly better
for _, step in ipairs(STEPS) do
  step.spent, step.early = step.why .. "; not in this one", step.why .. "; this one just began"
end
local blind_us = 3000000  -- no run above ended for so long: what a step costs cannot be seen
local settle_us = 100     -- a request that waited for the one before it begins sooner
local slow_part = 0.01    -- of the runs may be slow: longer than their slowdown_p99_max, or else
local tail_times = 2      -- by p99_pct, or else by so many times what was promised of the mean
local long_us = 400000    -- best effort that is limited waits in so long of a pause: less than is
                          -- taken for a stall

-- Clients whose rule requests or limits a part of the GPU's time, and their equals, take turns.
local TURNS = { turn_us = 1000, depth_us = 1000, saved_us = 1000, wait_us = 300 }  -- of a percent
local parts = {}          -- by priority: the clients with such a rule
for q = 0, 9 do parts[q] = {} end

local state = {}          -- by priority: what was read at the last correction; how long those above
                          -- had been idle as they last worked; whether it takes their next pause
for q = 0, 9 do
  state[q] = { ways = ways.new(#STEPS, PAUSES), first_us = -1, load = 0, queue_until_us = 0,
               takes = true, last_run = 0, last_run_us = -huge, at_us = 0, idle_us = 0,
               pause_us = 0, work_us = 0, runs = 0, took_us = 0, alone_us = 0, pauses_us = 0,
               roots = 0, alike = 0,
               slow = 0, slow_of = 0, slower = huge,
               worked_us = 0, seen = false }  -- at the last pause; whether they worked since then
end

-- What is requested beside those above is not stopped for them.
local function stop_of(c, p) return c.request > 0 and "never" or p.stop end

local function takes_turns(c)
  if c.request == 0 and c.limit == 0 then return nil end
  parts[c.priority][c.id] = true
  return GATE
end

-- Work so far of all that are no more important than `q`, however it was let go. Launches would say
-- less: a program has phases of long ones and of short ones.
local function work_of(g, q)
  local us = 0
  for c in g:clients() do
    if c.priority >= q then us = us + c.work_us end
  end
  return us
end

-- What those above lost since the last correction, and what best effort got: corrects the ways.
local function measure(s, g, k, at_us, p)
  local q = k.priority
  local runs, took_us, alone_us, pauses_us, roots = g:runs(q)
  local count, alone = runs - s.runs, alone_us - pauses_us - (s.alone_us - s.pauses_us)
  local lost_us = took_us - s.took_us - (alone_us - s.alone_us)
  if runs ~= s.last_run then s.last_run, s.last_run_us = runs, at_us end
  if not ways.due(s.ways, alone, count, lost_us) then return end
  local idle_us, work_us, all_us = g:idle_us(q), work_of(g, q), at_us - s.at_us
  if s.at_us == 0 then s.first_us = at_us end
  if s.moved then
    s.moved = false
  elseif alone > 0 and s.at_us > 0 then
    promise.follow_load(s, idle_us - s.idle_us, all_us, at_us)
    promise.follow_pauses(s, count, pauses_us - s.pauses_us, roots - s.roots, alone)
    -- What can be stopped is, while those above work. That costs the first run after a pause its
    -- time, whatever went: who was promised nothing by a rule bears it.
    local stop = above.stops(k, stop_of(k.client, p)) and above.STOP_US * count / alone or 0
    local allowed, promised, tail = promise.allowed(
      g, q, alone / count, s, max(p.slowdown_pct / 100, stop), STEPS[s.ways.at].busy == NONE)
    local slow, slow_of = g:slower_runs(q, s.slower)
    local sets, at, was = g.mode == "mps" and p.few_sm > 0, s.ways.at, s.ways.best
    local device = k.client.held == "device"  -- it is on all SMs in pauses only if it always is
    ways.correct(s.ways, lost_us / alone / allowed, (slow - s.slow) / slow_part,
                 slow_of - s.slow_of, max(0, work_us - s.work_us) / all_us,
                 function(i)
                   local step = STEPS[i]
                   local on_sets = sets and not (device and step.pause == ALL)
                   return (on_sets or not step.sets) and (stop == 0 or step.busy == NONE)
                     and not (ways.unbound(s.ways) and within(step, STEPS[s.ways.best]))
                 end)
    -- What is held on the device is still on the SMs that it was posted to.
    s.moved = device and STEPS[s.ways.at].busy ~= STEPS[at].busy
    s.ways.bounds_slow = p.p99_pct > 0 or tail
    s.slower = p.p99_pct > 0 and 1 + p.p99_pct / 100 or tail and huge or 1 + tail_times * promised
    local best = s.ways.best
    if best ~= was then
      trace("Q%d: %s, gives most; above %.1f %% of %.1f are lost", q, STEPS[best].why,
            100 * allowed * s.ways.ways[best].over, 100 * allowed)
    end
  end
  s.at_us, s.idle_us, s.work_us = at_us, idle_us, work_us
  s.runs, s.took_us, s.alone_us, s.pauses_us, s.roots = runs, took_us, alone_us, pauses_us, roots
  s.slow, s.slow_of = g:slower_runs(q, s.slower)
end

return policy {
  name = "auto", api = 1, version = "1.0.0",
  params = {
    slowdown_pct = { type = "number", min = 0.1, max = 1000, default = 5,
                     doc = "so much longer may those above take whose rule promises nothing" },
    p99_pct = { type = "number", min = 0, max = 1000, default = 0,
                doc = "one run in a hundred may by more, where no slowdown_p99_max is; 0: any" },
    quantum_us = { type = "int", min = 20, max = 100000, default = 500,
                   doc = "most best-effort work in flight; one longer launch goes alone" },
    few_sm = { type = "int", min = 0, max = 1024, default = 64,
               doc = "SMs of best effort beside others, under MPS, half at most; 0: all or none" },
    stop = { type = "string", default = "long",
             doc = "time-sliced: what runs is stopped for those above: never, long, always" },
  },
  hooks = {
    enqueue = function(k, p)
      if next(parts[k.priority]) then return turns.enqueue(k, TURNS) end
      ways.charge(state[k.priority].ways, k.open_us)
      return queue.insert("be", k, k.priority)
    end,
    client_init = function(c, p)
      c:stop(stop_of(c, p))
      turns.meet(c)
      return takes_turns(c)
    end,
    client_active = function(c)
      turns.comes(c)
      return takes_turns(c)
    end,
    client_idle = takes_turns,
    client_exit = function(c)
      turns.forget(c)
      for q = 0, 9 do parts[q][c.id] = nil end
      for q = c.priority + 1, 9 do state[q].takes, state[q].last_run_us = true, -huge end
    end,

    dispatch = function(g, p)
      local k, turn = queue.peek("be"), turns.head(TURNS)
      if turn and k and k.priority < turn.priority then turn = nil end
      if turn and above.top(g) >= turn.priority then return turns.go(g, turn, TURNS, true) end
      if turn and turns.beside(turn, TURNS) then
        return RUN, turn, nil, nil, "by its request"
      end
      k = turn or k
      if not k then return IDLE, "empty" end
      local q, us, most, s = k.priority, k.predicted_us, p.quantum_us, state[k.priority]
      local when = stop_of(k.client, p)
      local inflight = max(g.inflight_us, k.client.inflight_us)  -- in long pauses the first is 0
      local at_us = now_us()
      measure(s, g, k, at_us, p)
      local blind, step = at_us - s.last_run_us >= blind_us, STEPS[s.ways.at]
      if blind or step.sets and not k.fenceable then step = STEPS[PAUSES] end
      local owed_us = blind and huge or ways.owed(s.ways, at_us)
      if g:comparing(q) then return IDLE, "a run is timed alone" end
      local busy, idle_us = g:busy(q), g:idle_us(q)
      if busy and s.pause_us ~= idle_us then
        if owed_us ~= huge then above.gate(g, q, long_us) end
        s.pause_us, s.takes = idle_us, ways.takes_pause(s.ways)
      end
      -- What stands asks for nothing: a pause is another one also where nobody saw them work.
      local worked_us = at_us - idle_us
      if not (busy or s.seen) and worked_us > s.worked_us + 1 and above.stops(k, when) then
        s.takes = ways.takes_pause(s.ways)
      end
      s.seen = busy
      if not busy then s.worked_us = worked_us end
      if step.busy == NONE and not blind then owed_us = s.takes and huge or 0 end
      local where = busy and step.busy or step.pause
      local early_us = s.pause_us + settle_us - idle_us
      if g:gap_us(q) == huge and idle_us - s.pause_us >= long_us then
        where, owed_us = ALL, huge
      elseif step.busy == NONE and early_us > 0 and not busy then
        return IDLE, early_us, step.early
      end
      if where == NONE then return IDLE, step.why end
      if owed_us <= 0 then return IDLE, step.spent end
      if where == FITS then
        k = queue.best_fit(turn and "waiting" or "be", g:gap_us(q) - g.switch_us - inflight)
        if not k then return IDLE, step.why end
        us = k.predicted_us
      end
      local sm
      if where == FEW then sm, inflight = min(p.few_sm, math.floor(g.sm_total / 2)), g.fenced_us end
      above.keep_to(k.client, sm or 0)
      if inflight > 0 and inflight + us > most and not above.stops_with(k, when, inflight) then
        return IDLE, "enough in flight"
      end
      ways.charge(s.ways, us)
      local verdict = (owed_us < huge or k.client.limit > 0) and RUN or OPEN
      return verdict, k, sm, step.busy ~= NONE and 0 or nil, step.why
    end,
  },
}
