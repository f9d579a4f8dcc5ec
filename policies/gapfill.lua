-- gapfill.lua: run best-effort kernels in the idle gaps of more important clients (FIKIT).
--
-- A waiting launch goes if it is predicted to end before the next kernel of anyone above comes; of
-- those that fit, the longest. Where gaps are too short for any kernel, as between the launches of
-- eager PyTorch, best effort still gets share_pct of the time that those above leave idle, and
-- floor_pct of the time that they are busy, so that nobody starves beside a dense program. What is
-- owed goes when those above pause. Under MPS it also goes beside one that does not, such as a long
-- graph, or whose pauses are so much shorter than the kernel that waiting for one spares nobody.
--
-- What gap and quantum hold beyond the launch goes along as credit, as far as credit_pct says.
-- Under MPS those above wait for a wave of a kernel's blocks to end. What fits no gap and has long
-- waves (fence_us) can run on a few SMs instead (fence_sm): those above then have the others.
queue.create("be")

local min, max = math.min, math.max
local saved_us_max = 3000                     -- a pause must not save up a burst
-- By priority: what best effort is owed; idle time, when that was read, and when it last grew; and
-- the most of a gap that was left lately when a kernel could go, for decisions come late (nil: no
-- gap was seen yet).
local owed_us, seen_idle_us, seen_at_us, idle_at_us, offered_us = {}, {}, {}, {}, {}
for q = 0, 9 do owed_us[q], seen_idle_us[q], seen_at_us[q], idle_at_us[q] = 0, 0, 0, 0 end

local function owed(q, idle_us, at_us, p)
  local idle = idle_us - seen_idle_us[q]
  local busy = at_us - seen_at_us[q] - idle
  local earned_us = (idle * p.share_pct + busy * p.floor_pct) / 100
  owed_us[q] = min(owed_us[q] + earned_us, saved_us_max)
  if idle > 0 then idle_at_us[q] = at_us end
  seen_idle_us[q], seen_at_us[q] = idle_us, at_us
  return owed_us[q]
end

local function charge(q, us)
  owed_us[q] = max(owed_us[q] - us, -saved_us_max)
end

return policy {
  name = "gapfill", api = 1, version = "1.3.0",
  params = {
    quantum_us = { type = "int", min = 20, max = 5000, default = 500,
                   doc = "most best-effort work in flight; one longer launch goes alone" },
    share_pct = { type = "number", min = 0, max = 100, default = 90,
                  doc = "least share of the idle time of those above, even if no gap fits" },
    floor_pct = { type = "number", min = 0, max = 100, default = 5,
                  doc = "least share of the time that those above are busy" },
    overrun_max_us = { type = "int", min = 0, max = 100000, default = 2500,
                       doc = "most that a launch for that share may hold up those above" },
    credit_pct = { type = "int", min = 0, max = 100, default = 50,
                   doc = "of the quantum, most that a grant covers; at 50 half runs as it asks" },
    wait_gaps = { type = "number", min = 0, max = 10000, default = 2,
                  doc = "under MPS a kernel longer than so many gaps waits for none" },
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
      local owed_now_us = owed(q, g:idle_us(q), at_us, p)
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
      local unpausing = at_us - idle_at_us[q] > p.overrun_max_us
      local short = offered and k.predicted_us > p.wait_gaps * (offered + g.switch_us)
      local beside = mps and (unpausing or short)
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
