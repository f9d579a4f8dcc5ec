-- right_size.lua: nobody asks, and each kernel gives up the SMs that buy it little.
--
-- Typical use: several services of one importance on one GPU under MPS, each too small to fill it.
-- Each client's SM sets begin at an anchor of its own on the ring of groups, and may overlap. How
-- many SMs a kernel gives up depends on how many clients are at work (lib/crowd.lua).
local crowd = import "lib/crowd"

sm_set.family { placement = "ring" }

return policy {
  name = "right_size", api = 1, version = "1.0.0",
  params = crowd.params,
  hooks = {
    client_init = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_active = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_idle = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    kernel_init = function(kn, c, p) return crowd.size_of(kn) end,
    tick = crowd.follow,
  },
}
