-- ring_isolated.lua: kernels on as many SMs as they need, up to where the next neighbour begins.
--
-- Typical use: tenants who want isolation and whose launches must not ask. Each client's SM sets
-- begin at an anchor of its own on the ring of groups; a kernel takes as many groups from there as
-- its curve says (`heddle profile sweep`), cut where the next client at work begins.
sm_set.family { placement = "ring", isolated = true }

return policy {
  name = "ring_isolated", api = 1, version = "1.0.0",
  hooks = {
    client_init = function(c, p) return LEASE, "on its own SMs" end,
    client_active = function(c, p) return LEASE, "on its own SMs" end,
    client_idle = function(c, p) return LEASE, "on its own SMs" end,
    kernel_init = function(kn, c, p) return kn.right_size end,
  },
}
