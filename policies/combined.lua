-- combined.lua: priority, then interference budgets, then a size in SMs for each kernel.
--
-- Typical use: best effort beside a service in a closed loop, whose runs must keep their rule's
-- slowdown_max. On a GPU all 24 measured blocks kept it, at 1.07 to 1.08 of 1.10
-- (bench/SIZES_AND_BUDGETS.md). Sizes gained nothing there, nor in the simulation of
-- combined_sizes_test.lua. If requests queue up, use auto.lua: it keeps promises there, too, and
-- needs no profile.
--
-- The policy asks three questions in this order; each answer gives a reason.
-- 1. Is a more important client at work? If not, the launch goes (lib/above.lua).
-- 2. On how many SMs would the launch go beside those above? On fence_sm at most, or on the least
--    at which it takes no longer, if that was measured, so that those above have the others. On all
--    SMs if it is predicted to end before they have work again, and with a fence_sm of 0.
-- 3. Can those above afford the launch there? Their rules' slowdown_max is their promise
--    (lib/company.lua). Each promise has an account in us, which refills while its client works and
--    pays for what runs beside it. If an account is too low the launch waits, and a shorter one may
--    go.
--
-- A client without a promise holds no launch back: give latency-critical ones a rule with
-- slowdown_max. A neighbour's use can be limited as well, by its rule's issue_max, l2_max and
-- dram_max: the core keeps those under each policy, also beside clients without a promise.
queue.create("waiting")

local above, company = import "lib/above", import "lib/company"

-- True and on how many SMs (nil and 0: all), or false and why not.
local function place(k, g, p)
  local sm
  if g.mode == "mps" and k.fenceable and g.inflight_us + k.predicted_us > g:gap_us(k.priority) then
    local most = math.min(p.fence_sm, math.floor(g.sm_total / 2))
    sm = math.min(k.right_size or most, most)
  end
  local fits, why = company.may_join(k, sm)
  if fits then return true, sm end
  return false, why
end

return policy {
  name = "combined", api = 1, version = "1.1.0",
  params = {
    inflight_us = { type = "int", min = 20, max = 100000, default = 1000,
                    doc = "most predicted work of less important clients in flight" },
    fence_sm = { type = "int", min = 0, max = 1024, default = 64,
                 doc = "most SMs for who joins others, under MPS, half of them at most; 0: all" },
  },
  hooks = {
    enqueue = function(k, p)
      return queue.insert("waiting", k, k.priority)
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local first, why = above.goes_first(k, g, p.inflight_us)
      if first then return RUN, k end
      if why then return IDLE, why end
      local fits, sm = place(k, g, p)
      if fits then return OPEN, k, sm end
      local short = company.shorter("waiting", k)
      if short then
        local short_fits, on = place(short, g, p)
        if short_fits then return RUN, short, on end
      end
      return IDLE, sm                                  -- the reason
    end,
  },
}
