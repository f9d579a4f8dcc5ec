-- usher.lua: Usher's rule (Shubha et al., OSDI 2024), as told by Elvinger et al., SoCC 2025,
-- section 3, pitfall 1: kernels share the GPU while their achieved occupancies add up to less than
-- 100 %. The same holds here for their use of DRAM, and of two that wait the one goes first that
-- is heavy in what the GPU has less of: C-heavy beside M-heavy.
--
-- The most important program launches as it likes, and counts. A kernel that nobody measured counts
-- as all of the GPU: it waits for those of others, and they for it. So does the part of a graph
-- that nobody measured, by its time. The paper shows where the rule
-- errs: at 6 % of occupancy each, two kernels slowed each other by 1.7 times.
--
-- Needs profiles with metrics (`heddle profile collect-metrics`).
queue.create("c_heavy")
queue.create("m_heavy")

local UNKNOWN_PCT = 100
local LOOK_AT = 250  -- launches that wait, in the order of their turns: a hook call may see 256
local OVERTAKEN = 8  -- times its length that one waits which its equals alone keep out

-- Client ID -> launches in flight, and what the last of them uses.
local at_work = {}

local function work_of(id)
  if not at_work[id] then at_work[id] = { launches = 0, compute = 0, memory = 0 } end
  return at_work[id]
end

-- A function inside use_of would be made anew for each launch that a hook looks at.
local function with_unknown(use_pct, unknown)
  return use_pct and use_pct + unknown * (UNKNOWN_PCT - use_pct) or UNKNOWN_PCT
end

local function use_of(kn)
  local unknown = (kn.unknown_pct or 0) / 100  -- of a graph, by time
  return with_unknown(kn.occupancy_pct, unknown), with_unknown(kn.dram_pct, unknown)
end

-- What the others have in flight, or those above alone: their number, and the sums of compute and
-- memory.
local function beside(k, above_alone)
  local count, compute, memory = 0, 0, 0
  for id, work in pairs(at_work) do
    local counts = not above_alone or work.priority < k.priority
    if counts and id ~= k.client.id and work.launches > 0 then
      count = count + 1
      compute, memory = compute + work.compute, memory + work.memory
    end
  end
  return count, compute, memory
end

local function joins(k, p, above_alone)
  local count, compute, memory = beside(k, above_alone)
  if count == 0 then return true end
  local own_compute, own_memory = use_of(k.kernel)
  if own_compute + compute >= p.sum_pct then return false, "compute is full" end
  if own_memory + memory >= p.sum_pct then return false, "memory is full" end
  return true
end

-- Of two that wait, one C-heavy, one M-heavy, true if the first is tried first.
local function before(c, m)
  if c.priority ~= m.priority then return c.priority < m.priority end
  local _, compute, memory = beside(c)
  return compute <= memory
end

return policy {
  name = "usher", api = 1, version = "1.0.0",
  params = {
    sum_pct = { type = "number", min = 1, max = 1000, default = 100,
                doc = "what occupancies, and uses of DRAM, add up to less than" },
  },
  hooks = {
    running = function(k, p)
      local work = work_of(k.client.id)
      work.launches = work.launches + 1
      work.compute, work.memory = use_of(k.kernel)
      work.priority = k.priority
    end,

    stopping = function(k, p)
      local work = at_work[k.client.id]
      if work then work.launches = math.max(0, work.launches - 1) end
    end,

    client_idle = function(c, p) at_work[c.id] = nil end,
    client_exit = function(c) at_work[c.id] = nil end,

    enqueue = function(k, p)
      local compute, memory = use_of(k.kernel)
      return queue.insert(memory > compute and "m_heavy" or "c_heavy", k, k.priority)
    end,

    dispatch = function(g, p)
      local why
      local at_c, at_m = 1, 1
      local c, m = queue.peek("c_heavy"), queue.peek("m_heavy")
      for _ = 1, LOOK_AT do
        if not c and not m then break end
        local k
        if not m or c and before(c, m) then
          k, at_c = c, at_c + 1
          c = queue.peek("c_heavy", at_c)
        else
          k, at_m = m, at_m + 1
          m = queue.peek("m_heavy", at_m)
        end
        local may, full = joins(k, p)
        if may then return RUN, k end
        why = why or full                              -- of the first
        local patient = k.wait_us < OVERTAKEN * k.predicted_us
        if not patient and joins(k, p, true) then break end  -- its equals will have ended
      end
      return IDLE, why or "empty"
    end,
  },
}
