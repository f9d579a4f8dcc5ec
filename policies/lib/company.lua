-- company.lua: whether a launch may join those on the GPU, by the budgets of their promises.

-- True if all promises can afford the launch on `sm` SMs (nil: on all), else false and a reason
-- that names the channel: "interference: dram".
local function may_join(k, sm)
  local fits, channel = budget.fits(k, sm or 0)
  if fits then return true end
  return false, "interference: " .. channel
end

return { may_join = may_join }
