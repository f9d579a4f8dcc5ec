-- gapfill.lua: run best-effort kernels in the idle gaps of more important clients (FIKIT).
--
-- A waiting launch goes if it is predicted to end before the next kernel of anyone above comes; of
-- those that fit, the longest. Where gaps are too short for any kernel, as between the launches of
-- eager PyTorch, best effort is still owed share_pct of the time that those above leave idle, and
-- floor_pct of the time that they are busy, so that nobody starves beside a dense program. That is
-- a guess, corrected by what it costs: it doubles, or halves, in 20 ms of their runs as these take
-- less or more than slowdown_pct longer than alone. What is owed goes when those above pause; what
-- the pauses have no room for goes, under MPS, beside them.
--
-- What gap and quantum hold beyond the launch goes along as credit, as far as credit_pct says.
-- Under MPS those above wait for a wave of a kernel's blocks to end. What fits no gap and has long
-- waves (fence_us) can run on a few SMs instead (fence_sm): those above then have the others.
queue.create("be")

local min, max = math.min, math.max
local saved_us_max = 3000                     -- a pause must not save up a burst
local beside_us = 1500                        -- owed so much, it was more than the pauses hold
local correct_us, correct_by = 20000, 0.05    -- after so much of their runs, by 2 for so much
-- By priority: what best effort is owed; idle time, and when that was read; the factor by which it
-- is corrected, and what runs took and take alone when that was last done; and the most of a gap
-- that was left lately when a kernel could go, for decisions come late (nil: no gap was seen yet).
local owed_us, seen_idle_us, seen_at_us, offered_us = {}, {}, {}, {}
local factor, seen_took_us, seen_alone_us = {}, {}, {}
for q = 0, 9 do owed_us[q], seen_idle_us[q], seen_at_us[q], factor[q] = 0, 0, 0, 1 end

local function correct(q, g, p)
  local _, took_us, alone_us = g:runs(q)
  local alone = alone_us - (seen_alone_us[q] or -math.huge)
  if alone < correct_us then return end
  if alone < math.huge then
    local over = (took_us - seen_took_us[q]) / alone - 1 - p.slowdown_pct / 100
    factor[q] = max(1 / 8, min(8, factor[q] / 2 ^ max(-1, min(1, over / correct_by))))
  end
  seen_took_us[q], seen_alone_us[q] = took_us, alone_us
end

local function owed(q, g, at_us, p)
  local idle_us = g:idle_us(q)
  local idle, all = idle_us - seen_idle_us[q], at_us - seen_at_us[q]
  local guess_us = (idle * p.share_pct + (all - idle) * p.floor_pct) / 100
  if p.slowdown_pct > 0 then correct(q, g, p) end
  local earned_us = min(all, guess_us * factor[q])
  owed_us[q] = min(owed_us[q] + earned_us, saved_us_max)
  seen_idle_us[q], seen_at_us[q] = idle_us, at_us
  return owed_us[q]
end

local function charge(q, us)
  owed_us[q] = max(owed_us[q] - us, -saved_us_max)
end

return policy {
  name = "gapfill", api = 1, version = "1.4.0",
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
    credit_pct = { type = "int", min = 0, max = 100, default = 50,
                   doc = "of the quantum, most that a grant covers; at 50 half runs as it asks" },
    fence_sm = { type = "int", min = 0, max = 1024, default = 0,
                 doc = "SMs for what fits no gap, under MPS, half of them at most; 0: none" },
    fence_us = { type = "int", min = 0, max = 100000, default = 250,
                 doc = "with fence_sm: a kernel's wave that is longer goes there" },
  },
  hooks = {
    enqueue = function(k, p)
      if k.client.window_us > 0 then return nil end  -- its own window holds it: the built-in's
      charge(k.priority, k.by_credit_us)
      return queue.insert("be", k, k.priority)       -- Q0 is served first
    end,

    dispatch = function(g, p)
      local k = queue.peek("be")
      if not k then return IDLE, "empty" end
      local q, at_us = k.priority, now_us()
      local owed_now_us = owed(q, g, at_us, p)
      if g:comparing(q) and p.slowdown_pct > 0 then return IDLE, "a run is timed alone" end
      local fenced = g.fenced_us                    -- has SMs of its own, and delays nobody
      local inflight = g.inflight_us - fenced
      local most = inflight > 0 and p.quantum_us - inflight or math.huge
      local left = g:gap_us(q) - g.switch_us - inflight
      local busy = g:busy(q)
      if not busy and left < math.huge then
        offered_us[q] = max(left, (offered_us[q] or 0) * 0.99)
      end
      local offered = offered_us[q]
      local fits = queue.best_fit("be", min(left, most))
      if fits then
        local us = fits.predicted_us
        local rest = min(left, p.quantum_us - inflight, p.quantum_us * p.credit_pct / 100) - us
        charge(fits.priority, us)
        return RUN, fits, nil, nil, max(0, rest), "fits"
      end

      local mps = g.mode == "mps"
      local beside = mps and owed_now_us > beside_us
      if busy and not beside then return IDLE, "a more important client runs" end
      local few = p.fence_sm > 0 and 2 * p.fence_sm <= g.sm_total  -- else it would fence nothing
      local hold_us = mps and k.wave_us or k.predicted_us         -- what those above wait for
      local fence = mps and few and k.fenceable and hold_us > p.fence_us
      local ahead = fence and fenced or inflight                   -- each has a quantum
      local full = ahead > 0 and ahead + k.predicted_us > p.quantum_us
      if full then return IDLE, "enough in flight" end
      if fence then return RUN, k, p.fence_sm, 0, "fenced" end     -- in nobody's way, so not owed
      if owed_now_us <= 0 then return IDLE, "no gap that fits" end
      -- In a gap it delays nobody, which is worth some of its own time.
      local room = 2 * k.predicted_us < (offered or 0)
      local soon = room and k.wait_us < 4 * k.predicted_us
      if soon then return IDLE, "fits the next gap" end
      local patience_us = k.wait_us / 32        -- whoever waits for long may hold up for longer
      if hold_us > p.overrun_max_us + patience_us then return IDLE, "too long for any gap" end
      charge(q, k.predicted_us)
      return RUN, k, nil, 0, "owed"                  -- 0: the blocks of all others go first
    end,
  },
}
