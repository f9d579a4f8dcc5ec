-- quota.lua: GPU seconds per label and period; when they are used up, the label waits for the next.
--
-- Typical use: teams that have so much of a GPU each minute or hour. While they have quota left
-- priorities decide: a client waits while a more important one has work, and the most important one
-- goes first. Labels without a quota are handled as under the built-in policy.
--
-- A label's use is the sum of c.gpu_us over its clients, including those that left. It may exceed
-- the quota: a launch that began runs to its end, and after the starvation bound (a second) each
-- waiting thread gets one launch. Loading the policy, or setting a parameter, begins a new period.
queue.create("ready")
queue.create("spent")

local labels = import "lib/labels"

local QUOTAS = { name = "quotas", unit = "SECONDS", example = "train=20,notebook=5", most = 1e9 }

local floor = math.floor
local base, gone = {}, {}   -- gpu_us when the period began, by client; use of left ones, by label
local period = -1
local fallback_us = math.huge                 -- of labels that are not named

local function limit(label)
  local seconds = labels.of(label)
  return seconds and seconds * 1e6 or fallback_us
end

-- The client's use in this period: measured GPU time, and predicted time of its work in flight.
local function used_by(c)
  local us = c.gpu_us + c.inflight_us
  if not base[c.id] then base[c.id] = c.gpu_us end
  return us - base[c.id]
end

local function is_spent(g, label)
  local most = limit(label)
  if most == math.huge then return false end
  local us = gone[label] or 0
  for c in g:clients() do
    if c.label == label then us = us + used_by(c) end
  end
  return us >= most
end

local function begin_period(g)
  gone = {}
  for c in g:clients() do base[c.id] = c.gpu_us end
  for _ = 1, queue.len("spent") do
    local k = queue.peek("spent")
    queue.insert("ready", k, k.priority)
  end
end

-- Predicted time of all gated work in flight, or math.huge if a more important client has some. It
-- does not use g:busy, because a client that waits for its quota must not delay others.
local function inflight(g, priority)
  local us = 0
  for c in g:clients() do
    if c.inflight_us > 0 then
      if c.priority < priority then return math.huge end
      if c.gated then us = us + c.inflight_us end
    end
  end
  return us
end

local function gated(c) if limit(c.label) < math.huge then return GATE end end

return policy {
  name = "quota", api = 1, version = "1.0.0",
  params = {
    quotas = { type = "string", default = "",
               doc = "GPU seconds per period, as train=20,notebook=5" },
    period_s = { type = "number", min = 0.01, max = 86400, default = 60,
                 doc = "length of a period" },
    default_s = { type = "number", min = 0, max = 86400, default = 0,
                  doc = "quota of labels that are not named; 0: none" },
    depth_us = { type = "int", min = 20, max = 100000, default = 500,
                 doc = "predicted work in flight, if it is more than one launch" },
  },
  hooks = {
    init = function(p)
      labels.read(QUOTAS, p.quotas)
      if p.default_s > 0 then fallback_us = p.default_s * 1e6 end
    end,
    client_init = function(c, p)
      labels.meet(c)
      return gated(c)
    end,
    client_active = function(c, p)
      labels.check(c)
      return gated(c)
    end,
    client_idle = function(c, p) return gated(c) end,
    client_exit = function(c)
      local label = c.label
      if limit(label) < math.huge then gone[label] = (gone[label] or 0) + used_by(c) end
      base[c.id] = nil
    end,

    enqueue = function(k, p)
      local c = k.client
      labels.check(c)
      used_by(c)
      return queue.insert("ready", k, k.priority)
    end,

    dispatch = function(g, p)
      local now = floor(now_us() / (p.period_s * 1e6))
      if now ~= period then
        period = now
        begin_period(g)
      end
      for _ = 1, queue.len("ready") do
        local k = queue.peek("ready")
        if is_spent(g, k.client.label) then
          queue.insert("spent", k, k.priority)
        else
          local us = inflight(g, k.priority)
          if us == math.huge then return IDLE, "a more important client runs" end
          if us > 0 and us + k.predicted_us > p.depth_us then return IDLE, "enough in flight" end
          return RUN, k
        end
      end
      return IDLE, queue.len("spent") > 0 and "its quota is used up" or "empty"
    end,
  },
}
