-- ipc_budget.lua: let work in beside others as far as what they were promised allows.
--
-- A rule's slowdown_max promises a client that others slow its runs by no more (1.10: 10 %).
-- Its account is in µs. It refills while the client works; each launch beside it is charged what
-- the interference estimator says that it costs; measured runs correct both. A launch that an
-- account cannot afford waits, or goes if it is cheap on fence_sm SMs. What fits a gap is free.
-- Clients without a promise hold nobody back: give latency-critical ones a rule with slowdown_max.
-- The other side of the budget is a rule's issue_max, l2_max and dram_max for a neighbour: the core
-- keeps to that under each policy, also beside those without a promise.
queue.create("waiting")

local above, company = import "lib/above", import "lib/company"

-- True, and on how many SMs (nil: on all); or false and why not.
local function try(k, g, p)
  local fits, why = company.may_join(k)
  if fits then return true end
  if p.fence_sm > 0 and g.mode == "mps" and k.fenceable and company.may_join(k, p.fence_sm) then
    return true, p.fence_sm
  end
  return false, why
end

return policy {
  name = "ipc_budget", api = 1, version = "1.0.0",
  params = {
    inflight_us = { type = "int", min = 20, max = 100000, default = 1000,
                    doc = "most predicted work of less important clients in flight" },
    fence_sm = { type = "int", min = 0, max = 1024, default = 0,
                 doc = "SMs for what costs too much on all of them, under MPS; 0: it waits" },
  },
  hooks = {
    enqueue = function(k, p)
      if above.has_window(k) then return nil end
      return queue.insert("waiting", k, k.priority)
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local first, why = above.goes_first(k, g, p.inflight_us)
      if first then return RUN, k end
      if why then return IDLE, why end
      local fits, sm = try(k, g, p)
      if fits then return RUN, k, sm, nil, above.follows(k) end
      local short = company.shorter("waiting", k)
      if short then
        local short_fits, on = try(short, g, p)
        if short_fits then return RUN, short, on end
      end
      return IDLE, sm                                  -- the reason
    end,
  },
}
