-- krisp_o.lua: every launch asks, and gets as many SMs as its kernel needs where least work is.
--
-- Typical use: KRISP's own policy (sections 4.3 and 5, "KRISP-O"), for programs that ask for every
-- launch. Oversubscribed: a set is taken whoever works there.
-- Each size is there at four positions on the ring of groups. A kernel without a curve
-- (`heddle profile sweep`) runs on all SMs. For programs that must not ask, see right_size.lua.
sm_set.family { placement = "live", sizes = { 2, 4, 8 }, positions = 4, overlap = 32 }
queue.create("asking")

return policy {
  name = "krisp_o", api = 1, version = "1.0.0",
  per_launch = true,  -- on which SMs a launch goes is chosen when it asks
  hooks = {
    client_init = function(c, p) return GATE, "every launch asks for its SMs" end,
    client_active = function(c, p) return GATE, "every launch asks for its SMs" end,
    client_idle = function(c, p) return GATE, "every launch asks for its SMs" end,

    enqueue = function(k, p) return queue.insert("asking", k, k.priority) end,
    dispatch = function(g, p)
      local k = queue.peek("asking")
      if not k then return IDLE, "nobody asks" end
      return RUN, k, k.right_size, "oversubscribed"
    end,
  },
}
