-- orion.lua: Orion's rules (Strati et al., EuroSys 2024, section 5.1 and Listing 1).
--
-- The most important program launches as it likes. A launch below it goes while nothing of that
-- program is on the GPU. Beside a kernel of it the launch goes only if it needs fewer than
-- sm_threshold SMs and is of the other kind: one bound by compute, one by memory. A kernel of which
-- one use is known and neither passes bound_pct, or whose uses nobody measured, is of the unknown
-- kind and goes beside any, as in the paper. A graph's use is the mean of its kernels, less the
-- part that nobody measured. So much predicted time below it may be in flight as is duration_pct of
-- the length of its runs alone; then the next launch waits for the ones before it, and nobody
-- overtakes it. The rule goes round the clients, as Listing 1 does: one that must not join by its
-- kind holds up no other client.
--
-- Kinds come from profiles with metrics (`heddle profile collect-metrics`). The paper's defaults:
-- SM_THRESHOLD is all SMs, DUR_THRESHOLD 2.5 %; a kernel is bound by what it uses to 60 %.
queue.create("best_effort")

local above = import "lib/above"

local LOOK_AT = 250                           -- launches: a hook call may look at 256

-- By client: its launches in flight, the kind of the last one, and its priority.
local in_flight, kinds, priorities = {}, {}, {}

local function kind_of(kn, bound_pct)
  local known = 1 - (kn.unknown_pct or 0) / 100  -- of a graph, by time
  local compute = known * math.max(kn.fma_pct or 0, kn.fp64_pct or 0, kn.tensor_pct or 0)
  local memory = known * (kn.dram_pct or 0)
  if compute >= bound_pct and compute >= memory then return "compute" end
  if memory >= bound_pct then return "memory" end
  return nil
end

-- SMs that its blocks fill; of a graph's kernels that is not known.
local function sms_of(k)
  if k.kind == "graph" then return math.huge end
  local per_sm = math.max(1, k.kernel.blocks_per_sm)
  return math.ceil(k.grid_blocks / per_sm)
end

local function forget(c)
  in_flight[c.id], kinds[c.id], priorities[c.id] = nil, nil, nil
end

-- True if a more important program has a kernel of that kind on the GPU.
local function runs_above(kind, priority)
  for id, launches in pairs(in_flight) do
    if launches > 0 and kinds[id] == kind and priorities[id] < priority then return true end
  end
  return false
end

local function joins(k, g, p)
  local most = p.sm_threshold > 0 and p.sm_threshold or g.sm_total
  if sms_of(k) >= most then return false, "needs too many SMs" end
  local own = kind_of(k.kernel, p.bound_pct)
  if own and runs_above(own, k.priority) then return false, "both are bound by " .. own end
  return true
end

-- The mean of the runs above the launch, alone.
local function run_us(g, priority)
  local count, _, alone_us, pauses_us = g:runs(priority)
  return count > 0 and (alone_us - pauses_us) / count or 0
end

return policy {
  name = "orion", api = 1, version = "1.0.0",
  params = {
    sm_threshold = { type = "int", min = 0, max = 1024, default = 0,
                     doc = "SM_THRESHOLD: a launch that needs fewer may join; 0: all of the GPU" },
    duration_pct = { type = "number", min = 0.1, max = 100, default = 2.5,
                     doc = "DUR_THRESHOLD: of a run of the most important, in flight below it" },
    bound_pct = { type = "number", min = 1, max = 100, default = 60,
                  doc = "a kernel is bound by what it uses to so many percent" },
  },
  hooks = {
    running = function(k, p)
      local id = k.client.id
      in_flight[id] = (in_flight[id] or 0) + 1
      kinds[id], priorities[id] = kind_of(k.kernel, p.bound_pct), k.priority
    end,

    stopping = function(k, p)
      local id = k.client.id
      in_flight[id] = math.max(0, (in_flight[id] or 0) - 1)
    end,

    client_idle = forget,
    client_exit = forget,

    enqueue = function(k, p)
      return queue.insert("best_effort", k, k.priority)
    end,

    dispatch = function(g, p)
      local k = queue.peek("best_effort")
      if not k then return IDLE, "empty" end
      if k.priority <= above.top(g) or not g:busy(k.priority) then return RUN, k end
      local most_us = run_us(g, k.priority) * p.duration_pct / 100 - g.inflight_us
      local why
      for place = 1, math.min(queue.len("best_effort"), LOOK_AT) do
        local one = queue.peek("best_effort", place)
        if g.inflight_us > 0 and one.predicted_us > most_us then
          return IDLE, why or "enough in flight"
        end
        local may, refused = joins(one, g, p)
        if may then return RUN, one end
        why = why or refused
      end
      return IDLE, why
    end,
  },
}
