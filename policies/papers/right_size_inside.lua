-- right_size_inside.lua: as right_size, and each part of a CUDA graph has a size of its own.
--
-- Typical use: several services on CUDA graphs, of which nobody measured curves. The sizes inside
-- each graph are found while it runs beside others, within seconds (lib/inside.lua). It hears the
-- end of each launch for that, which costs heddled time: right_size does not.
local crowd, inside = import "lib/crowd", import "lib/inside"

sm_set.family { placement = "ring" }

return policy {
  name = "right_size_inside", api = 1, version = "1.0.0",
  params = crowd.params,
  hooks = {
    client_init = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_active = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_idle = function(c, p) return LEASE, "on as many SMs as its kernels need" end,

    kernel_init = function(kn, c, p)
      if kn.block_threads ~= 0 then return crowd.size_of(kn) end
      if crowd.now.lambda > 0 then return inside.sizes(kn, c, crowd.now) end
    end,

    stopping = function(k, p)
      if crowd.now.lambda == 0 then return end
      if inside.ended(k, p.settle_ms * 1000) then k.client:resize() end
    end,

    client_exit = function(c) inside.forget(c) end,
    tick = crowd.follow,
  },
}
