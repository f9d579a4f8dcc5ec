-- company.lua: whether a launch may join those on the GPU, by the budgets of their promises, and
-- which goes instead of one that may not.

-- True if all promises can afford the launch on `sm` SMs (nil: on all), else false and a reason
-- that names the channel: "interference: dram".
local function may_join(k, sm)
  local fits, channel = budget.fits(k, sm or 0)
  if fits then return true end
  return false, "interference: " .. channel
end

-- A launch of the queue of at most half the length of `k`, its head, that may overtake it; nil if
-- there is none, or if k has waited for so many times its length. Else shorter ones starve it.
local OVERTAKEN = 8
local function shorter(name, k)
  if k.wait_us >= OVERTAKEN * k.predicted_us then return nil end
  return queue.best_fit(name, k.predicted_us / 2)
end

return { may_join = may_join, shorter = shorter }
