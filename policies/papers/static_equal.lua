-- static_equal.lua: clients that are at work divide the SMs evenly, and nobody waits.
--
-- Typical use: the baseline of comparisons (KRISP section 5: "Static Equal"), or tenants who must
-- not disturb each other's caches and issue slots. Each client's SM sets begin at an anchor of its
-- own on the ring of groups. It keeps to the groups up to the next client that is at work: all of
-- them while it is alone, half beside one other. With `curves` a kernel takes as many of them as
-- its curve says (`heddle profile sweep`). L2 and DRAM stay shared.
sm_set.family { placement = "ring", isolated = true }

return policy {
  name = "static_equal", api = 1, version = "1.1.0",
  params = {
    curves = { type = "bool", default = false, doc = "fewer SMs for kernels that need no more" },
  },
  hooks = {
    client_init = function(c, p) return LEASE, "on its own SMs" end,
    client_active = function(c, p) return LEASE, "on its own SMs" end,
    client_idle = function(c, p) return LEASE, "on its own SMs" end,
    kernel_init = function(kn, c, p) return p.curves and kn.right_size or nil end,
  },
}
