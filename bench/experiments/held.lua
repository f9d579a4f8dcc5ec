-- Nobody below Q0 runs, ever: whoever tries waits, so that those above are watched all the time.
-- For what that costs them (bench/overhead.py --waiter), with gpu.starvation_ms as long as the run.
queue.create("held")
local function window(c) return c.priority == 0 and LEASE or GATE end
return policy {
  name = "held", api = 1, version = "1.0.0",
  hooks = { client_init = window, client_active = window, client_idle = window,
            enqueue = function(k) return queue.insert("held", k, k.priority) end,
            dispatch = function() return IDLE, "nobody below Q0 runs" end },
}
