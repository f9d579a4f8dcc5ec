-- mlfq.lua: the request that has used least GPU time goes first: a multi-level feedback queue.
--
-- Typical use: it is not known which programs are interactive: notebooks beside training.
-- Each request begins at the top level. When it has used up its level's quantum of GPU time it
-- sinks to the next, whose quantum is twice as long. So short requests overtake long ones. A
-- request begins when its client asks after a pause. Every boost_ms all requests begin at the top
-- again, so that a long one starves for no longer. Priorities mean nothing: clients on one level
-- take turns, by their share.
--
-- Not for objectives (use edf.lua), nor for programs that pause between the launches of one long
-- computation: each pause takes them to the top.
queue.create("waiting")

local requests = import "lib/requests"

-- By client: its level, its GPU time when it came there, and the number of the boost then.
local level, since_us, boost = {}, {}, {}

return policy {
  name = "mlfq", api = 1, version = "1.0.0",
  params = {
    quantum_us = { type = "int", min = 100, max = 10000000, default = 2000,
                   doc = "GPU time of a request at the top level; twice as much at each below" },
    levels = { type = "int", min = 2, max = 16, default = 5, doc = "levels" },
    boost_ms = { type = "int", min = 10, max = 100000, default = 500,
                 doc = "after so long all requests begin at the top again" },
    pause_us = { type = "int", min = 10, max = 1000000, default = 500,
                 doc = "after so long without a launch the next one is a new request" },
    depth_us = { type = "int", min = 20, max = 100000, default = 500,
                 doc = "predicted work in flight, if it is more than one launch" },
  },
  hooks = {
    client_init = function(c, p) return GATE end,
    client_active = function(c, p) return GATE end,
    client_idle = function(c, p) return GATE end,
    client_exit = function(c)
      requests.forget(c)
      level[c.id], since_us[c.id], boost[c.id] = nil, nil, nil
    end,

    enqueue = function(k, p)
      local c = k.client
      local id, used_us = c.id, c.gpu_us + c.inflight_us
      local now = math.floor(now_us() / (p.boost_ms * 1000))
      if requests.begins(k, p.pause_us) or boost[id] ~= now then
        level[id], since_us[id], boost[id] = 1, used_us, now
      elseif used_us - since_us[id] >= p.quantum_us * 2 ^ (level[id] - 1) then
        level[id], since_us[id] = math.min(p.levels, level[id] + 1), used_us
      end
      return queue.insert("waiting", k, now * p.levels + level[id])  -- older boosts go first
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local us = requests.inflight(g)
      if us > 0 and us + k.predicted_us > p.depth_us then return IDLE, "enough in flight" end
      return RUN, k, "its request has used least"
    end,
  },
}
