-- right_size.lua: nobody asks, and each kernel gives up the SMs that buy it little.
--
-- Typical use: several services of one importance on one GPU under MPS, each too small to fill it.
-- Each client's SM sets begin at an anchor of its own on the ring of groups, and may overlap. How
-- many SMs a kernel gives up depends on how many clients are at work (lib/crowd.lua). The size of a
-- CUDA graph is found while it runs beside others (lib/search.lua), whatever its curve is: what it
-- loses alone on fewer SMs it may gain beside others. For that the policy hears the end of each
-- launch, which costs heddled time.
local crowd, search = import "lib/crowd", import "lib/search"

sm_set.family { placement = "ring" }

return policy {
  name = "right_size", api = 1, version = "1.1.0",
  params = crowd.params,
  hooks = {
    client_init = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_active = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_idle = function(c, p) return LEASE, "on as many SMs as its kernels need" end,

    kernel_init = function(kn, c, p)
      if kn.block_threads ~= 0 then return crowd.size_of(kn) end
      if crowd.now.lambda == 0 then return nil end
      local sm, timed = search.size(kn, c, crowd.now)
      return sm or crowd.size_of(kn), nil, timed
    end,

    stopping = function(k, p)
      if crowd.now.lambda == 0 then return end
      if search.ended(k, p.settle_ms * 1000) then k.client:resize() end
    end,

    client_exit = function(c) search.forget(c) end,
    tick = crowd.follow,
  },
}
