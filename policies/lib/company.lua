-- company.lua: whether the budgets of promised clients let a launch join them on the GPU, and which
-- launch may go instead.

-- True if all promises can afford the launch on `sm` SMs (nil: on all), else false and a reason
-- that names the channel: "interference: dram".
local function may_join(k, sm)
  local fits, channel = budget.fits(k, sm or 0)
  if fits then return true end
  return false, "interference: " .. channel
end

-- A launch that may overtake `k`, the head of the queue: at most half as long. nil if there is
-- none, or once k has waited for OVERTAKEN times its length, so that shorter ones do not starve it.
local OVERTAKEN = 8
local function shorter(name, k)
  if k.wait_us >= OVERTAKEN * k.predicted_us then return nil end
  return queue.best_fit(name, k.predicted_us / 2)
end

return { may_join = may_join, shorter = shorter }
