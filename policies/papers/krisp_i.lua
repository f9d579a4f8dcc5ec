-- krisp_i.lua: every launch asks, and gets SMs on which nobody else works.
--
-- Typical use: KRISP's own policy (sections 4.3 and 5, "KRISP-I"), for programs that ask for every
-- launch. Isolated: a launch gets as many SMs as its kernel needs, or what is free, if that is
-- less. Where nothing is free it waits, until the starvation bound (`starvation_ms`): then it goes
-- on all SMs, isolated or not. A kernel without a curve (`heddle profile sweep`) wants all
-- SMs. A launch that cannot move waits for the GPU to be empty.
-- Each size is there at four positions on the ring of groups. A client's own launches share SMs:
-- the paper's workers launch in order. For programs that must not ask, see right_size.lua.
sm_set.family { placement = "live", sizes = { 2, 4, 8 }, positions = 4, overlap = 0 }
queue.create("asking")

local LARGEST = 64   -- SMs of the largest size
local LOOK_AT = 16   -- launches that wait
local OVERTAKEN = 8  -- times its length that a launch waits which others overtake

-- The SMs that the launch asks for; nil if none are free.
local function isolated(k, g)
  local want = k.right_size or g.sm_total
  if sm_set.free(k, want) > 0 then return want end
  want = math.min(want, LARGEST)
  return sm_set.free(k, want) > 0 and want or nil
end

return policy {
  name = "krisp_i", api = 1, version = "1.1.0",
  per_launch = true,  -- on which SMs a launch goes is chosen when it asks
  hooks = {
    client_init = function(c, p) return GATE, "every launch asks for its SMs" end,
    client_active = function(c, p) return GATE, "every launch asks for its SMs" end,
    client_idle = function(c, p) return GATE, "every launch asks for its SMs" end,

    enqueue = function(k, p) return queue.insert("asking", k, k.priority) end,
    dispatch = function(g, p)
      for place = 1, math.min(queue.len("asking"), LOOK_AT) do
        local k = queue.peek("asking", place)
        local sm = isolated(k, g)
        if sm then return RUN, k, sm, "isolated" end
        if k.wait_us > OVERTAKEN * k.predicted_us then break end
      end
      return IDLE, "no SMs are free"
    end,
  },
}
