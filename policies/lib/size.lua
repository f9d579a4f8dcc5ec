-- size.lua: on how many SMs a launch runs.

-- The least number of SMs at which the kernel takes no longer, where that was measured, but
-- `fence_sm` at most, and half of the GPU; 0: no such limit. nil: all that its client has.
-- Time-sliced, or where a size means nothing for the launch, nil.
local function of(k, g, fence_sm)
  if g.mode ~= "mps" or not k.fenceable then return nil end
  local sm = k.right_size
  if fence_sm > 0 then
    local most = math.min(fence_sm, math.floor(g.sm_total / 2))
    sm = math.min(sm or most, most)
  end
  if sm and sm < g.sm_total then return sm end
  return nil
end

return { of = of }
